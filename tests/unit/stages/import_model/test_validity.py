"""Models that are not valid ONNX, or would grow without bound, are rejected by name."""

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.stages.import_model import validity
from ltp_pipeline.stages.import_model.read import read_model_file
from tests.support.imported import get_import_error
from tests.support.models import Graph, conv_bn_classifier, mlp, with_function
from tests.support.sequence_models import fused_attention


def cycle(m: ModelProto) -> None:
    m.graph.node[0].input[0] = m.graph.node[2].output[0]


def missing_initializer(m: ModelProto) -> None:
    del m.graph.initializer[0]


def initializer_twice(m: ModelProto) -> None:
    m.graph.initializer.append(m.graph.initializer[0])


def value_twice(m: ModelProto) -> None:
    m.graph.node[1].output[0] = m.graph.node[0].output[0]


def attribute_of_another_type(m: ModelProto) -> None:
    m.graph.node[0].attribute[0].CopyFrom(helper.make_attribute("transB", "yes"))


def unknown_attribute(m: ModelProto) -> None:
    m.graph.node[0].attribute.append(helper.make_attribute("surprise", 1))


def dims_that_overflow(m: ModelProto) -> None:
    m.graph.initializer[0].dims[0] = 2**62


def negative_dims(m: ModelProto) -> None:
    m.graph.initializer[0].dims[0] = -1


def fewer_values_than_dims(m: ModelProto) -> None:
    m.graph.initializer[0].dims[0] = 1_000_000


def more_dims_than_arrays_have(m: ModelProto) -> None:
    m.graph.initializer[0].dims.extend([1] * 100)


def four_bits_in_too_many_bytes(m: ModelProto) -> None:
    tensor = m.graph.initializer[0]
    tensor.data_type = TensorProto.FLOAT4E2M1
    tensor.raw_data = bytes(tensor.dims[0] * tensor.dims[1])


def numbers_of_another_type(m: ModelProto) -> None:
    tensor = m.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.int64_data.extend([1] * (tensor.dims[0] * tensor.dims[1]))


def values_twice(m: ModelProto) -> None:
    m.graph.initializer[0].float_data.append(1.0)


def values_of_an_integer_twice(m: ModelProto) -> None:
    shape = onnx.numpy_helper.from_array(np.array([1, 2]), "shape")
    shape.int64_data.extend([3, 4])
    m.graph.initializer.append(shape)


def segment(m: ModelProto) -> None:
    m.graph.initializer[0].segment.end = 10


def name_without_end(m: ModelProto) -> None:
    m.graph.node[0].name = "long" * 100_000


def not_a_number(m: ModelProto) -> None:
    array = onnx.numpy_helper.to_array(m.graph.initializer[0]).copy()
    array[0, 0] = np.nan
    m.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(array, "fc1.weight"))


def values_elsewhere(m: ModelProto) -> None:
    onnx.external_data_helper.set_external_data(m.graph.initializer[0], "weights.bin")
    m.graph.initializer[0].ClearField("raw_data")
    m.graph.initializer[0].data_location = TensorProto.EXTERNAL


def no_such_operator(m: ModelProto) -> None:
    m.graph.node[1].op_type = "Sorcery"


def foreign_domain(m: ModelProto) -> None:
    m.graph.node[1].domain = "org.example"
    m.opset_import.append(helper.make_opsetid("org.example", 1))


def no_nodes(m: ModelProto) -> None:
    del m.graph.node[:]


def no_outputs(m: ModelProto) -> None:
    del m.graph.output[:]


def ancient(m: ModelProto) -> None:
    m.opset_import[0].version = 5


def from_the_future(m: ModelProto) -> None:
    m.opset_import[0].version = 2000


def two_versions(m: ModelProto) -> None:
    m.opset_import.append(helper.make_opsetid("ai.onnx", 9))


def initializers_of_an_old_file(m: ModelProto) -> None:
    m.ir_version = 3


def empty(m: ModelProto) -> None:
    m.Clear()


def attribute_twice(m: ModelProto) -> None:
    m.graph.node[0].attribute.append(m.graph.node[0].attribute[0])


def too_many_inputs(m: ModelProto) -> None:
    m.graph.node[1].input.append(m.graph.node[1].input[0])


def empty_input(m: ModelProto) -> None:
    m.graph.node[0].input[1] = ""


def required_attribute_missing(m: ModelProto) -> None:
    m.graph.node[1].op_type = "Cast"


