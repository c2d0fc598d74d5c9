"""What is refused, with every reason at once and the right exit code."""

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper

from ltp_pipeline.config import ModelSettings
from ltp_pipeline.errors import InputError, LtpError, UnsupportedModel
from ltp_pipeline.stages.import_model import read
from tests.support.imported import imported
from tests.support.models import Graph, conv_bn_classifier, mlp
from tests.unit.stages.test_import_model import branch, loop_body, with_function

NEVER = ModelSettings(simplify="never")


def refused(model: ModelProto) -> LtpError:
    with pytest.raises(LtpError) as caught:
        imported(model, settings=NEVER)
    assert caught.value.exit_code in (3, 4)
    assert "\n" not in caught.value.what
    return caught.value


def test_every_reason_is_listed_at_once() -> None:
    g = Graph()
    g.tensor("q", np.ones((4, 4)), np.int8)
    g.tensor("scale", 0.1)
    g.add("MatMul", "x", g.add("DequantizeLinear", "q", "scale", name="dq"), outputs=["h"])
    g.add("Add", "h", g.add("DequantizeLinear", "q", "scale", name="dq2"), outputs=["k"])
    g.add("Reshape", g.add("StringNormalizer", "text", name="words"), g.tensor("s", [-1], np.int64), outputs=["t"])
    total = g.add("ReduceSum", "k", keepdims=0)
    g.add("If", g.add("Greater", total, "scale"), name="decide", outputs=["y"], **branches())
    model = g.model({"x": (4, 4), "text": ("N",)}, ["y"], types={"text": TensorProto.STRING})
    error = refused(model)
    assert isinstance(error, UnsupportedModel)
    text = "\n".join(error.reasons)
    for part in ("'dq'", "'dq2'", "quantised", "'text' holds strings", "'decide'", "depends on the data", "'words'"):
        assert part in text


def branches() -> dict[str, onnx.GraphProto]:
    then, other = branch("t", "wt", 1), branch("e", "we", 2)
    for graph in (then, other):
        del graph.node[0].input[1:]
        graph.node[0].op_type = "Relu"
        del graph.initializer[:]
    return {"then_branch": then, "else_branch": other}


@pytest.mark.parametrize(
    "op", ["QLinearMatMul", "MatMulInteger", "ConvInteger", "QLinearConv", "DynamicQuantizeLinear"]
)
def test_quantised_operators(op: str) -> None:
    g = Graph()
    conv = op.endswith(("Conv", "ConvInteger")) and "Mat" not in op
    shape = (4, 4, 1, 1) if conv else (4, 4)
    scale, zero = g.tensor("scale", 0.1), g.tensor("zero", 0, np.uint8)
    weight = g.tensor("w", np.ones(shape), np.uint8)
    inputs: dict[str, list[str]] = {
        "QLinearMatMul": ["x", scale, zero, weight, scale, zero, scale, zero],
        "QLinearConv": ["x", scale, zero, weight, scale, zero, scale, zero],
        "MatMulInteger": ["x", weight],
        "ConvInteger": ["x", weight],
        "DynamicQuantizeLinear": ["x"],
    }
    dynamic = op.startswith("Dynamic")
    g.add(op, *inputs[op], name="node", outputs=["y", "s", "z"] if dynamic else ["y"])
    kind = TensorProto.FLOAT if dynamic else TensorProto.UINT8
    result = TensorProto.INT32 if op.endswith("Integer") else TensorProto.UINT8
    model = g.model({"x": (1, 4, 4, 4) if conv else (4, 4)}, ["y"], types={"x": kind, "y": result})
    error = refused(model)
    assert isinstance(error, UnsupportedModel)
    assert any("'node'" in r and "quantised" in r for r in error.reasons)


def test_a_loop_that_depends_on_the_data() -> None:
    g = Graph()
    g.random("w", 6, 6)
    count = g.add("Cast", g.add("ReduceMax", "x", keepdims=0), to=TensorProto.INT64)
    g.add("Loop", count, "", "x", name="again", outputs=["y"], body=loop_body())
    error = refused(g.model({"x": ("N", 6)}, ["y"]))
    assert "number of rounds depends on the data" in "".join(getattr(error, "reasons", ()))


def test_a_loop_that_depends_on_a_shape_is_fine() -> None:
    g = Graph()
    g.random("w", 6, 6)
    count = g.add("Gather", g.add("Shape", "x"), g.tensor("zero", 0, np.int64))
    g.add("Loop", count, g.tensor("true", True, np.bool_), "x", outputs=["y"], body=loop_body())
    assert imported(g.model({"x": ("N", 6)}, ["y"]), settings=NEVER).parity is not None


