"""`quantize` of unusual models writes an accurate file, or fails and keeps all other files."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from ltp_pipeline.run_directory.names import MANIFEST
from ltp_pipeline.system.hashing import sha256_file
from tests.support.cli import invoke
from tests.support.models import Graph, as_model, conv_bn_classifier, mlp, random_inputs

ROWS = {"train": slice(0, 32), "val": slice(32, 40), "test": slice(40, 48)}


def ended(g: Graph, width: int = 6, **fields: int) -> ModelProto:
    g.nodes[-1].output[0] = "y"
    return g.model({"x": ("N", width)}, ["y"], types={"y": fields.get("type", TensorProto.FLOAT)})


def layers(g: Graph, x: str = "x") -> str:
    return g.gemm(g.add("Relu", g.gemm(x, "fc1", 6, 16)), "fc2", 16, 4)


def nothing_to_quantise() -> ModelProto:
    g = Graph()
    g.add("Relu", "x")
    return ended(g)


def of_type(data_type: int) -> ModelProto:
    model = mlp()
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor).astype(helper.tensor_dtype_to_np_dtype(data_type))
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = data_type
    return model


def mixed_precision() -> ModelProto:
    g = Graph()
    g.tensor("half", g.rng.standard_normal((6, 16)), np.float16)
    x = g.add("MatMul", g.add("Cast", "x", to=TensorProto.FLOAT16), "half")
    g.gemm(g.add("Relu", g.add("Cast", x, to=TensorProto.FLOAT)), "fc", 16, 4)
    return ended(g)


def casted(data_type: int) -> ModelProto:
    g = Graph()
    g.add("Cast", layers(g), to=data_type)
    return ended(g, type=data_type)


def only_labels() -> ModelProto:
    g = Graph()
    g.add("ArgMax", layers(g), axis=1, keepdims=0)
    return ended(g, type=TensorProto.INT64)


def with_maps() -> ModelProto:
    """As converters of scikit-learn end a classifier."""
    g = Graph()
    layers(g)
    g.nodes[-1].output[0] = "y"
    g.nodes.append(
        helper.make_node(
            "ZipMap", ["y"], ["maps"], domain="ai.onnx.ml", classlabels_int64s=[0, 1, 2, 3]
        )
    )
    number = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    kind = helper.make_sequence_type_proto(helper.make_map_type_proto(TensorProto.INT64, number))
    values = [
        helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4]),
        helper.make_value_info("maps", kind),
    ]
    arguments = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 6])]
    return as_model(
        helper.make_graph(g.nodes, "test", arguments, values, g.tensors),
        imports=[helper.make_opsetid("ai.onnx.ml", 1)],
    )


def of_opset(version: int) -> ModelProto:
    model = conv_bn_classifier()
    model.opset_import[0].version = version
    return model


def shared_weight() -> ModelProto:
    g = Graph()
    g.random("w", 6, 6)
    g.add("MatMul", g.add("Relu", g.add("Gemm", "x", "w")), "w")
    return ended(g)


def shared_the_other_way() -> ModelProto:
    g = Graph()
    g.random("w", 6, 6)
    g.add("MatMul", g.add("Relu", g.add("Gemm", "x", "w", transB=1)), "w")
    return ended(g)


def shared_bias() -> ModelProto:
    """Of two layers whose scales differ by far."""
    g = Graph()
    g.tensor("b", [5.0, -5, 3, 1, 0, 2])
    x = g.add("Relu", g.add("Gemm", "x", g.random("w", 6, 6, scale=3.0), "b"))
    g.add("Gemm", x, g.random("v", 6, 6, scale=0.01), "b")
    return ended(g)


def zeroed(*names: str, by: float = 0.0) -> ModelProto:
    model = conv_bn_classifier()
    for tensor in model.graph.initializer:
        if tensor.name in names:
            array = (numpy_helper.to_array(tensor) * by).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return model


def dead_activations() -> ModelProto:
    g = Graph()
    x = g.add("Relu", g.add("Sub", g.gemm("x", "fc1", 6, 8), g.tensor("much", 1e4)))
    g.gemm(x, "fc2", 8, 4)
    return ended(g)


def infinite(where: str) -> ModelProto:
    """A weight, or a part of the activations, that is not finite."""
    g = Graph()
    x = g.gemm("x", "fc1", 6, 8)
    if where == "activations":
        x = g.add(
            "Softmax", g.add("Add", x, g.tensor("mask", [0, 0, 0, 0, 0, 0, 0, -np.inf])), axis=-1
        )
    g.gemm(x, "fc2", 8, 4)
    model = ended(g)
    if where == "weight":
        weight = next(t for t in model.graph.initializer if t.name == "fc1.weight")
        array = numpy_helper.to_array(weight).copy()
        array[0, 0] = np.inf
        weight.CopyFrom(numpy_helper.from_array(array, weight.name))
    return model


def fake_quantised() -> ModelProto:
    g = Graph()
    g.tensor("step", 0.05)
    g.tensor("zero", 128, np.uint8)
    layers(
        g,
        g.add(
            "DequantizeLinear",
            g.add("QuantizeLinear", "x", "step", "zero", name="q"),
            "step",
            "zero",
        ),
    )
    return ended(g)


def in_four_bits() -> ModelProto:
    g = Graph()
    g.tensor("packed", g.rng.integers(0, 255, (16, 1, 16)), np.uint8)
    g.positive("scales", 16)
    sizes = {"K": 32, "N": 16, "bits": 4, "block_size": 32}
    node = helper.make_node(
        "MatMulNBits", ["x", "packed", "scales"], ["h"], "nb", domain="com.microsoft", **sizes
    )
    g.nodes.append(node)
    g.gemm("h", "fc", 16, 4)
    g.nodes[-1].output[0] = "y"
    values = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", s])
        for n, s in (("x", 32), ("y", 4))
    ]
    graph = helper.make_graph(g.nodes, "test", values[:1], values[1:], g.tensors)
    return as_model(graph, imports=[helper.make_opsetid("com.microsoft", 1)])


def behind_an_own_operator() -> ModelProto:
    """An activation whose type only onnxruntime knows."""
    g = Graph()
    x = g.gemm("x", "fc1", 6, 8)
    g.nodes.append(helper.make_node("Gelu", [x], ["h"], "gelu", domain="com.microsoft"))
    g.gemm("h", "fc2", 8, 4)
    g.nodes[-1].output[0] = "y"
    values = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", s])
        for n, s in (("x", 6), ("y", 4))
    ]
    graph = helper.make_graph(g.nodes, "test", values[:1], values[1:], g.tensors)
    return as_model(graph, imports=[helper.make_opsetid("com.microsoft", 1)])


def computed_bias() -> ModelProto:
    g = Graph()
    bias = g.add("Mul", g.random("b", 8), g.tensor("two", [2.0] * 8))
    x = g.add("Gemm", "x", g.random("w", 6, 8), bias, name="first")
    g.gemm(g.add("Relu", x), "fc", 8, 4)
    return ended(g)


RIGHT: dict[str, Callable[[], ModelProto]] = {
    "outputs in float64": lambda: casted(TensorProto.DOUBLE),
    "outputs in half precision": lambda: casted(TensorProto.FLOAT16),
    "an output of maps": with_maps,
    "a part in half precision": mixed_precision,
    "opset 7": lambda: of_opset(7),
    "opset 12": lambda: of_opset(12),
    "a weight of two layers": shared_weight,
    "a bias of two layers": shared_bias,
    "a Conv of zeros": lambda: zeroed("conv2.weight"),
    "zeros throughout": lambda: zeroed("conv1.weight", "conv2.weight", "fc.weight"),
    "weights too small for a scale": lambda: zeroed("conv2.weight", by=1e-42),
    "activations that are always zero": dead_activations,
    "infinite activations": lambda: infinite("activations"),
    "an operator of onnxruntime's own": behind_an_own_operator,
    "a bias that is computed": computed_bias,
}
REFUSED: dict[str, tuple[Callable[[], ModelProto], int, str]] = {
    "nothing to quantize": (nothing_to_quantise, 4, "no layer"),
    "half precision": (lambda: of_type(TensorProto.FLOAT16), 4, "'fc1.weight' has type FLOAT16"),
    "float64": (lambda: of_type(TensorProto.DOUBLE), 4, "'fc1.weight' has type DOUBLE"),
    "labels for outputs": (only_labels, 3, "no output of the model"),
    "a weight of two axes": (shared_the_other_way, 4, "'w' is read by nodes with different axes"),
    "an infinite weight": (
        lambda: infinite("weight"),
        4,
        "'fc2.weight' has activations that are not finite",
    ),
    "QuantizeLinear": (fake_quantised, 4, "QuantizeLinear 'q'"),
    "MatMulNBits": (in_four_bits, 4, "MatMulNBits 'nb'"),
}


def put(model: ModelProto, folder: Path) -> tuple[Path, Path]:
    """The model and random samples without labels."""
    x = random_inputs(model, batch=48, seed=5)["x"]
    onnx.save(model, folder / "model.onnx")
    np.savez(folder / "data.npz", **{f"x_{split}": x[rows] for split, rows in ROWS.items()})
    return folder / "model.onnx", folder / "data.npz"


def first_output(path: Path, feeds: dict[str, np.ndarray]) -> np.ndarray:
    """The first output in onnxruntime."""
    result = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(
        None, feeds
    )[0]
    return np.asarray(result)


@pytest.mark.parametrize("case_name", RIGHT)
def test_quantize_writes_accurate_file(
    case_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, data = put(RIGHT[case_name](), tmp_path)
    out = tmp_path / "int8.onnx"
    done = invoke(capsys, "quantize", model, "--data", data, "--out", out, "--quiet")
    assert done.code == 0, done.err
    x = {"x": np.load(data)["x_test"]}
    before, after = (first_output(path, x) for path in (model, out))
    near = np.abs(after - before) <= 0.05 * np.abs(before).max()
    assert near.mean() > 0.9  # one sample may lie outside the ranges of the 32 that were looked at
    onnx.checker.check_model(out)


@pytest.mark.parametrize("case_name", REFUSED)
def test_quantize_of_bad_model_fails_and_keeps_older_file(
    case_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make, code, expected = REFUSED[case_name]
    model, data = put(make(), tmp_path)
    (tmp_path / "int8.onnx").write_bytes(b"what was there before")
    result = invoke(
        capsys, "quantize", model, "--data", data, "--out", tmp_path / "int8.onnx", "--quiet"
    )
    assert result.code == code
    assert expected in result.err
    assert (tmp_path / "int8.onnx").read_bytes() == b"what was there before"


def test_quantize_with_constant_samples_succeeds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, data = put(mlp(), tmp_path)
    np.savez(data, **{f"x_{split}": np.full((16, 6), 0.5, np.float32) for split in ROWS})
    done = invoke(
        capsys, "quantize", model, "--data", data, "--out", tmp_path / "int8.onnx", "--quiet"
    )
    assert done.code == 0, done.err


def test_quantize_with_infinite_samples_names_sample(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, data = put(mlp(), tmp_path)
    x = np.load(data)["x_train"]
    x[3, 2] = np.inf
    np.savez(data, x_train=x, x_val=x[:2], x_test=x[:2])
    result = invoke(
        capsys, "quantize", model, "--data", data, "--out", tmp_path / "int8.onnx", "--quiet"
    )
    assert result.code == 3
    assert re.search(r"\binf\b.*\bsample 3\b", result.err)


def test_quantize_with_limit_in_percent_exits_with_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, data = put(mlp(), tmp_path)
    (tmp_path / "ltp.toml").write_text("[export]\nint8_max_drop = 5\n")
    result = invoke(
        capsys, "quantize", model, "--data", data, "--out", tmp_path / "int8.onnx", "--quiet"
    )
    assert result.code == 3
    assert "export.int8_max_drop" in result.err
    assert not (tmp_path / "int8.onnx").exists()


def hashes(run: Path) -> dict[Path, str]:
    """Of every file but the manifest, which counts the time that was spent."""
    return {
        path: sha256_file(path)
        for path in run.rglob("*")
        if path.is_file() and path.name != MANIFEST
    }


@pytest.mark.slow
def test_export_of_unquantizable_run_keeps_its_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make, code, expected = REFUSED["half precision"]
    model, data = put(make(), tmp_path)
    run = tmp_path / "run"
    options = (
        "--epochs",
        1,
        "--finetune-epochs",
        1,
        "--batch-size",
        16,
        "--target-compression",
        2,
        "--no-baseline",
    )
    done = invoke(capsys, "run", model, "--data", data, "--out", run, *options, "--quiet")
    assert done.code == 0, done.err
    before = hashes(run)
    result = invoke(capsys, "export", run, "--format", "int8", "--quiet")
    assert result.code == code
    assert expected in result.err
    assert hashes(run) == before
