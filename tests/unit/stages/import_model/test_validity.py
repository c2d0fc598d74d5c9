"""What is refused, with every reason at once and the right exit code."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper

from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.stages.import_model import validity
from ltp_pipeline.stages.import_model.read import read_model_file
from tests.support.imported import refused
from tests.support.models import Graph, mlp, with_function


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


def values_twice_of_no_weight(m: ModelProto) -> None:
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


SPOILED: dict[Callable[[ModelProto], None], str] = {
    cycle: "gemm",
    missing_initializer: "fc1.weight",
    initializer_twice: "fc1.weight",
    value_twice: "fc1_out",
    attribute_of_another_type: "transB",
    unknown_attribute: "surprise",
    dims_that_overflow: "fc1.weight",
    negative_dims: "fc1.weight",
    fewer_values_than_dims: "fc1.weight",
    more_dims_than_arrays_have: "fc1.weight",
    four_bits_in_too_many_bytes: "fc1.weight",
    numbers_of_another_type: "fc1.weight",
    values_twice: "'fc1.weight' holds its values twice",
    values_twice_of_no_weight: "'shape' holds its values twice",
    segment: "'fc1.weight' is a segment",
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
    initializers_of_an_old_file: "IR version 3",
    empty: "no graph",
}


@pytest.mark.parametrize("spoil", SPOILED, ids=lambda f: f.__name__)
def test_bad_models_are_refused_by_name(spoil: Callable[[ModelProto], None]) -> None:
    model = mlp()
    spoil(model)
    error = refused(model)
    said = " ".join([error.message, *getattr(error, "reasons", ())])
    assert SPOILED[spoil].lower() in said.lower()


def chain(nodes: int) -> ModelProto:
    """Relus one after the other, and an If whose branch reads the first value."""
    g = Graph()
    h = first = g.add("Relu", "x")
    for _ in range(nodes):
        h = g.add("Relu", h)
    branch = helper.make_graph(
        [helper.make_node("Neg", [first], ["b"])],
        "b",
        [],
        [helper.make_tensor_value_info("b", TensorProto.FLOAT, None)],
    )
    chosen = g.add("If", g.constant("yes", True, np.bool_), then_branch=branch, else_branch=branch)
    g.add("Add", g.add("Mul", h, g.tensor("two", 2.0)), chosen, outputs=("y",))
    return g.model({"x": ("N", 3)}, ["y"])


@pytest.mark.parametrize("at_a_time", [1, 2, 3, 100])
def test_a_model_is_valid_however_many_nodes_the_checker_is_shown(
    at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validity, "_AT_A_TIME", at_a_time)
    validity.check_validity(OnnxModel.from_proto(chain(5)))


@pytest.mark.parametrize("at_a_time", [1, 2, 3, 100])
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda nodes: nodes[4].input.__setitem__(0, "nothing"), "'nothing'"),
        (lambda nodes: nodes[4].output.__setitem__(0, nodes[1].output[0]), "SSA"),
        (lambda nodes: nodes[4].output.__setitem__(0, "two"), "SSA"),
        (lambda nodes: nodes[4].output.__setitem__(0, "x"), "SSA"),
        (lambda nodes: nodes[-1].output.__setitem__(0, "other"), "'y'"),
        (lambda nodes: nodes[4].attribute.append(helper.make_attribute("surprise", 1)), "surprise"),
    ],
    ids=["missing", "twice", "tensor", "input", "output", "attribute"],
)
def test_what_is_wrong_is_found_however_many_nodes_the_checker_is_shown(
    spoil: Callable[[Any], None], said: str, at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validity, "_AT_A_TIME", at_a_time)
    model = chain(5)
    spoil(model.graph.node)
    with pytest.raises(InputError, match=said):
        validity.check_validity(OnnxModel.from_proto(model))


@pytest.mark.parametrize(
    "op", ["ConstantOfShape", "Expand", "Tile", "Resize", "Pad", "Range", "OneHot", "MatMul"]
)
def test_sizes_beyond_reason(op: str) -> None:
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
    error = refused(model)
    assert "big" in " ".join([error.message, *getattr(error, "reasons", ())])


@pytest.mark.parametrize("depth", [1, 30])
def test_functions_that_call_themselves_or_explode(depth: int) -> None:
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    functions = []
    for i in range(depth):
        called = f"f{(i + 1) % depth}" if depth == 1 else f"f{i + 1}"
        last = depth > 1 and i == depth - 1
        domain, inner = ("", "Relu") if last else ("f", called)
        nodes = [
            helper.make_node(inner, ["x"], ["h"], domain=domain),
            helper.make_node(inner, ["h"], ["y"], domain=domain),
        ]
        functions.append(helper.make_function("f", f"f{i}", ["x"], ["y"], nodes, imports))
    model = mlp()
    model.functions.extend(functions)
    model.opset_import.append(imports[1])
    model.graph.node[1].op_type, model.graph.node[1].domain = "f0", "f"
    assert isinstance(refused(model), InputError)


def test_names_that_are_no_text(tmp_path) -> None:
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
