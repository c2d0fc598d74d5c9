"""Values that rules choose for settings left open."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.layer_weights import LayerWeight
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.run_directory.run_directory import RunDirectory
from ltp_pipeline.settings.schema import Settings
from ltp_pipeline.stages.prepare import defaults
from ltp_pipeline.stages.train.context import ResolvedDefaults, RunContext
from ltp_pipeline.stages.weight_costs import count_multiply_add_costs
from ltp_pipeline.tasks.classification import ClassificationTask
from ltp_pipeline.tasks.distillation import DistillationTask
from ltp_pipeline.tasks.protocol import TaskOutput
from tests.support.models import mlp
from tests.support.samples import split_of

ORIGINAL = {"w": torch.ones(10, 10)}
ACCURATE = 0.96


def context(
    tmp_path, compression: float | None = 5, labels: bool = True, **settings: Any
) -> RunContext:
    run_directory = RunDirectory(tmp_path / "run")
    run_directory.begin_run({})
    network: Any = SimpleNamespace(
        layer_weights=(LayerWeight("w", "Gemm", (10, 10)),),
        file=SimpleNamespace(model=OnnxModel.from_proto(mlp())),
    )
    val = split_of(np.zeros((200, 1)), np.arange(200) % 4 if labels else None, "val")
    data: Any = SimpleNamespace(train=range(512), val=val)
    budget = {"target_compression": compression} if compression else {}
    output = TaskOutput(0, "scores", "scores")
    task: Any = ClassificationTask(output, num_classes=4) if labels else DistillationTask((output,))
    given = Settings.model_validate({"budget": budget, **settings})
    return RunContext(network, task, data, given, run_directory, torch.device("cpu"))


@pytest.fixture
def cut(monkeypatch):
    """Say how accurate the network is, cut to size."""
    return lambda value: monkeypatch.setattr(defaults.baseline, "probe_accuracy", lambda *_: value)


@pytest.mark.parametrize(
    ("compression", "left", "expected"), [(5, 0.96, 0.0), (5, 0.61, 0.8), (14.9, 0.25, 1.0)]
)
def test_aggressiveness_follows_from_the_accuracy_lost_in_one_shot(
    tmp_path, cut, compression, left, expected
):
    cut(left)
    started = context(tmp_path, compression)
    result = defaults.resolve_defaults(started, ORIGINAL, ACCURATE).resolved.aggressiveness
    assert result == pytest.approx(expected, abs=0.02)
    assert started.run_directory.manifest.rules["aggressiveness"] == result


def test_aggressiveness_from_compression_15_is_1_without_a_measurement(tmp_path, cut):
    cut(None)
    assert (
        defaults.resolve_defaults(context(tmp_path, 15), ORIGINAL, ACCURATE).resolved.aggressiveness
        == 1.0
    )


def test_distillation_of_an_inaccurate_original_makes_aggressiveness_1(tmp_path, cut):
    cut(0.9)
    result = defaults.resolve_defaults(context(tmp_path), ORIGINAL, 0.9)
    assert isinstance(result.task, ClassificationTask)
    assert result.task.distillation_weight == 0.5
    assert result.resolved == ResolvedDefaults(distillation_weight=0.5, aggressiveness=1.0)
    assert result.teacher is ORIGINAL


@pytest.mark.parametrize("accuracy", [ACCURATE, 0.26], ids=["nearly always right", "guesses"])
def test_distillation_weight_of_accurate_or_guessing_original_is_0(tmp_path, cut, accuracy):
    cut(0.25)
    result = defaults.resolve_defaults(context(tmp_path), ORIGINAL, accuracy)
    assert (result.resolved.distillation_weight, result.teacher) == (0.0, None)


def test_distillation_weight_of_the_user_is_kept(tmp_path, cut):
    cut(0.9)
    assert (
        defaults.resolve_defaults(
            context(tmp_path, train={"distillation_weight": 0.2}), ORIGINAL, 0.9
        ).resolved.distillation_weight
        == 0.2
    )
    assert (
        defaults.resolve_defaults(
            context(tmp_path, train={"distillation_weight": 0.0}), ORIGINAL, 0.9
        ).teacher
        is None
    )


def test_distillation_in_paper_mode_is_off(tmp_path):
    result = defaults.resolve_defaults(
        context(tmp_path, None, method={"lambda": 1e-6}), ORIGINAL, 0.9
    )
    assert result.teacher is None


@pytest.mark.parametrize(
    ("given", "lr"), [({}, 0.03), ({"lr": 0.5}, 0.5), ({"optimizer": "adamw"}, 1e-4)]
)
def test_resolved_settings_contain_what_the_user_left_open(tmp_path, cut, given, lr):
    cut(0.9)
    asked = context(tmp_path, train=given)
    result = defaults.resolve_defaults(asked, ORIGINAL, 0.9)
    assert result.settings == asked.settings
    train = result.resolved_settings["train"]
    assert not given.keys() & train.keys()
    used = {**train, **given}
    assert (used["optimizer"], used["lr"]) == (given.get("optimizer", "sgd"), lr)
    assert None not in used.values()


@pytest.mark.parametrize("accuracy", [0.9, ACCURATE], ids=["taught", "by labels alone"])
def test_label_smoothing_is_that_of_the_settings(tmp_path, cut, accuracy):
    cut(0.25)
    result = defaults.resolve_defaults(
        context(tmp_path, train={"label_smoothing": 0.1}), ORIGINAL, accuracy
    ).task
    assert isinstance(result, ClassificationTask)
    assert result.label_smoothing == 0.1


def test_resolve_defaults_without_labels_keeps_the_task(tmp_path):
    started = context(tmp_path, labels=False)
    assert defaults.resolve_defaults(started, ORIGINAL, 1.0).task is started.task


def test_resolve_defaults_of_a_resumed_run_keeps_its_values(tmp_path, cut):
    cut(0.9)
    began = defaults.resolve_defaults(context(tmp_path), ORIGINAL, 0.9)
    again = defaults.resolve_defaults(
        replace(context(tmp_path / "other"), run_directory=began.run_directory), ORIGINAL, ACCURATE
    )
    assert again.resolved == ResolvedDefaults(distillation_weight=0.5, aggressiveness=1.0)


def test_load_defaults_of_a_run_returns_its_values(tmp_path, cut):
    cut(0.9)
    run = defaults.resolve_defaults(context(tmp_path), ORIGINAL, 0.9).run_directory
    result = defaults.load_defaults(context(tmp_path / "pick"), ORIGINAL, run)
    assert result.resolved == ResolvedDefaults(distillation_weight=0.5, aggressiveness=1.0)
    assert result.teacher is ORIGINAL


def by_error(started: RunContext) -> RunContext:
    """The context with a metric that is no share."""
    task: Any = SimpleNamespace(
        metric=Metric("MAE", "°C", higher_is_better=False, is_fraction=False),
        is_distilled=True,
        has_unbounded_gradient=True,
        chance_level=lambda _: None,
    )
    return replace(started, task=task)


def test_default_budget_of_a_fraction_is_one_percentage_point(tmp_path):
    result = defaults.resolve_defaults(context(tmp_path, None), ORIGINAL, ACCURATE)
    assert result.accuracy_budget == 0.01


def test_default_budget_of_another_metric_is_1_percent_and_saved(tmp_path):
    started = by_error(context(tmp_path, None))
    assert defaults.resolve_defaults(started, ORIGINAL, 2.5).accuracy_budget == 0.025
    assert (
        defaults.resolve_defaults(started, ORIGINAL, 3.0).accuracy_budget == 0.025
    )  # when the run goes on
    assert defaults.load_defaults(started, ORIGINAL, started.run_directory).accuracy_budget == 0.025


@pytest.mark.parametrize(
    "settings", [{"budget": {"target_compression": 5}}, {"method": {"lambda": 1.0}}]
)
def test_default_budget_next_to_another_target_is_none(tmp_path, settings):
    started = by_error(context(tmp_path, None, **settings))
    assert defaults.resolve_defaults(started, ORIGINAL, 2.5).accuracy_budget is None
    defaults.check_default_budget(started, 0.0)


def test_check_default_budget_of_zero_raises_input_error(tmp_path):
    with pytest.raises(InputError) as caught:
        defaults.check_default_budget(by_error(context(tmp_path, None)), 0.0)
    assert "0 °C" in caught.value.message
    assert "--accuracy-budget" in caught.value.hint
    defaults.check_default_budget(context(tmp_path, None), 0.0)  # a point is one


@pytest.mark.parametrize(
    ("metric", "cut", "original", "guess", "kept"),
    [
        (Metric(), 0.5, 0.9, 0.1, 0.5),
        (Metric(), 0.9, 0.1, 0.1, 0.0),
        (Metric("error", higher_is_better=False, is_fraction=False), 4.0, 2.0, 0.0, 0.5),
        (Metric("error", higher_is_better=False, is_fraction=False), 0.0, 0.0, 0.0, 0.0),
        (Metric("likelihood", is_fraction=False), -9.0, -3.0, 0.0, 0.0),
    ],
)
def test_compute_retention_follows_the_direction_of_the_metric(metric, cut, original, guess, kept):
    assert defaults._compute_retention(metric, cut, original, guess) == pytest.approx(kept)


def test_probe_for_aggressiveness_has_the_cost_of_the_budget(tmp_path, monkeypatch):
    budgets = []
    monkeypatch.setattr(
        defaults.baseline, "probe_accuracy", lambda *args: budgets.append(args[2]) or 0.9
    )
    started = context(tmp_path, None, budget={"target_macs": 0.25})
    costs = count_multiply_add_costs(started.network.layer_weights, {"w": 7}, 0.25)
    defaults.resolve_defaults(replace(started, weight_costs=costs), ORIGINAL, ACCURATE)
    assert budgets == [7 * 100 // 4]
