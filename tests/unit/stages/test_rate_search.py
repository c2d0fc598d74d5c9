"""The search for a learning rate: its limit, its decision, and what the run directory keeps."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from ltp_pipeline.errors import TrainingFailed
from ltp_pipeline.results.schema_parts import LearningRateInfo, LearningRateTrial
from ltp_pipeline.run_directory.run_directory import RunDirectory
from ltp_pipeline.settings.schema import Settings
from ltp_pipeline.stages import baseline, learn_thresholds, rate_search
from ltp_pipeline.stages.prune import count_nonzeros
from ltp_pipeline.stages.rate_search import (
    MAX_FRACTION,
    MAX_TRIALS,
    MIN_TRIAL_STEPS,
    SearchedTraining,
    count_trial_steps,
    explain_default,
    find_learning_rate,
    list_notes,
    plan_trials,
)
from ltp_pipeline.stages.train.context import RunContext
from ltp_pipeline.system.arrays import StateDict
from ltp_pipeline.system.progress import SilentReporter
from tests.support.contexts import with_target, with_train

Started = tuple[RunContext, StateDict]
TRAINING = SearchedTraining("baseline", "Baseline, learning rate", 1_200)
SAMPLES = 400


class CountingReporter(SilentReporter):
    """Counts the steps of each trial by its name."""

    def __init__(self) -> None:
        self.steps: dict[str, int] = {}

    @contextmanager
    def task(self, name: str, total: int, start: int = 0) -> Iterator[Any]:  # noqa: ARG002
        self.steps[name] = 0

        class CountingBar:
            def advance(bar, **_: Any) -> None:  # noqa: N805 - self is the reporter
                self.steps[name] += 1

        yield CountingBar()


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a search whose trials have set numbers of correct samples, by learning rate."""

    def evaluate(context: Any, evaluator: Any, state: Any, split: Any) -> Any:
        count = state["count"]
        correct = np.arange(SAMPLES) < count
        return count / SAMPLES, np.stack([correct, correct], axis=1)

    def search(context: RunContext, counts: dict[float, int]) -> tuple[float, list[float]]:
        tried = []

        def train_trial(trial: RunContext, epochs: int, name: str) -> Any:
            lr = trial.optimizer.lr
            tried.append(lr)
            count = next(n for rate, n in counts.items() if np.isclose(rate, lr))
            if count < 0:
                raise TrainingFailed("training diverged", "lower the learning rate")
            return {"count": count}

        return find_learning_rate(context, TRAINING, train_trial), tried

    monkeypatch.setattr(rate_search, "evaluate_samples", evaluate)
    monkeypatch.setattr(rate_search, "refresh_statistics", lambda _, state: state)
    return search


def saved_info(context: RunContext) -> LearningRateInfo:
    return context.run_directory.manifest.learning_rates[TRAINING.name]


def search_baseline(context: RunContext, state: StateDict) -> float:
    pruned = baseline.prune_in_one_shot(context, state, 5_000)
    return find_learning_rate(
        context,
        TRAINING,
        lambda trial, epochs, name: baseline.train_trial(trial, pruned, epochs, name),
    )


@pytest.mark.parametrize("total", [0, 1, 99, 750, 999, 1_000, 1_404, 123_457])
def test_count_trial_steps_has_at_most_the_fraction_of_the_training(total: int) -> None:
    steps = count_trial_steps(total)
    assert MAX_TRIALS * steps <= MAX_FRACTION * total
    assert steps == 0 or steps >= MIN_TRIAL_STEPS


def test_count_trial_steps_uses_the_fraction_up() -> None:
    assert count_trial_steps(40 * MIN_TRIAL_STEPS) == MIN_TRIAL_STEPS
    assert count_trial_steps(40 * MIN_TRIAL_STEPS - 1) == 0


@pytest.mark.parametrize("batch_size", [16, 128])  # 75 and 9 steps an epoch
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_search_takes_at_most_the_planned_steps(
    started: Started, batch_size: int, optimizer: str
) -> None:
    context, state = started
    reporter = CountingReporter()
    context.run_directory.progress = reporter
    context = with_train(context, batch_size=batch_size, optimizer=optimizer)
    planned = plan_trials(context, TRAINING)
    search_baseline(context, state)
    assert sum(reporter.steps.values()) <= MAX_FRACTION * TRAINING.total_steps
    assert planned == dict(list(reporter.steps.items())[:3])
    assert set(planned.values()) == {saved_info(context).trial_steps}


def test_search_is_deterministic_and_saves_no_training(started: Started) -> None:
    context, state = started
    before = {name: tensor.clone() for name, tensor in state.items()}
    search_baseline(context, state)
    assert all(torch.equal(state[name], tensor) for name, tensor in before.items())
    assert [file.name for file in context.run_directory.root.iterdir()] == ["manifest.json"]
    first = saved_info(context)
    context.run_directory.update_manifest(learning_rates={})
    search_baseline(context, state)
    assert saved_info(context) == first
    assert len({trial.value for trial in first.trials}) > 1


