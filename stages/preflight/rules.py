"""Defaults by rule: what follows from the network, the budget and the data where nothing is said of it.

docs/method.md has the rules, (R5) and (R7), and what they were chosen by.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ltp_pipeline import ranks
from ltp_pipeline.records import State
from ltp_pipeline.stages import baseline
from ltp_pipeline.stages.learn_thresholds.schedule import STRONG, strength
from ltp_pipeline.stages.preflight import labels
from ltp_pipeline.stages.train import Job
from ltp_pipeline.tasks import Classification
from ltp_pipeline.workspace import Workspace

DISTILL = 0.5  # share of the loss that is learned from the original
RIGHT = 0.95  # an original that is right more often than this says little more than the labels


def apply(job: Job, original: State, accuracy: float) -> Job:
    """Measure what the rules need; `accuracy` is the original's on the validation split.

    All processes measure together, once: a run that goes on, goes on with what was found when it began.
    """
    job = _taught(_with_optimizer(job), original, _found(job, "distill", lambda: _distill(job, accuracy)))
    return replace(job, strength=_found(job, "strength", lambda: _strength(job, original, accuracy)))


def recall(job: Job, original: State, run: Workspace) -> Job:
    """What was found for a run, for a job that finishes an entry of its trail."""
    found = run.rules
    job = _taught(_with_optimizer(job), original, found.get("distill", 0.0))
    return replace(job, strength=found.get("strength", job.strength))


def _found(job: Job, name: str, measure: Callable[[], float]) -> float:
    known = ranks.from_leader(job.workspace.rules.get(name, -1.0), job.device)
    if known >= 0:
        return known
    found = measure()
    job.workspace.keep_rule(name, found)
    return found


def _distill(job: Job, accuracy: float) -> float:
    """How much is learned from the original: half of the loss, unless it is nearly always right. (R7)."""
    train, given = job.settings.train, job.data.val.labels
    if train.distill is not None:
        return train.distill
    if given is None or job.settings.method.lambda_ is not None:  # the paper's procedure has none
        return 0.0
    worth = labels.beats(accuracy, len(given), labels.guessing(given)) and accuracy < RIGHT
    return DISTILL if worth else 0.0


def _taught(job: Job, original: State, share: float) -> Job:
    """Let the network learn this share of the loss from the original; without labels all is learned from it."""
    task = job.task
    if not isinstance(task, Classification):
        return job
    job = _with_train(job, distill=share)
    task = replace(task, distill=share, label_smoothing=job.settings.train.label_smoothing)
    return replace(job, task=task, teacher=original if share else job.teacher)


def _with_optimizer(job: Job) -> Job:
    """Write down how weights are moved, for the report."""
    return _with_train(job, **job.optimizer._asdict())


def _with_train(job: Job, **found: object) -> Job:
    train = job.settings.train.model_copy(update=found)
    return replace(job, settings=job.settings.model_copy(update={"train": train}))


def _strength(job: Job, original: State, accuracy: float) -> float:
    """How strongly thresholds are learned: fully where the network learns from the original. (R5), (R7).

    Otherwise by how far it still works when it is simply cut to size; from a compression of STRONG on fully anyway.
    """
    wanted = job.settings.budget.wanted_compression
    if job.task.is_taught or wanted is None or wanted >= STRONG:
        return 1.0
    elements = sum(k.elements for k in job.network.kernels)
    given = job.data.val.labels
    guess = 0.0 if given is None else labels.guessing(given)
    cut = baseline.accuracy_when_cut(job, original, int(elements / wanted))
    better = accuracy > guess and (given is None or labels.beats(accuracy, len(given), guess))
    return strength((cut - guess) / (accuracy - guess) if better else 0.0)
