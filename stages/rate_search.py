"""Search for the learning rate of a training by a few short trainings, the trials.

A trial trains the same network on a part of the samples with the whole curve of the learning rate.
Trials are compared on the validation split, sample by sample. A rate other than the default is
taken only if it is ahead beyond noise. docs/how-to/training.md has the measurements behind this.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

import numpy as np

from ltp_pipeline.errors import TrainingFailed
from ltp_pipeline.results.schema import LTP_METHOD
from ltp_pipeline.results.schema_parts import LearningRateInfo, LearningRateTrial
from ltp_pipeline.run_directory.names import GRADUAL
from ltp_pipeline.run_directory.run_directory import TrialRunDirectory
from ltp_pipeline.stages.train.batches import derive_seed
from ltp_pipeline.stages.train.context import RunContext
from ltp_pipeline.stages.train.evaluate import evaluate_samples
from ltp_pipeline.stages.train.statistics import refresh_statistics
from ltp_pipeline.system import distributed
from ltp_pipeline.system.arrays import Array, StateDict
from ltp_pipeline.tasks.evaluator import Evaluator

STAGE = "rate_search"  # name of the stage in the timings of a run
STEP = 3.0  # ratio of neighboring learning rates
FACTORS = (1 / STEP, 1.0, STEP)  # first candidates, as factors of the default
MAX_TRIALS = len(FACTORS) + 1  # the best one at the edge of the range gets a neighbor
MAX_FRACTION = 0.1  # of the steps of a training, in all its trials together
MIN_TRIAL_STEPS = 25  # shorter trials do not tell rates apart
UNDECIDED = "no other rate is ahead of it beyond noise"

# Trains a network in a trial: its context, its number of epochs and its name in progress.
TrainTrial = Callable[[RunContext, int, str], StateDict]


@dataclass(frozen=True)
class SearchedTraining:
    """A training whose learning rate is searched for.

    Attributes:
        name: Name in the run directory.
        title: Begin of the names of its trials in progress.
        total_steps: Number of its steps.
        obstacle: Why there can be no trials; None if there can.
    """

    name: str
    title: str
    total_steps: int
    obstacle: str | None = None


@dataclass(frozen=True)
class TrialResult:
    """Result of a trial.

    Attributes:
        lr: The learning rate.
        value: Metric on the validation split; None if the training diverged.
        statistics: Statistics of the samples; None in processes that do not have them.
    """

    lr: float
    value: float | None = None
    statistics: Array | None = None


def count_trial_steps(total_steps: int) -> int:
    """Return the steps of each trial of a training; 0 if these are too few to tell rates apart.

    All trials together have at most MAX_FRACTION of the steps of the training.
    """
    steps = int(MAX_FRACTION * total_steps) // MAX_TRIALS
    return steps if steps >= MIN_TRIAL_STEPS else 0


def explain_default(context: RunContext, training: SearchedTraining) -> LearningRateInfo | None:
    """Return the learning rate and why it is not searched for; None if it is.

    Args:
        context: The run, with the default learning rate.
        training: The training.
    """
    train = context.settings.train
    lr = context.optimizer.lr
    if train.lr is not None:
        return LearningRateInfo(lr=lr, source="given", reason="set by the user")
    reason = training.obstacle
    if not train.lr_search:
        reason = "train.lr_search is false"
    elif reason is None and not count_trial_steps(training.total_steps):
        steps = int(MAX_FRACTION * training.total_steps) // MAX_TRIALS
        reason = (
            f"{MAX_FRACTION:.0%} of {training.total_steps} steps allow trials of {steps}, and a"
            f" search needs {MIN_TRIAL_STEPS}"
        )
    return None if reason is None else LearningRateInfo(lr=lr, reason=reason)


def plan_trials(context: RunContext, training: SearchedTraining) -> dict[str, int]:
    """Return the steps of the trials that are certain to come, by their names in progress."""
    is_done = training.name in context.run_directory.manifest.learning_rates
    if is_done or explain_default(context, training) is not None:
        return {}
    _, epochs, steps = _select_samples(context, count_trial_steps(training.total_steps))
    rates = [context.optimizer.lr * factor for factor in FACTORS]
    return dict.fromkeys((_name_trial(training, lr) for lr in rates), epochs * steps)


def find_learning_rate(
    context: RunContext, training: SearchedTraining, train_trial: TrainTrial
) -> float:
    """Return the learning rate of a training; the run directory keeps it with its reason.

    All ranks search together and return the same rate.

    Args:
        context: The run, with the default learning rate.
        training: The training.
        train_trial: Trains its network in a trial.
    """
    run_directory = context.run_directory
    saved = run_directory.manifest.learning_rates.get(training.name)
    lr = distributed.broadcast_from_main(0.0 if saved is None else saved.lr)
    if lr:
        return lr
    info = explain_default(context, training)
    if info is None:
        info = _search(context, training, train_trial)
    rates = {**run_directory.manifest.learning_rates, training.name: info}
    run_directory.update_manifest(learning_rates=rates)
    if info.trials:
        run_directory.progress.say(f"Note: {_describe_rate(context, training.name, info)}")
    return info.lr


def list_notes(context: RunContext, names: Collection[str]) -> list[str]:
    """Return a line on the learning rate of each of these trainings that had trials."""
    rates = context.run_directory.manifest.learning_rates
    return [
        _describe_rate(context, name, info)
        for name, info in rates.items()
        if name in names and info.trials
    ]


def _describe_rate(context: RunContext, name: str, info: LearningRateInfo) -> str:
    """Return a line on a learning rate, where it came from and what the trials scored."""
    network = "LTP" if name == LTP_METHOD else "the baseline"
    if name.startswith(GRADUAL):
        network = "the gradual baseline"
    origin = "found by a search" if info.source == "searched" else "the default"
    line = f"{network} is trained with the learning rate {info.lr:.3g}, {origin}: {info.reason}"
    if not info.trials:
        return line
    metric = context.task.metric
    scores = []
    for trial in info.trials:
        value = "diverged" if trial.value is None else metric.format_value(trial.value)
        scores.append(f"{trial.lr:.3g}: {value}")
    return f"{line}; {metric.name} after {info.trial_steps} steps at {', '.join(scores)}"


def _search(
    context: RunContext, training: SearchedTraining, train_trial: TrainTrial
) -> LearningRateInfo:
    """Run the trials and return the best rate, or the default if none is ahead beyond noise."""
    default_lr = context.optimizer.lr
    samples, epochs, steps = _select_samples(context, count_trial_steps(training.total_steps))
    evaluator = context.make_evaluator(context.task)

    def run_trial(lr: float) -> TrialResult:
        trial_context = samples.with_learning_rate(lr)
        try:
            state = train_trial(trial_context, epochs, _name_trial(training, lr))
        except TrainingFailed:
            return TrialResult(lr)
        # Running statistics follow weights too slowly for so few steps.
        state = refresh_statistics(trial_context, state)
        return _evaluate_trial(context, evaluator, lr, state)

    results = [run_trial(default_lr * factor) for factor in FACTORS]
    default = results[FACTORS.index(1.0)]
    best = _find_best(context, results, default)
    if best is not default:
        results.append(run_trial(best.lr * (STEP if best.lr > default_lr else 1 / STEP)))
        best = _find_best(context, results, default)
    results.sort(key=lambda result: result.lr)
    trials = tuple(LearningRateTrial(lr=result.lr, value=result.value) for result in results)
    reason = UNDECIDED
    if best is not default:
        reason = f"ahead of the default {default_lr:.3g} beyond noise"
    return LearningRateInfo(
        lr=best.lr,
        source="default" if best is default else "searched",
        reason=reason,
        trial_steps=epochs * steps,
        trials=trials,
    )


def _select_samples(context: RunContext, trial_steps: int) -> tuple[RunContext, int, int]:
    """Return the context of a trial, its number of epochs and its number of steps per epoch.

    A trial that is shorter than an epoch has a part of the samples, the same in all trials.
    """
    run_directory = TrialRunDirectory(context.run_directory)
    context_of_trial = replace(context, run_directory=run_directory)
    steps_per_epoch = context.steps_per_epoch
    if trial_steps >= steps_per_epoch:
        return context_of_trial, trial_steps // steps_per_epoch, steps_per_epoch
    rng = np.random.default_rng(derive_seed(context.settings.train.seed, "rates"))
    rows = np.sort(rng.permutation(len(context.data.train))[: trial_steps * context.batch_size])
    return context_of_trial.with_training_samples(rows), 1, trial_steps


def _evaluate_trial(
    context: RunContext, evaluator: Evaluator, lr: float, state: StateDict
) -> TrialResult:
    """Return the result of a trained network; one without a metric counts as diverged."""
    value, statistics = evaluate_samples(context, evaluator, state, context.data.val)
    return TrialResult(lr, value, statistics) if math.isfinite(value) else TrialResult(lr)


def _find_best(
    context: RunContext, results: list[TrialResult], default: TrialResult
) -> TrialResult:
    """Return the best of the results that are ahead of the default beyond noise, or the default.

    The main process decides for all.
    """
    ahead = [result for result in results if _is_ahead(context, result, default)]
    best = default
    if ahead:
        best = context.task.metric.find_best(ahead, lambda result: result.value or 0.0)
    lr = distributed.broadcast_from_main(best.lr)
    return next(result for result in results if result.lr == lr)


def _is_ahead(context: RunContext, result: TrialResult, default: TrialResult) -> bool:
    """Return whether a result is better than the default by more than the noise of the samples."""
    if result.value is None:
        return False
    if default.value is None:
        return True
    if result.statistics is None or default.statistics is None:
        return False
    interval = context.task.compute_drop_interval(result.statistics, default.statistics)
    return interval is not None and interval[0] > 0


def _name_trial(training: SearchedTraining, lr: float) -> str:
    return f"{training.title} {lr:.3g}"
