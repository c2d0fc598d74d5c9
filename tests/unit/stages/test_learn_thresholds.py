"""The stage that learns thresholds."""

from contextlib import nullcontext
from dataclasses import replace

import pytest

from ltp_pipeline.errors import InputError, TrainingFailed
from ltp_pipeline.results.schema_parts import LearnedEntry
from ltp_pipeline.settings.schema import Settings
from ltp_pipeline.stages import learn_thresholds
from ltp_pipeline.stages.learn_thresholds.budget_mode import SolvedLambdaPruning
from ltp_pipeline.stages.learn_thresholds.fixed_masks import FixedMaskPruning
from ltp_pipeline.stages.learn_thresholds.paper_mode import FixedLambdaPruning
from ltp_pipeline.stages.prune import count_nonzeros
from ltp_pipeline.stages.train.context import RunContext
from ltp_pipeline.stages.weight_costs import WeightCosts, count_multiply_add_costs
from ltp_pipeline.system.arrays import StateDict


@pytest.mark.parametrize(("pruned", "fails"), [(0.99, True), (1.0, True), (1.0004, False)])
def test_run_without_pruning_raises_training_failed(
    started: tuple[RunContext, StateDict],
    monkeypatch: pytest.MonkeyPatch,
    pruned: float,
    fails: bool,
):
    """A small share of a large network may be all that was to be pruned; zeros of the original do not count."""
    context, state = started
    state["stem.weight"][::2] = 0
    nonzeros = sum(count_nonzeros(context.network, state).values())
    before = sum(k.elements for k in context.network.layer_weights) / nonzeros
    entry = LearnedEntry(
        entry=1,
        epoch=1,
        compression=before * pruned,
        accuracy=0.9,
        file="trail/001.onnx",
        thresholds={},
        temperatures={},
    )
    monkeypatch.setattr(learn_thresholds, "train", lambda *_, **__: None)
    monkeypatch.setattr(learn_thresholds.trail, "read_entries", lambda _: [entry])
    with pytest.raises(TrainingFailed) if fails else nullcontext():
        assert learn_thresholds.run(context, state, 0.9).trail == (entry,)


def test_make_pruning_method_has_the_momentum_of_the_optimizer(
    started: tuple[RunContext, StateDict],
):
    context, state = started
    settings = Settings.model_validate({"method": {"lambda": 1e-6}, "train": {"momentum": 0.7}})
    method = learn_thresholds.make_pruning_method(context.network, state, settings)
    assert isinstance(method, FixedLambdaPruning)
    assert method.momentum == 0.7


@pytest.mark.parametrize(
    ("optimizer", "gradient", "refused"),
    [("adamw", "clamped", True), ("adamw", "approximate", False), (None, "clamped", False)],
)
def test_make_pruning_method_clamped_with_adamw_raises(
    started: tuple[RunContext, StateDict], optimizer: str | None, gradient: str, refused: bool
):
    context, state = started
    sections = {
        "method": {"lambda": 1e-6, "weight_gradient": gradient},
        "train": {"optimizer": optimizer},
    }
    with (
        pytest.raises(InputError, match=r"method\.weight_gradient.*AdamW")
        if refused
        else nullcontext()
    ):
        learn_thresholds.make_pruning_method(
            context.network, state, Settings.model_validate(sections)
        )


def test_search_stops_at_the_minimum_counts(started: tuple[RunContext, StateDict]):
    context, state = started
    sections = {
        "method": {"min_layer_density": 0.25, "min_layer_weights": 1},
        "budget": {"accuracy_budget": 0.02},
    }
    method = learn_thresholds.make_pruning_method(
        context.network, state, Settings.model_validate(sections)
    )
    assert isinstance(method, SolvedLambdaPruning)
    assert method.schedule.last == sum(method.lowest.values())


