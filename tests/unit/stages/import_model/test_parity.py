"""Comparison of torch with onnxruntime, also of tiny outputs."""

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from onnx import ModelProto

from ltp_pipeline.errors import UnsupportedModel
from ltp_pipeline.settings.schema import PruneSettings
from ltp_pipeline.stages import import_model
from ltp_pipeline.stages.import_model import registry
from ltp_pipeline.stages.import_model.read import read_model_file
from tests.support.imported import NEVER, Imported, import_network
from tests.support.models import Graph, conv_bn_classifier, run_onnxruntime


def detector(bias: float, swing: float = 1.0) -> ModelProto:
    """Return two convolutions and a Sigmoid that is nearly 0 everywhere."""
    g = Graph()
    h = g.add("Relu", g.conv("x", "conv1", 1, 8))
    g.random("conv2.weight", 1, 8, 3, 3, scale=swing / 6)
    g.tensor("conv2.bias", [bias])
    h = g.add(
        "Conv", h, "conv2.weight", "conv2.bias", name="conv2", kernel_shape=[3, 3], pads=[1] * 4
    )
    g.add("Sigmoid", h, outputs=("y",))
    return g.model({"x": ("N", 1, 8, 8)}, ["y"])


def linear_in_tiny_units() -> ModelProto:
    """Return a linear network whose outputs are about 1e-8."""
    g = Graph()
    g.add("Mul", g.gemm("x", "fc", 6, 4), g.tensor("unit", 1e-8), outputs=("y",))
    return g.model({"x": ("N", 6)}, ["y"])


def saturated() -> ModelProto:
    """Return a network whose outputs stay tiny: each input row is divided by its own norm."""
    g = Graph()
    h = g.conv(g.add("LpNormalization", "x", axis=-1, p=2), "conv", 1, 2)
    g.add("Sigmoid", g.add("Add", h, g.tensor("far", -40.0), name="shift"), outputs=("y",))
    return g.model({"x": ("N", 1, 8, 8)}, ["y"])


SMALL: dict[str, Callable[[], ModelProto]] = {
    "all below 1e-4": lambda: detector(-13),
    "all about 1e-8": lambda: detector(-17, 0.3),
    "linear, all about 1e-8": linear_in_tiny_units,
    "saturated at every scale": saturated,
}


def largest_output(model: ModelProto) -> float:
    shape = [d.dim_value or 2 for d in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    return float(np.abs(run_onnxruntime(model, {"x": x})[0]).max())


def comparison_notes(network: Imported) -> list[str]:
    """Return the notes about outputs that were not compared."""
    return [note for note in network.notes if note.startswith("not compared")]


@pytest.mark.parametrize("kind", SMALL)
def test_network_with_tiny_outputs_is_imported(kind: str):
    model = SMALL[kind]()
    assert largest_output(model) < (1e-4 if "1e-4" in kind else 2e-7)
    assert not comparison_notes(import_network(model, settings=NEVER))


@pytest.mark.parametrize("factor", [1.05, -1.0])
@pytest.mark.parametrize("kind", SMALL)
def test_incorrect_operator_is_rejected_with_tiny_outputs(
    kind: str, factor: float, monkeypatch: pytest.MonkeyPatch
):
    model = SMALL[kind]()
    break_operator(monkeypatch, "Gemm" if kind.startswith("linear") else "Conv", factor)
    with pytest.raises(UnsupportedModel, match=r"torch .*onnxruntime .*output 'y'"):
        import_network(model, settings=NEVER)


def break_operator(monkeypatch: pytest.MonkeyPatch, name: str, factor: float) -> None:
    """Multiply the results of an operator by a factor."""

    def multiply(op: registry.OpImplementation) -> registry.OpImplementation:
        return replace(op, function=lambda *a, **k: op.function(*a, **k) * factor)

    monkeypatch.setitem(registry._OPS, ("", name), [multiply(op) for op in registry._OPS["", name]])


@pytest.mark.parametrize("bias", [-13, -17])
def test_incorrect_activation_near_zero_is_rejected(bias: float, monkeypatch: pytest.MonkeyPatch):
    """Only inputs of a larger scale switch it on."""
    break_operator(monkeypatch, "Sigmoid", 1.001)
    with pytest.raises(UnsupportedModel, match=r"output 'y' .*\btimes\b"):
        import_network(detector(bias, 0.3), settings=NEVER)


def test_incorrect_source_of_a_saturated_output_is_named(monkeypatch: pytest.MonkeyPatch):
    break_operator(monkeypatch, "Conv", 1.5)
    with pytest.raises(UnsupportedModel) as caught:
        import_network(saturated(), settings=NEVER)
    assert re.search(r"value 'shift_out'.*output 'y'", caught.value.message)


def test_output_that_could_not_be_compared_is_noted():
    g = Graph()
    g.add("MatMul", "x", g.tensor("zero", np.zeros((6, 4))), outputs=("y",))
    result = import_network(g.model({"x": ("N", 6)}, ["y"]), settings=NEVER)
    assert result.parity is None
    assert "'y'" in comparison_notes(result)[0]


@pytest.mark.usefixtures("capped_relu")
def test_outputs_are_compared_on_samples():
    file = read_model_file(conv_bn_classifier())
    pixels = np.random.default_rng(0).uniform(0, 255, (2, 1, 8, 8)).astype(np.float32)
    assert import_model.run(file, PruneSettings(), settings=NEVER)[0].parity is not None
    assert import_model.run(file, PruneSettings(), {"x": pixels / 255}, NEVER)[0].parity is not None
    with pytest.raises(UnsupportedModel, match=r"output 'logits' .*\(samples\)"):
        import_model.run(file, PruneSettings(), {"x": pixels}, NEVER)


def test_rounding_noise_of_onnxruntime_is_accepted():
    """A BatchNormalization removes a large bias: exact if both are folded, else rounded."""
    g = Graph()
    g.random("conv.weight", 4, 1, 3, 3)
    g.tensor("conv.bias", np.full(4, 3e4))
    h = g.add("Conv", "x", "conv.weight", "conv.bias", name="conv", kernel_shape=[3, 3])
    one, zero = g.tensor("one", np.ones(4)), g.tensor("zero", np.zeros(4))
    mean, variance = g.tensor("mean", np.full(4, 3e4)), g.tensor("variance", np.ones(4))
    g.add("BatchNormalization", h, one, zero, mean, variance, outputs=("y",))
    assert not comparison_notes(
        import_network(g.model({"x": ("N", 1, 8, 8)}, ["y"]), settings=NEVER)
    )
