"""Layer weights behind a Transpose are quantized and stored in their own shape."""

import numpy as np
import pytest
from onnx import ModelProto

from ltp_pipeline.exporters.int8.transposed import transpose_weights
from ltp_pipeline.graph.model import OnnxModel
from tests.support.models import Graph, prune, random_inputs, run_onnxruntime
from tests.support.quantized import calibration, quantised
from tests.support.sequence_models import norm

pytestmark = pytest.mark.usefixtures("quickly")


def behind(g: Graph, x: str, name: str, inputs: int, outputs: int, op: str = "MatMul") -> str:
    """A product whose weight has a row for each output."""
    return g.add(op, x, g.add("Transpose", g.random(name, outputs, inputs), perm=[1, 0]))


def network(op: str = "MatMul", with_norm: bool = False) -> ModelProto:
    g = Graph()
    x = g.add("Relu", behind(g, "x", "w", 6, 8, op))
    x = norm(g, x, "norm") if with_norm else x
    behind(g, x, "v", 8, 4, op)
    g.nodes[-1].output[0] = "y"
    return prune(g.model({"x": ("N", 6)}, ["y"]), 0.3)


@pytest.mark.parametrize("op", ["MatMul", "Gemm"])
@pytest.mark.parametrize("is_dynamic", [False, True])
def test_transposed_weights_are_quantized_in_their_shape(op: str, is_dynamic: bool) -> None:
    model = network(op, is_dynamic)
    built = quantised(model, calibration(model, value=0.9))
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
    built = quantised(model, calibration(model, int8_trials=4, int8_max_drop=0.0))
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