def test_make_pruning_method_uses_the_blocks_of_the_network(started: tuple[RunContext, StateDict]):
    context, state = started
    sections = {"method": {"block": "4x1"}, "budget": {"target_compression": 20}}
    method = learn_thresholds.make_pruning_method(
        context.network, state, Settings.model_validate(sections)
    )
    assert isinstance(method, SolvedLambdaPruning)
    assert method.axes == {
        k.name: 0 for k in context.network.layer_weights if k.name != "classifier.weight"
    }
    assert all(method.lowest[name] % 4 == 0 for name in method.axes)
    held = learn_thresholds.make_pruning_method(
        context.network, state, Settings.model_validate(sections), aggressiveness=0.0
    )
    assert isinstance(held, FixedMaskPruning)
    stem = held.masks["stem.weight"].view(4, 4, -1)
    assert stem.all(1).equal(stem.any(1))


USES = {"stem.weight": 64, "block1": 64, "block2": 16, "block3": 4, "classifier.weight": 1}


def uses_by_shape(context: RunContext) -> dict[str, int]:
    """Return the uses that follow from the sizes of the example: 8×8 pixels, halved twice."""
    return {
        layer.name: next(count for prefix, count in USES.items() if layer.name.startswith(prefix))
        for layer in context.network.layer_weights
    }


def costs_of(context: RunContext, uses: dict[str, int]) -> WeightCosts:
    return count_multiply_add_costs(context.network.layer_weights, uses, 0.1)


@pytest.mark.parametrize("aggressiveness", [0.0, 1.0])
@pytest.mark.parametrize("block", [None, "4x1"])
def test_target_macs_ends_at_this_fraction_of_the_multiply_adds(
    started: tuple[RunContext, StateDict], aggressiveness: float, block: str | None
):
    context, state = started
    uses = uses_by_shape(context)
    settings = Settings.model_validate({"budget": {"target_macs": 0.1}, "method": {"block": block}})
    method = learn_thresholds.make_pruning_method(
        context.network, state, settings, aggressiveness, costs_of(context, uses)
    )
    pruned = method.pruned_weights(1.0)
    total = sum(uses[layer.name] * layer.elements for layer in context.network.layer_weights)
    left = sum(uses[name] * int(w.count_nonzero()) for name, w in pruned.items())
    assert 0.098 <= left / total <= 0.1
    stem = pruned["stem.weight"] != 0
    if block:
        in_blocks = stem.view(4, 4, -1)
        assert in_blocks.all(1).equal(in_blocks.any(1))


def test_target_macs_begins_with_thresholds_in_proportion_to_uses(
    started: tuple[RunContext, StateDict],
):
    context, state = started
    settings = Settings.model_validate({"budget": {"target_macs": 0.1}})
    method = learn_thresholds.make_pruning_method(
        context.network,
        state,
        settings,
        weight_costs=costs_of(context, uses_by_shape(context)),
    )
    tau = dict(zip(method.layer_weights, method.tau.tolist(), strict=True))
    ratio = tau["block1.conv1.weight"] / tau["block3.conv1.weight"]
    assert ratio == pytest.approx(64 / 4, rel=1e-4)


def test_target_macs_counts_layers_that_are_excluded(started: tuple[RunContext, StateDict]):
    context, state = started
    layers = [
        replace(layer, reason="excluded") if layer.name.startswith("stem") else layer
        for layer in context.network.layer_weights
    ]
    network = replace(context.network, layer_weights=tuple(layers))
    uses = uses_by_shape(context)
    settings = Settings.model_validate({"budget": {"target_macs": 0.1}})
    method = learn_thresholds.make_pruning_method(
        network, state, settings, weight_costs=count_multiply_add_costs(layers, uses, 0.1)
    )
    pruned = {**state, **method.pruned_weights(1.0)}
    total = sum(uses[layer.name] * layer.elements for layer in layers)
    left = sum(uses[layer.name] * int(pruned[layer.name].count_nonzero()) for layer in layers)
    assert "stem.weight" not in method.layer_weights
    assert 0.098 <= left / total <= 0.1


def test_target_macs_without_the_uses_of_a_layer_is_rejected(
    started: tuple[RunContext, StateDict],
):
    context, _ = started
    uses = uses_by_shape(context)
    del uses["stem.weight"]
    with pytest.raises(InputError, match=r"'stem\.weight' cannot be counted"):
        costs_of(context, uses)
