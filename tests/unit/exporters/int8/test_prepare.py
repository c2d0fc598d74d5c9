"""Graphs are prepared for onnxruntime's quantization tool."""

import numpy as np
import pytest
from onnx import ModelProto

from ltp_pipeline.exporters.int8.names import TOOL_SUFFIXES
from ltp_pipeline.exporters.int8.prepare import prepare_graph, transpose_weights
from ltp_pipeline.graph.model import OnnxModel
from tests.support.models import Graph, prune, random_inputs, run_onnxruntime
from tests.support.quantized import kernels_of, make_calibration, quantize_model
from tests.support.sequence_models import add_norm

pytestmark = pytest.mark.usefixtures("quickly")


def made_ready(model: ModelProto) -> ModelProto:
    return prepare_graph(OnnxModel.from_proto(model), kernels_of(model))[0].to_proto()


def chain(between: str = "between", node: str = "second", offset: str = "offset") -> ModelProto:
    """Two products with a sum between them; what is not a kernel has the names given."""
    g = Graph()
    g.add("MatMul", "x", g.random("w", 6, 8), name="first", outputs=("a",))
    g.add("Add", "a", g.random(offset, 8), outputs=(between,))
    g.add("MatMul", between, g.random("v", 8, 4), name=node, outputs=("y",))
    return g.model({"x": ("N", 6)}, ["y"])


def nearly(model: ModelProto, built: ModelProto) -> bool:
    feeds = random_inputs(model, batch=16, seed=3)
    before, after = (run_onnxruntime(m, feeds)[0] for m in (model, built))
    return bool(np.abs(before - after).max() <= 0.05 * np.abs(before).max())


@pytest.mark.parametrize("end", TOOL_SUFFIXES)
def test_prepare_graph_renames_conflicts_with_tool(end: str) -> None:
    model = chain(between=f"a{end}", node=f"x{end}", offset=f"w{end}")
    built = quantize_model(model)
    assert built.quantization is not None
    assert built.quantization.num_layers == 2
    assert nearly(model, built.model.to_proto())


def test_prepare_graph_keeps_other_names() -> None:
    model = chain()
    assert made_ready(model).graph == model.graph


def test_prepare_graph_keeps_conflicting_weight_name() -> None:
    g = Graph()
    g.add(
        "MatMul",
        g.add("Relu", g.add("MatMul", "x", g.random("w", 6, 8))),
        g.random("w_quantized", 8, 4),
    )
    g.nodes[-1].output[0] = "y"
    model = g.model({"x": ("N", 6)}, ["y"])
    built = quantize_model(model)
    assert built.quantization is not None
    assert list(built.quantization.float_layers) == ["w"]
    assert "w_quantized" in built.quantization.float_layers["w"]
    assert nearly(model, built.model.to_proto())


@pytest.mark.parametrize(
    ("shape", "is_row"), [((1, 8), True), ((8,), True), ((), False), ((1,), False), ((1, 1), False)]
)
def test_prepare_graph_flattens_bias_of_one_row(shape: tuple[int, ...], is_row: bool) -> None:
    g = Graph()
    first = g.add(
        "Gemm", "x", g.random("w", 6, 8), g.tensor("c", g.rng.standard_normal(shape)), name="first"
    )
    g.gemm(g.add("Relu", first), "fc", 8, 4)
    g.nodes[-1].output[0] = "y"
    model = g.model({"x": ("N", 6)}, ["y"])
    built = quantize_model(model)
    assert built.quantization is not None
    assert list(built.quantization.float_layers) == ([] if is_row else ["w"])
    assert is_row or "Gemm 'first'" in built.quantization.float_layers["w"]
    assert nearly(model, built.model.to_proto())


def test_prepare_graph_keeps_bias_with_other_readers() -> None:
    g = Graph()
    g.add("Gemm", "x", g.random("w", 6, 8), g.random("c", 1, 8), outputs=("h",))
    g.add("Add", "h", "c", outputs=("y",))
    model = g.model({"x": ("N", 6)}, ["y"])
    assert made_ready(model).graph == model.graph


def behind(g: Graph, x: str, name: str, inputs: int, outputs: int, op: str = "MatMul") -> str:
    """A product whose weight has a row for each output."""
    return g.add(op, x, g.add("Transpose", g.random(name, outputs, inputs), perm=[1, 0]))


def network(op: str = "MatMul", with_norm: bool = False) -> ModelProto:
    g = Graph()
    x = g.add("Relu", behind(g, "x", "w", 6, 8, op))
    x = add_norm(g, x, "norm") if with_norm else x
    behind(g, x, "v", 8, 4, op)
    g.nodes[-1].output[0] = "y"
    return prune(g.model({"x": ("N", 6)}, ["y"]), 0.3)


@pytest.mark.parametrize("op", ["MatMul", "Gemm"])
@pytest.mark.parametrize("is_dynamic", [False, True])
def test_transposed_weights_are_quantized_in_their_shape(op: str, is_dynamic: bool) -> None:
    model = network(op, is_dynamic)
    built = quantize_model(model, make_calibration(model, value=0.9))
    assert built.quantization is not None
    assert (built.quantization.method == "dynamic") is is_dynamic
    assert built.weight_names == ("w_quantized", "v_quantized")
    for name in ("w", "v"):
        before, after = (
            OnnxModel.from_proto(model).get_array(name),
            built.weights[f"{name}_quantized"],
        )
        assert after.shape == before.shape
        assert not after[before == 0].any()
        assert np.array_equal(np.sign(after)[after != 0], np.sign(before)[after != 0])
    feeds = random_inputs(model, batch=16, seed=3)
    plain, int8 = (run_onnxruntime(m, feeds)[0] for m in (model, built.model.to_proto()))
    assert np.abs(plain - int8).max() <= 0.05 * np.abs(plain).max()


def test_transposed_weight_in_float_is_unchanged() -> None:
    model = network()
    built = quantize_model(model, make_calibration(model, int8_trials=4, int8_max_drop=0.0))
    assert built.quantization is not None
    for name in built.quantization.float_layers:
        assert np.array_equal(built.weights[name], OnnxModel.from_proto(model).get_array(name))


@pytest.mark.parametrize("other", ["Gather", "output", "Add", "perm"])
def test_transpose_weights_skips_weights_with_other_readers(other: str) -> None:
    g = Graph()
    g.random("w", 6, 6)
    t = g.add("Transpose", "w", perm=[0, 1] if other == "perm" else [1, 0], name="t")
    y = g.add("MatMul", "x", t)
    if other == "Gather":
        y = g.add("Add", y, g.add("Gather", "w", g.tensor("row", 2, np.int64)))
    if other == "Add":
        y = g.add("Add", y, g.add("ReduceMax", t, keepdims=0))
    g.nodes[-1].output[0] = "y"
    model = OnnxModel.from_proto(g.model({"x": ("N", 6)}, ["y", t] if other == "output" else ["y"]))
    assert transpose_weights(model, ["w"]) == (model, frozenset())