def test_each_trial_has_its_statistics_measured_again(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, state = started
    refreshed = []

    def record(trial: RunContext, trained: StateDict) -> StateDict:
        refreshed.append(trial.optimizer.lr)
        return trained

    monkeypatch.setattr(rate_search, "refresh_statistics", record)
    find_learning_rate(context, TRAINING, lambda *_: dict(state))
    assert refreshed == pytest.approx([0.01, 0.03, 0.09])


def test_trial_of_thresholds_ends_at_the_target(started: Started) -> None:
    context, state = started
    context = with_target(context, 10)
    trained = learn_thresholds.train_trial(context, state, 1, "trial")
    layers = context.network.layer_weights
    nonzeros = sum(int(trained[layer.name].count_nonzero()) for layer in layers)
    assert nonzeros == sum(layer.elements for layer in layers) // 10


def test_found_rate_is_kept_in_the_run_directory(started: Started, scored: Any) -> None:
    context, _ = started
    lr, _ = scored(context, {0.01: 100, 0.03: 200, 0.09: 300, 0.27: 200})
    resumed = replace(context, run_directory=RunDirectory(context.run_directory.root))
    again, tried = scored(resumed, {})
    assert again == lr == pytest.approx(0.09)
    assert tried == []
    assert not plan_trials(resumed, TRAINING)


def test_rate_within_noise_leaves_the_default(started: Started, scored: Any) -> None:
    context, _ = started
    lr, tried = scored(context, {0.01: 200, 0.03: 300, 0.09: 303})
    assert lr == 0.03
    assert len(tried) == 3
    info = saved_info(context)
    assert (info.source, info.reason) == ("default", rate_search.UNDECIDED)
    assert [trial.value for trial in info.trials] == [0.5, 0.75, 303 / SAMPLES]


def test_best_rate_at_the_edge_gets_a_neighbor(started: Started, scored: Any) -> None:
    context, _ = started
    lr, tried = scored(context, {0.01: 300, 0.03: 200, 0.09: 100, 0.01 / 3: 350})
    assert lr == pytest.approx(0.01 / 3)
    assert len(tried) == MAX_TRIALS
    info = saved_info(context)
    assert info.source == "searched"
    assert [trial.lr for trial in info.trials] == sorted(tried)


def test_diverged_trial_counts_as_worst(started: Started, scored: Any) -> None:
    context, _ = started
    lr, _ = scored(context, {0.01: 100, 0.03: 200, 0.09: -1})
    assert lr == 0.03
    assert [trial.value for trial in saved_info(context).trials] == [0.25, 0.5, None]


def test_any_rate_is_ahead_of_a_default_that_diverged(started: Started, scored: Any) -> None:
    context, _ = started
    lr, _ = scored(context, {0.01: 100, 0.03: -1, 0.09: -1, 0.01 / 3: 50})
    assert lr == pytest.approx(0.01)


def test_default_stays_if_all_trials_diverge(started: Started, scored: Any) -> None:
    context, _ = started
    lr, _ = scored(context, {0.01: -1, 0.03: -1, 0.09: -1})
    assert lr == 0.03
    assert saved_info(context).source == "default"


@pytest.mark.parametrize(
    ("train", "training", "source", "lr"),
    [
        ({"lr": 0.2}, TRAINING, "given", 0.2),
        ({"lr": 0.2, "lr_search": False}, TRAINING, "given", 0.2),
        ({"lr_search": False}, TRAINING, "default", 0.03),
        ({}, replace(TRAINING, obstacle="no target"), "default", 0.03),
        ({}, replace(TRAINING, total_steps=999), "default", 0.03),
    ],
)
def test_rate_without_search_has_its_reason(
    started: Started, train: Any, training: SearchedTraining, source: str, lr: float
) -> None:
    context = with_train(started[0], **train)
    info = explain_default(context, training)
    assert info is not None
    assert (info.lr, info.source) == (lr, source)
    assert info.reason
    assert not info.trials
    assert not plan_trials(context, training)


def test_reason_of_a_skipped_search_names_the_steps(started: Started) -> None:
    info = explain_default(started[0], replace(TRAINING, total_steps=800))
    assert info is not None
    assert [part for part in ("800", "20", str(MIN_TRIAL_STEPS)) if part not in info.reason] == []


def test_notes_name_the_rate_and_the_scores(started: Started, scored: Any) -> None:
    context, _ = started
    scored(context, {0.01: -1, 0.03: 100, 0.09: 300, 0.27: 200})
    (note,) = list_notes(context, [TRAINING.name])
    parts = ("0.09", "diverged", "25.00 %", "75.00 %", "0.27")
    assert [part for part in parts if part not in note] == []


def test_notes_leave_out_a_rate_of_the_user(started: Started) -> None:
    context = with_train(started[0], lr=0.2)
    assert find_learning_rate(context, TRAINING, lambda *_: {}) == 0.2
    assert saved_info(context).source == "given"
    assert not list_notes(context, [TRAINING.name])


def test_context_trains_with_the_rate_of_the_search(started: Started) -> None:
    context, _ = started
    assert context.optimizer.lr == 0.03
    searched = context.with_learning_rate(0.09)
    assert searched.optimizer.lr == 0.09
    assert searched.resolved_settings["train"]["lr"] == 0.09


def test_learning_rate_without_its_trial_is_rejected() -> None:
    trials = (LearningRateTrial(lr=0.03, value=0.5),)
    with pytest.raises(ValueError, match="rate of a trial"):
        LearningRateInfo(lr=0.1, trials=trials)
    assert LearningRateInfo(lr=0.03, trials=trials).lr == 0.03


def test_search_is_on_by_default() -> None:
    assert Settings().train.lr_search


def test_notes_leave_out_trainings_that_are_not_named(started: Started, scored: Any) -> None:
    context, _ = started
    scored(context, {0.01: 10, 0.03: 100, 0.09: 10})
    assert not list_notes(context, ["ltp"])


def test_gradual_trial_ends_at_the_target(started: Started) -> None:
    context, state = started
    elements = sum(layer.elements for layer in context.network.layer_weights)
    trained = baseline.train_gradual_trial(context, state, elements // 8, 1, "trial")
    assert sum(count_nonzeros(context.network, trained).values()) == elements // 8
