"""What follows from the network, the budget and the data where nothing is said of it."""

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
from ltp_pipeline.stages.train.job import ResolvedDefaults, RunContext
from ltp_pipeline.tasks.classification import ClassificationTask
from ltp_pipeline.tasks.distillation import DistillationTask
from ltp_pipeline.tasks.protocol import TaskOutput
from tests.support.models import mlp
from tests.support.samples import split_of

ORIGINAL = {"w": torch.ones(10, 10)}
NEARLY_ALWAYS_RIGHT = 0.96


def job(
    tmp_path, compression: float | None = 5, labels: bool = True, **settings: Any
) -> RunContext:
    workspace = RunDirectory(tmp_path / "run")
    workspace.begin_run({})
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
    return RunContext(network, task, data, given, workspace, torch.device("cpu"))


@pytest.fixture
def cut(monkeypatch):
    """Say how accurate the network is, cut to size."""
    return lambda value: monkeypatch.setattr(defaults.baseline, "probe_accuracy", lambda *_: value)


@pytest.mark.parametrize(
    ("compression", "left", "expected"), [(5, 0.96, 0.0), (5, 0.61, 0.8), (14.9, 0.25, 1.0)]
)
def test_a_target_is_as_strong_as_the_accuracy_that_is_lost_by_the_cut(
    tmp_path, cut, compression, left, expected
):
    cut(left)
    started = job(tmp_path, compression)
    found = defaults.resolve_defaults(
        started, ORIGINAL, NEARLY_ALWAYS_RIGHT
    ).resolved.aggressiveness
    assert found == pytest.approx(expected, abs=0.02)
    assert started.workspace.manifest.rules["aggressiveness"] == found


def test_from_15_times_on_every_target_is_strong_and_nothing_is_measured(tmp_path, cut):
    cut(None)
    assert (
        defaults.resolve_defaults(
            job(tmp_path, 15), ORIGINAL, NEARLY_ALWAYS_RIGHT
        ).resolved.aggressiveness
        == 1.0
    )


def test_an_original_that_errs_is_learned_from_and_thresholds_are_then_learned_fully(tmp_path, cut):
    cut(0.9)
    found = defaults.resolve_defaults(job(tmp_path), ORIGINAL, 0.9)
    assert isinstance(found.task, ClassificationTask)
    assert found.task.distillation_weight == 0.5
    assert found.resolved == ResolvedDefaults(distillation_weight=0.5, aggressiveness=1.0)
    assert found.teacher is ORIGINAL


@pytest.mark.parametrize(
    "accuracy", [NEARLY_ALWAYS_RIGHT, 0.26], ids=["nearly always right", "guesses"]
)
def test_an_original_that_has_little_to_say_is_not_learned_from(tmp_path, cut, accuracy):
    cut(0.25)
    found = defaults.resolve_defaults(job(tmp_path), ORIGINAL, accuracy)
    assert (found.resolved.distillation_weight, found.teacher) == (0.0, None)


def test_a_share_that_is_given_is_obeyed(tmp_path, cut):
    cut(0.9)
    assert (
        defaults.resolve_defaults(
            job(tmp_path, train={"distillation_weight": 0.2}), ORIGINAL, 0.9
        ).resolved.distillation_weight
        == 0.2
    )
    assert (
        defaults.resolve_defaults(
            job(tmp_path, train={"distillation_weight": 0.0}), ORIGINAL, 0.9
        ).teacher
        is None
    )


def test_the_papers_procedure_does_not_learn_from_the_original(tmp_path):
    found = defaults.resolve_defaults(job(tmp_path, None, method={"lambda": 1e-6}), ORIGINAL, 0.9)
    assert found.teacher is None


@pytest.mark.parametrize(
    ("given", "lr"), [({}, 0.03), ({"lr": 0.5}, 0.5), ({"optimizer": "adamw"}, 1e-4)]
)
def test_the_settings_say_how_weights_are_moved(tmp_path, cut, given, lr):
    cut(0.9)
    asked = job(tmp_path, train=given)
    found = defaults.resolve_defaults(asked, ORIGINAL, 0.9)
    assert found.settings == asked.settings
    train = found.resolved_settings["train"]
    assert not given.keys() & train.keys()
    used = {**train, **given}
    assert (used["optimizer"], used["lr"]) == (given.get("optimizer", "sgd"), lr)
    assert None not in used.values()