def input_of_a_branch_missing(m: ModelProto) -> None:
    output = helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)
    branch = helper.make_graph([helper.make_node("Neg", ["nothing"], ["inner"])], "b", [], [output])
    condition = onnx.numpy_helper.from_array(np.array(True), "yes")
    m.graph.initializer.append(condition)
    m.graph.node.append(
        helper.make_node("If", ["yes"], ["chosen"], then_branch=branch, else_branch=branch)
    )


def tensor_computed_again(m: ModelProto) -> None:
    m.graph.node[0].output[0] = "fc1.weight"


SPOILED: dict[Callable[[ModelProto], None], str] = {
    cycle: "gemm",
    missing_initializer: "fc1.weight",
    initializer_twice: "fc1.weight",
    value_twice: "fc1_out",
    attribute_of_another_type: "transB",
    unknown_attribute: "surprise",
    attribute_twice: "transB",
    too_many_inputs: "Relu",
    empty_input: "marked single",
    required_attribute_missing: "'to'",
    input_of_a_branch_missing: "nothing",
    tensor_computed_again: "fc1.weight",
    dims_that_overflow: "fc1.weight",
    negative_dims: "fc1.weight",
    fewer_values_than_dims: "fc1.weight",
    more_dims_than_arrays_have: "fc1.weight",
    four_bits_in_too_many_bytes: "fc1.weight",
    numbers_of_another_type: "fc1.weight",
    values_twice: "'fc1.weight'",
    values_of_an_integer_twice: "'shape'",
    segment: "'fc1.weight'",
    name_without_end: "400,000 characters",
    not_a_number: "fc1.weight",
    values_elsewhere: "fc1.weight",
    no_such_operator: "Sorcery",
    foreign_domain: "org.example",
    no_nodes: "no nodes",
    no_outputs: "no outputs",
    ancient: "opset 5",
    from_the_future: "2000",
    two_versions: "versions 17 and 9",
    initializers_of_an_old_file: "fc1.weight in initializer but not in graph input",
    empty: "no graph",
}


@pytest.mark.parametrize("spoil", SPOILED, ids=lambda f: f.__name__)
def test_import_rejects_a_bad_model_and_names_what_is_wrong(
    spoil: Callable[[ModelProto], None],
) -> None:
    model = mlp()
    spoil(model)
    error = get_import_error(model)
    text = " ".join([error.message, *getattr(error, "reasons", ())])
    assert SPOILED[spoil].lower() in text.lower()


@pytest.mark.parametrize(
    "op", ["ConstantOfShape", "Expand", "Tile", "Resize", "Pad", "Range", "OneHot", "MatMul"]
)
def test_import_rejects_a_tensor_of_unreasonable_size(op: str) -> None:
    g = Graph()
    huge = 1 << 32
    if op == "ConstantOfShape":
        y = g.add("ConstantOfShape", g.tensor("s", [huge], np.int64), name="big")
    elif op == "Expand":
        y = g.add("Expand", "x", g.tensor("s", [huge, 1, 6], np.int64), name="big")
    elif op == "Tile":
        y = g.add("Tile", "x", g.tensor("s", [huge, 1], np.int64), name="big")
    elif op == "Resize":
        y = g.add("Resize", "x", "", g.tensor("s", [1e5, 1e5]), name="big")
    elif op == "Pad":
        y = g.add("Pad", "x", g.tensor("s", [0, 0, huge, 0], np.int64), name="big")
    elif op == "Range":
        limits = [g.tensor(n, v, np.int64) for n, v in (("a", 0), ("b", huge), ("c", 1))]
        y = g.add("Cast", g.add("Range", *limits, name="big"), to=TensorProto.FLOAT)
    elif op == "OneHot":
        index = g.add("Cast", "x", to=TensorProto.INT64)
        y = g.add(
            "OneHot", index, g.tensor("d", huge, np.int64), g.tensor("v", [0.0, 1.0]), name="big"
        )
    else:
        long = g.add(
            "Reshape",
            g.add("Expand", "x", g.tensor("s", [1 << 17, 1, 6], np.int64)),
            g.tensor("r", [-1, 1], np.int64),
        )
        y = g.add("MatMul", long, g.add("Transpose", long), name="big")
    g.gemm("x", "fc", 6, 3)
    g.add("ReduceMax", y, outputs=["m"])
    model = g.model({"x": (2, 6)}, ["m", g.nodes[-2].output[0]])
    error = get_import_error(model)
    assert "big" in " ".join([error.message, *getattr(error, "reasons", ())])


