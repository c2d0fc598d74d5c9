"""Which network of the trail to finish: the last one, or the sparsest that stays within an accuracy budget.

Choosing looks only at the validation split.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ltp_pipeline.errors import InputError
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.results.records import (
    PrunedNetwork,
    ThresholdLearningResult,
    TrailEntry,
    finetune_key,
)
from ltp_pipeline.stages import finetune, prune
from ltp_pipeline.stages.train.evaluate import evaluate_metric
from ltp_pipeline.stages.train.job import RunContext
from ltp_pipeline.system.text import pluralize

MAX_ATTEMPTS = 4  # networks that are fine-tuned in search of the sparsest within the budget


class SelectedEntry(NamedTuple):
    """The entry, what was tried on the way, why it is outside the budget if it is, and how many were fine-tuned."""

    entry: TrailEntry
    notes: list[str]
    budget_not_met: str | None = None
    num_trainings: int = 1


def run(
    context: RunContext, learned: ThresholdLearningResult, least: float | None
) -> tuple[SelectedEntry, PrunedNetwork]:
    """Select an entry and fine-tune it; `least` is the worst accuracy that will do."""
    if least is None:
        return SelectedEntry(learned.trail[-1], []), finish_entry(context, learned.trail[-1])
    metric = context.task.metric
    entries = sorted(learned.trail, key=lambda e: e.compression)
    tried = _search_budget(context, entries, least)
    held = [e for e, accuracy in tried.items() if metric.is_no_worse(accuracy, least)]
    told = {
        e: f"{metric.shown(accuracy)} on the validation split, fine-tuned"
        for e, accuracy in tried.items()
    }
    notes = [f"tried {e.compression:.1f}×: {said}" for e, said in told.items()]
    missed = None
    if held:
        best = max(held, key=lambda e: e.compression)
    else:
        best = metric.best(tried, lambda e: tried[e])
        missed = (
            f"no network of the trail reached {metric.shown(least)} within {pluralize(len(tried), 'attempt')}; "
            "the closest is reported: give a larger budget, more epochs or a lower learning rate"
        )
    return SelectedEntry(
        best, [*notes, *([missed] if missed else [])], missed, len(tried)
    ), finish_entry(context, best)


def finish_entry(context: RunContext, entry: TrailEntry) -> PrunedNetwork:
    """Hard-prune to an entry of the trail and fine-tune it."""
    pruned = prune.run(context, entry)
    return finetune.run(
        context,
        pruned,
        context.finetune_epochs,
        key=finetune_key(entry.entry),
        before=context.epochs,
    )


def find_entry(learned: ThresholdLearningResult, number: int) -> TrailEntry:
    """The entry of this number."""
    for entry in learned.trail:
        if entry.entry == number:
            return entry
    numbers = ", ".join(str(e.entry) for e in learned.trail)
    raise InputError(
        f"the trail has no entry {number}", f"entries: {numbers}; `ltp-pipeline trail` lists them"
    )


def pareto_entries(trail: tuple[TrailEntry, ...], metric: Metric) -> set[int]:
    """Entries that no other beats: of two alike, neither beats the other."""
    best = (0.0, -math.inf)
    found = set()
    merits = {e.entry: (e.compression, metric.goodness(e.accuracy)) for e in trail}
    for entry, merit in sorted(merits.items(), key=lambda item: item[1], reverse=True):
        if merit[1] > best[1] or merit == best:
            best = merit
            found.add(entry)
    return found


def _search_budget(
    context: RunContext, entries: list[TrailEntry], least: float
) -> dict[TrailEntry, float]:
    """Fine-tune from the sparsest entry that is good as it is: on while the result holds, back while it does not."""
    metric = context.task.metric
    good = [i for i, e in enumerate(entries) if metric.is_no_worse(e.accuracy, least)]
    position = max(good, default=0)
    tried: dict[TrailEntry, float] = {}
    while (
        0 <= position < len(entries)
        and entries[position] not in tried
        and len(tried) < MAX_ATTEMPTS
    ):
        entry = entries[position]
        tried[entry] = evaluate_metric(
            context, finish_entry(context, entry).state, context.data.val
        )
        holds = metric.is_no_worse(tried[entry], least)
        context.workspace.progress.say(
            f"{entry.compression:.1f}× fine-tuned: {metric.shown(tried[entry])} on the validation split, "
            f"{'within' if holds else 'outside'} the budget ({metric.no_worse} {metric.shown(least)})"
        )
        position += 1 if holds else -1
    return tried