@pytest.mark.parametrize("accuracy", [0.9, NEARLY_ALWAYS_RIGHT], ids=["taught", "by labels alone"])
def test_labels_are_smoothed_as_asked_for(tmp_path, cut, accuracy):
    cut(0.25)
    found = defaults.resolve_defaults(
        job(tmp_path, train={"label_smoothing": 0.1}), ORIGINAL, accuracy
    ).task
    assert isinstance(found, ClassificationTask)
    assert found.label_smoothing == 0.1


def test_without_labels_the_task_stays_as_it_is(tmp_path):
    started = job(tmp_path, labels=False)
    assert defaults.resolve_defaults(started, ORIGINAL, 1.0).task is started.task


def test_a_run_that_goes_on_keeps_what_was_found_when_it_began(tmp_path, cut):
    cut(0.9)
    began = defaults.resolve_defaults(job(tmp_path), ORIGINAL, 0.9)
    again = defaults.resolve_defaults(
        replace(job(tmp_path / "other"), workspace=began.workspace), ORIGINAL, NEARLY_ALWAYS_RIGHT
    )
    assert again.resolved == ResolvedDefaults(distillation_weight=0.5, aggressiveness=1.0)


def test_an_entry_of_the_trail_is_finished_as_its_run_was(tmp_path, cut):
    cut(0.9)
    run = defaults.resolve_defaults(job(tmp_path), ORIGINAL, 0.9).workspace
    found = defaults.load_defaults(job(tmp_path / "pick"), ORIGINAL, run)
    assert found.resolved == ResolvedDefaults(distillation_weight=0.5, aggressiveness=1.0)
    assert found.teacher is ORIGINAL


def by_error(started: RunContext) -> RunContext:
    """The job with a metric that is no share."""
    task: Any = SimpleNamespace(
        metric=Metric("MAE", "°C", higher_is_better=False, is_fraction=False),
        is_distilled=True,
        has_unbounded_gradient=True,
        chance_level=lambda _: None,
    )
    return replace(started, task=task)


def test_the_default_budget_of_a_share_is_one_point(tmp_path):
    found = defaults.resolve_defaults(job(tmp_path, None), ORIGINAL, NEARLY_ALWAYS_RIGHT)
    assert found.accuracy_budget == 0.01


def test_the_default_budget_of_another_metric_is_one_percent_of_the_original_and_is_kept(tmp_path):
    started = by_error(job(tmp_path, None))
    assert defaults.resolve_defaults(started, ORIGINAL, 2.5).accuracy_budget == 0.025
    assert (
        defaults.resolve_defaults(started, ORIGINAL, 3.0).accuracy_budget == 0.025
    )  # when the run goes on
    assert defaults.load_defaults(started, ORIGINAL, started.workspace).accuracy_budget == 0.025


@pytest.mark.parametrize(
    "settings", [{"budget": {"target_compression": 5}}, {"method": {"lambda": 1.0}}]
)
def test_where_the_outcome_is_asked_for_there_is_no_default_budget(tmp_path, settings):
    started = by_error(job(tmp_path, None, **settings))
    assert defaults.resolve_defaults(started, ORIGINAL, 2.5).accuracy_budget is None
    defaults.check_default_budget(started, 0.0)


def test_one_percent_of_nothing_is_no_budget(tmp_path):
    with pytest.raises(InputError) as caught:
        defaults.check_default_budget(by_error(job(tmp_path, None)), 0.0)
    assert "0 °C" in caught.value.message
    assert "--accuracy-budget" in caught.value.hint
    defaults.check_default_budget(job(tmp_path, None), 0.0)  # a point is one


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
def test_what_a_cut_leaves_is_told_in_the_direction_of_the_metric(
    metric, cut, original, guess, kept
):
    assert defaults._compute_retention(metric, cut, original, guess) == pytest.approx(kept)