@pytest.mark.parametrize("count", [10**6, 2**62])
def test_a_loop_without_end(count: int) -> None:
    g = Graph()
    g.random("w", 6, 6)
    g.add("Loop", g.tensor("count", count, np.int64), "", "x", name="long", outputs=["y"], body=loop_body())
    assert "'long'" in str(getattr(refused(g.model({"x": ("N", 6)}, ["y"])), "reasons", ""))


def test_a_loop_with_nothing_to_stop_it() -> None:
    g = Graph()
    g.random("w", 6, 6)
    g.add("Loop", "", g.tensor("true", True, np.bool_), "x", name="endless", outputs=["y"], body=loop_body())
    assert "never ends" in str(getattr(refused(g.model({"x": ("N", 6)}, ["y"])), "reasons", ""))


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
    not_a_number: "fc1.weight",
    values_elsewhere: "fc1.weight",
    no_such_operator: "Sorcery",
    foreign_domain: "org.example",
    no_nodes: "no nodes",
    no_outputs: "no outputs",
    ancient: "opset 5",
    from_the_future: "2000",
    empty: "no graph",
}


@pytest.mark.parametrize("spoil", SPOILED, ids=lambda f: f.__name__)
def test_bad_models_are_refused_by_name(spoil: Callable[[ModelProto], None]) -> None:
    model = mlp()
    spoil(model)
    error = refused(model)
    said = " ".join([error.what, *getattr(error, "reasons", ())])
    assert SPOILED[spoil].lower() in said.lower()


@pytest.mark.parametrize("op", ["ConstantOfShape", "Expand", "Tile", "Resize", "Pad", "Range", "OneHot", "MatMul"])
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
        y = g.add("OneHot", index, g.tensor("d", huge, np.int64), g.tensor("v", [0.0, 1.0]), name="big")
    else:
        long = g.add(
            "Reshape", g.add("Expand", "x", g.tensor("s", [1 << 17, 1, 6], np.int64)), g.tensor("r", [-1, 1], np.int64)
        )
        y = g.add("MatMul", long, g.add("Transpose", long), name="big")
    g.gemm("x", "fc", 6, 3)
    g.add("ReduceMax", y, outputs=["m"])
    model = g.model({"x": (2, 6)}, ["m", g.nodes[-2].output[0]])
    error = refused(model)
    assert "big" in " ".join([error.what, *getattr(error, "reasons", ())])


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


def save_external(model: ModelProto, folder, location: str = "w.bin") -> None:
    onnx.save(model, folder / "model.onnx", save_as_external_data=True, location=location, size_threshold=64)


@pytest.mark.parametrize("where", ["../w.bin", "/etc/hostname", "missing.bin", "", "sub/../../w.bin", "C:\\w.bin"])
def test_external_data_outside_the_folder(tmp_path, where: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    save_external(mlp(), folder)
    (tmp_path / "w.bin").write_bytes((folder / "w.bin").read_bytes())
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = where
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(InputError, match=r"fc1\.weight"):
        read(folder / "model.onnx")


@pytest.mark.parametrize("inside", [True, False])
def test_external_data_behind_a_link(tmp_path, inside: bool) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    save_external(mlp(), folder)
    target = (folder if inside else tmp_path) / "real.bin"
    (folder / "w.bin").rename(target)
    (folder / "w.bin").symlink_to(target)
    with pytest.raises(InputError, match=r"fc1\.weight"):
        read(folder / "model.onnx")


def test_names_that_are_no_text(tmp_path) -> None:
    for model in (mlp(), with_function(weight_inside=False)):
        content = model.SerializeToString()
        for name in (b"Relu", b"MatMul", b"Transpose", b"fc1.weight", b"weight", b"logits", b"author"):
            if name in content:
                (tmp_path / "model.onnx").write_bytes(content.replace(name, b"\xff" + name[1:]))
                with pytest.raises(InputError, match="UTF-8"):
                    read(tmp_path / "model.onnx")


def test_files_that_are_no_models(tmp_path) -> None:
    whole = conv_bn_classifier().SerializeToString()
    for name, content in {"empty": b"", "jpeg": b"\xff\xd8\xff\xe0JFIF" * 50, "half": whole[: len(whole) // 2]}.items():
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(content)
        with pytest.raises(InputError, match=name):
            read(path)
    for path in (tmp_path / "missing.onnx", tmp_path):
        with pytest.raises(InputError):
            read(path)
