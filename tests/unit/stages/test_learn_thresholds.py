"""The stage that learns thresholds."""

from contextlib import nullcontext

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