def test_names_that_are_not_text_are_rejected(tmp_path) -> None:
    for model in (mlp(), with_function(weight_inside=False)):
        content = model.SerializeToString()
        for name in (
            b"Relu",
            b"MatMul",
            b"Transpose",
            b"fc1.weight",
            b"weight",
            b"logits",
            b"author",
        ):
            if name in content:
                (tmp_path / "model.onnx").write_bytes(content.replace(name, b"\xff" + name[1:]))
                with pytest.raises(InputError, match="UTF-8"):
                    read_model_file(tmp_path / "model.onnx")


def call(name: str, source: str = "a", target: str = "b") -> NodeProto:
    return helper.make_node(
        name, [source], [target], domain="local" if name.startswith("f") else ""
    )


def with_functions(bodies: dict[str, list[NodeProto]]) -> ModelProto:
    model = mlp()
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    for name, nodes in bodies.items():
        model.functions.append(helper.make_function("local", name, ["a"], ["b"], nodes, opsets))
    model.graph.node.append(call("f0", "x", "called"))
    model.opset_import.add(domain="local", version=1)
    return model


def grown(depth: int) -> ModelProto:
    """Each function calls the next one twice."""
    bodies = {
        f"f{i}": [call(f"f{i + 1}", "a", "c"), call(f"f{i + 1}", "c", "b")] for i in range(depth)
    }
    return with_functions({**bodies, f"f{depth}": [call("Relu")]})


def within_a_branch(name: str) -> NodeProto:
    output = helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)
    branch = helper.make_graph([call(name, "a", "inner")], "branch", [], [output])
    return helper.make_node("If", ["a"], ["b"], then_branch=branch, else_branch=branch)


@pytest.mark.parametrize(
    "bodies",
    [
        {"f0": [call("f0")]},
        {"f0": [call("f1")], "f1": [call("f0")]},
        {"f0": [within_a_branch("f0")]},
    ],
    ids=["itself", "in a circle", "in a branch"],
)
def test_function_that_calls_itself_is_rejected(bodies: dict[str, list[NodeProto]]) -> None:
    with pytest.raises(InputError, match=r"'f0'(?!.*\b100\b)"):
        validity._check_functions(with_functions(bodies))


def test_functions_that_multiply_are_rejected_by_nodes_and_by_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    validity._check_functions(grown(10))
    with pytest.raises(InputError, match="3,145,726 nodes"):
        validity._check_functions(grown(20))
    monkeypatch.setattr(validity, "MAX_INLINED_BYTES", 1000)
    with pytest.raises(InputError, match=r"\b3,070 nodes .* bytes"):
        validity._check_functions(grown(10))


def test_long_chain_of_calls_is_rejected() -> None:
    bodies = {f"f{i}": [call(f"f{i + 1}")] for i in range(150)}
    with pytest.raises(InputError, match=r"\b100\b"):
        validity._check_functions(with_functions({**bodies, "f150": [call("Relu")]}))


def test_outputs_declared_with_another_shape_are_rejected() -> None:
    model = mlp()
    validity.check_declared_types(OnnxModel.from_proto(model))
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 77
    with pytest.raises(InputError, match=r"\b77\b"):
        validity.check_declared_types(OnnxModel.from_proto(model))


@pytest.mark.parametrize("make", [conv_bn_classifier, fused_attention])
def test_models_that_onnxruntime_reads_pass_the_check_of_types(make) -> None:
    validity.check_declared_types(OnnxModel.from_proto(make()))


@pytest.mark.parametrize("pads", [20_000, 1_000_000])
def test_value_that_does_not_fit_into_memory_is_rejected_by_node(pads: int) -> None:
    g = Graph()
    y = g.conv("x", "wide", 3, 4, pads=[pads] * 4)
    g.add("ReduceMean", y, axes=[2, 3], outputs=["y"])
    error = get_import_error(g.model({"x": ("N", 3, "H", "W")}, ["y"]))
    assert "Conv 'wide'" in error.message
    assert "memory" in error.hint


def test_attribute_that_refers_to_a_function_is_rejected_outside_of_functions() -> None:
    model = mlp()
    attribute = model.graph.node[0].attribute.add(name="alpha", ref_attr_name="outer")
    attribute.type = onnx.AttributeProto.FLOAT
    error = get_import_error(model)
    assert "'alpha'" in error.message
