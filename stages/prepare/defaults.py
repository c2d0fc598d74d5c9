"""Defaults by rule: what follows from the network, the budget and the data where nothing is said of it.

docs/method.md has the rules, (R5) and (R7), and what they were chosen by.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ltp_pipeline.errors import InputError
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.run_directory.run_directory import RunDirectory
from ltp_pipeline.stages import baseline
from ltp_pipeline.stages.learn_thresholds.schedule import (
    STRONG_COMPRESSION,
    aggressiveness_of_retention,
)
from ltp_pipeline.stages.prepare import explain
from ltp_pipeline.stages.train.job import RunContext
from ltp_pipeline.system import distributed
from ltp_pipeline.system.arrays import StateDict
from ltp_pipeline.tasks.classification import TOP1
from ltp_pipeline.tasks.supervised import SupervisedTask

DISTILL = 0.5  # share of the loss that is learned from the original
RIGHT = 0.95  # an original that is right more often than this says little more than the labels


def resolve_defaults(job: RunContext, original: StateDict, accuracy: float) -> RunContext:
    """Measure what the rules need; `accuracy` is the original's on the validation split.

    All processes measure together, once: a run that goes on, goes on with what was found when it began.
    """
    job = _with_budget(_with_optimizer(job), _budget(job, accuracy))
    job = _taught(job, original, _found(job, "distill", lambda: _distill(job, accuracy)))
    return replace(
        job, strength=_found(job, "strength", lambda: _strength(job, original, accuracy))
    )


def check_default_budget(job: RunContext, accuracy: float) -> None:
    """Refuse a default budget that is a share of nothing; all processes do, and the leader says so."""
    metric = job.task.metric
    if job.settings.has_default_budget and metric.default_budget(accuracy) == 0:
        distributed.stop_together()
        what = f"the original's {metric.name} is {metric.shown(accuracy)} on the validation split"
        raise InputError(
            f"{what}, of which no share can be a budget",
            "say how much worse it may be: --accuracy-budget",
        )


def recall(job: RunContext, original: StateDict, run: RunDirectory) -> RunContext:
    """What was found for a run, for a job that finishes an entry of its trail."""
    found = run.manifest.rules
    job = _with_budget(_with_optimizer(job), run.manifest.default_budget)
    return replace(
        _taught(job, original, found.get("distill", 0.0)),
        strength=found.get("strength", job.strength),
    )


def _found(job: RunContext, name: str, measure: Callable[[], float]) -> float:
    known = distributed.broadcast_from_main(
        job.workspace.manifest.rules.get(name, -1.0), job.device
    )
    if known >= 0:
        return known
    found = measure()
    job.workspace.keep(rules={**job.workspace.manifest.rules, name: found})
    return found


def _budget(job: RunContext, accuracy: float) -> float | None:
    """The largest drop where nothing was said of the outcome; of what is no share, relative to the original's value."""
    workspace, metric = job.workspace, job.task.metric
    kept = workspace.manifest.default_budget
    if not job.settings.has_default_budget:
        return None
    known = distributed.broadcast_from_main(-1.0 if kept is None else kept, job.device)
    found = known if known >= 0 else metric.default_budget(accuracy)
    workspace.keep(default_budget=found)
    return found


def _with_budget(job: RunContext, drop: float | None) -> RunContext:
    """The job with this budget where none was given."""
    if drop is None or not job.settings.has_default_budget:
        return job
    budget = job.settings.budget.model_copy(update={"accuracy_budget": drop})
    return replace(job, settings=job.settings.model_copy(update={"budget": budget}))


def _distill(job: RunContext, accuracy: float) -> float:
    """How much is learned from the original: half of the loss, unless it is nearly always right. (R7)."""
    train, guess = job.settings.train, job.task.chance_level(job.data.val)
    if train.distillation_weight is not None:
        return train.distillation_weight
    # the paper's procedure has none; the rule was found on shares of right answers
    if guess is None or job.settings.method.lambda_ is not None or job.task.metric is not TOP1:
        return 0.0
    return DISTILL if not explain.is_guess(job, accuracy, guess) and accuracy < RIGHT else 0.0


def _taught(job: RunContext, original: StateDict, share: float) -> RunContext:
    """Let the network learn this share of the loss from the original; without labels all is learned from it."""
    task = job.task
    if not isinstance(task, SupervisedTask):
        return job
    job = _with_train(job, distillation_weight=share)
    task = task.with_distillation(share, job.settings.train.label_smoothing)
    return replace(job, task=task, teacher=original if share else job.teacher)


def _with_optimizer(job: RunContext) -> RunContext:
    """Write down how weights are moved, for the report."""
    return _with_train(job, **job.optimizer._asdict())


def _with_train(job: RunContext, **found: object) -> RunContext:
    train = job.settings.train.model_copy(update=found)
    return replace(job, settings=job.settings.model_copy(update={"train": train}))


def _strength(job: RunContext, original: StateDict, accuracy: float) -> float:
    """How strongly thresholds are learned: fully where the network learns from the original. (R5), (R7).

    Otherwise by how far it still works when it is simply cut to size; from a compression of STRONG on fully anyway.
    """
    wanted = job.settings.budget.requested_compression
    if job.task.is_distilled or wanted is None or wanted >= STRONG_COMPRESSION:
        return 1.0
    elements = sum(k.elements for k in job.network.layer_weights)
    guess = job.task.chance_level(job.data.val)
    cut = baseline.probe_accuracy(job, original, int(elements / wanted))
    if guess is not None and explain.is_guess(job, accuracy, guess):
        return aggressiveness_of_retention(0.0)
    return aggressiveness_of_retention(_kept(job.task.metric, cut, accuracy, guess or 0.0))


def _kept(metric: Metric, cut: float, original: float, guess: float) -> float:
    """How much of the original's worth is left after the cut, q of (R5); of errors, the inverse of their growth."""
    if not metric.higher_is_better:
        return original / cut if cut > 0 else 0.0
    return (cut - guess) / (original - guess) if original > guess else 0.0
