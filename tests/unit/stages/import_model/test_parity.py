"""When torch and onnxruntime count as computing the same: tiny outputs are no reason to refuse, wrong ones are."""

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
from tests.support.imported import NEVER, Imported, imported
from tests.support.models import Graph, conv_bn_classifier, run_onnxruntime


def detector(bias: float, swing: float = 1.0) -> ModelProto:
    """Two convolutions and an activation that is nearly off everywhere; its input swings around the bias."""
    g = Graph()
    h = g.add("Relu", g.conv("x", "conv1", 1, 8))
    g.random("conv2.weight", 1, 8, 3, 3, scale=swing / 6)
    g.tensor("conv2.bias", [bias])
    h = g.add(
        "Conv", h, "conv2.weight", "conv2.bias", name="conv2", kernel_shape=[3, 3], pads=[1] * 4
    )
    g.add("Sigmoid", h, outputs=("y",))
    return g.model({"x": ("N", 1, 8, 8)}, ["y"])


def faint() -> ModelProto:
    """A linear network in tiny units."""
    g = Graph()
    g.add("Mul", g.gemm("x", "fc", 6, 4), g.tensor("unit", 1e-8), outputs=("y",))
    return g.model({"x": ("N", 6)}, ["y"])


def dead() -> ModelProto:
    """No input of any scale brings its output to life: each row is divided by its own size."""
    g = Graph()
    h = g.conv(g.add("LpNormalization", "x", axis=-1, p=2), "conv", 1, 2)
    g.add("Sigmoid", g.add("Add", h, g.tensor("far", -40.0), name="shift"), outputs=("y",))
    return g.model({"x": ("N", 1, 8, 8)}, ["y"])


SMALL: dict[str, Callable[[], ModelProto]] = {
    "all below 1e-4": lambda: detector(-13),
    "all about 1e-8": lambda: detector(-17, 0.3),
    "linear, all about 1e-8": faint,
    "dead at every scale": dead,
}


def largest_output(model: ModelProto) -> float:
    shape = [d.dim_value or 2 for d in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    return float(np.abs(run_onnxruntime(model, {"x": x})[0]).max())


def doubts(network: Imported) -> list[str]:
    """Return the notes about outputs that were not compared."""
    return [note for note in network.notes if note.startswith("not compared")]


@pytest.mark.parametrize("kind", SMALL)
def test_a_network_with_tiny_outputs_is_imported(kind: str):
    model = SMALL[kind]()
    assert largest_output(model) < (1e-4 if "1e-4" in kind else 2e-7)
    assert not doubts(imported(model, settings=NEVER))


@pytest.mark.parametrize("factor", [1.05, -1.0])
@pytest.mark.parametrize("kind", SMALL)
def test_a_wrong_operator_is_refused_however_tiny_the_outputs(
    kind: str, factor: float, monkeypatch: pytest.MonkeyPatch
):
    model = SMALL[kind]()
    spoil(monkeypatch, "Gemm" if kind.startswith("linear") else "Conv", factor)
    with pytest.raises(UnsupportedModel, match="torch and onnxruntime disagree on"):
        imported(model, settings=NEVER)


def spoil(monkeypatch: pytest.MonkeyPatch, name: str, factor: float) -> None:
    """Have an operator compute something else."""

    def wrong(found: registry.OpImplementation) -> registry.OpImplementation:
        right = found.function
        return replace(found, function=lambda *a, **k: right(*a, **k) * factor)

    monkeypatch.setitem(
        registry._OPS, ("", name), [wrong(found) for found in registry._OPS["", name]]
    )


@pytest.mark.parametrize("bias", [-13, -17])
def test_a_wrong_activation_that_is_nearly_off_is_refused(
    bias: float, monkeypatch: pytest.MonkeyPatch
):
    """Only input of a larger scale switches it on."""
    spoil(monkeypatch, "Sigmoid", 1.001)
    with pytest.raises(UnsupportedModel, match=r"disagree on output 'y' .* times as large"):
        imported(detector(bias, 0.3), settings=NEVER)


def test_what_feeds_a_dead_output_is_named_when_it_is_wrong(monkeypatch: pytest.MonkeyPatch):
    spoil(monkeypatch, "Conv", 1.5)
    with pytest.raises(UnsupportedModel, match="which output 'y' is computed from"):
        imported(dead(), settings=NEVER)


def test_an_output_that_nothing_could_be_said_of_is_noted():
    g = Graph()
    g.add("MatMul", "x", g.tensor("zero", np.zeros((6, 4))), outputs=("y",))
    result = imported(g.model({"x": ("N", 6)}, ["y"]), settings=NEVER)
    assert result.parity is None
    assert "output 'y' is too small on every input tried" in result.notes[-1]


@pytest.mark.usefixtures("capped_relu")
def test_samples_are_compared_where_there_are_any():
    file = read_model_file(conv_bn_classifier())
    pixels = np.random.default_rng(0).uniform(0, 255, (2, 1, 8, 8)).astype(np.float32)
    assert import_model.run(file, PruneSettings(), settings=NEVER)[0].parity is not None
    assert import_model.run(file, PruneSettings(), {"x": pixels / 255}, NEVER)[0].parity is not None
    with pytest.raises(UnsupportedModel, match=r"disagree on output 'logits' .*\(samples\)"):
        import_model.run(file, PruneSettings(), {"x": pixels}, NEVER)


def test_rounding_that_onnxruntime_shows_by_itself_is_no_reason_to_refuse():
    """A norm takes a large bias away again: exact where the two are folded, rounded where they are not."""
    g = Graph()
    g.random("conv.weight", 4, 1, 3, 3)
    g.tensor("conv.bias", np.full(4, 3e4))
    h = g.add("Conv", "x", "conv.weight", "conv.bias", name="conv", kernel_shape=[3, 3])
    one, zero = g.tensor("one", np.ones(4)), g.tensor("zero", np.zeros(4))
    mean, variance = g.tensor("mean", np.full(4, 3e4)), g.tensor("variance", np.ones(4))
    g.add("BatchNormalization", h, one, zero, mean, variance, outputs=("y",))
    assert not doubts(imported(g.model({"x": ("N", 1, 8, 8)}, ["y"]), settings=NEVER))
