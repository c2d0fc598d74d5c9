"""Select the trail entry to finish: the last one, or the sparsest within an accuracy budget.

The selection uses only the validation split.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ltp_pipeline.errors import InputError
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.results.schema_parts import LearnedEntry
from ltp_pipeline.stages import finetune, prune
from ltp_pipeline.stages.finetune import finetune_key
from ltp_pipeline.stages.learn_thresholds.trail import ThresholdLearningResult
from ltp_pipeline.stages.train.context import PrunedNetwork, RunContext
from ltp_pipeline.stages.train.evaluate import evaluate_metric
from ltp_pipeline.system.text import pluralize

MAX_ATTEMPTS = 4  # networks that are fine-tuned in search of the sparsest within the budget


class SelectedEntry(NamedTuple):
    """The trail entry to finish, and how it was selected.

    Attributes:
        entry: The entry.
        notes: What was tried, for the report.
        budget_not_met: Why no network is within the budget; None if one is.
        num_trainings: Number of networks that were fine-tuned.
    """

    entry: LearnedEntry
    notes: list[str]
    budget_not_met: str | None = None
    num_trainings: int = 1


def run(
    context: RunContext, learned: ThresholdLearningResult, worst_accuracy: float | None
) -> tuple[SelectedEntry, PrunedNetwork]:
    """Select an entry and fine-tune it.

    Args:
        context: The run.
        learned: The trail.
        worst_accuracy: The worst accuracy within the budget; None selects the last entry.

    Returns:
        The selection and the fine-tuned network.
    """
    if worst_accuracy is None:
        last = learned.trail[-1]
        return SelectedEntry(last, []), finish_entry(context, last)
    metric = context.task.metric
    entries = sorted(learned.trail, key=lambda entry: entry.compression)
    accuracies = _search_budget(context, entries, worst_accuracy)
    notes = []
    within_budget = []
    for entry, accuracy in accuracies.items():
        notes.append(
            f"tried {entry.compression:.1f}×: {metric.format_value(accuracy)} on the validation "
            "split after fine-tuning"
        )
        if metric.is_no_worse(accuracy, worst_accuracy):
            within_budget.append(entry)
    budget_not_met = None
    if within_budget:
        best = max(within_budget, key=lambda entry: entry.compression)
    else:
        best = metric.find_best(accuracies, lambda entry: accuracies[entry])
        budget_not_met = (
            f"no network of the trail reached {metric.format_value(worst_accuracy)} "
            f"within {pluralize(len(accuracies), 'attempt')}; the closest one is reported. "
            "Set a larger budget, more epochs or a lower learning rate"
        )
        notes.append(budget_not_met)
    selected = SelectedEntry(best, notes, budget_not_met, len(accuracies))
    return selected, finish_entry(context, best)


def finish_entry(context: RunContext, entry: LearnedEntry) -> PrunedNetwork:
    """Hard-prune to an entry of the trail and fine-tune it."""
    pruned = prune.run(context, entry)
    key = finetune_key(entry.entry)
    return finetune.run(context, pruned, context.finetune_epochs, key=key, before=context.epochs)


def find_entry(learned: ThresholdLearningResult, number: int) -> LearnedEntry:
    """Return the trail entry with a number.

    Raises:
        InputError: There is no such entry.
    """
    for entry in learned.trail:
        if entry.entry == number:
            return entry
    numbers = ", ".join(str(entry.entry) for entry in learned.trail)
    raise InputError(
        f"the trail has no entry {number}", f"entries: {numbers}; `ltp-pipeline trail` lists them"
    )


def pareto_entries(trail: tuple[LearnedEntry, ...], metric: Metric) -> set[int]:
    """Return the numbers of the entries that no other entry beats in compression and accuracy.

    Of two equal entries, neither beats the other.
    """
    merits = []
    for entry in trail:
        merits.append((entry.compression, metric.oriented_value(entry.accuracy), entry.entry))
    best_compression, best_value = 0.0, -math.inf
    numbers = set()
    for compression, value, number in sorted(merits, reverse=True):
        if value > best_value or (compression, value) == (best_compression, best_value):
            best_compression, best_value = compression, value
            numbers.add(number)
    return numbers


def _search_budget(
    context: RunContext, entries: list[LearnedEntry], worst_accuracy: float
) -> dict[LearnedEntry, float]:
    """Fine-tune entries, sorted by compression, in search of the sparsest one within the budget.

    The search begins at the sparsest entry that is within the budget before fine-tuning. It goes
    on to sparser entries while the result is within the budget, and back while it is not.

    Returns:
        The validation accuracy of each entry that was fine-tuned.
    """
    metric = context.task.metric
    position = 0
    for i, entry in enumerate(entries):
        if metric.is_no_worse(entry.accuracy, worst_accuracy):
            position = i
    accuracies: dict[LearnedEntry, float] = {}
    while 0 <= position < len(entries) and len(accuracies) < MAX_ATTEMPTS:
        entry = entries[position]
        if entry in accuracies:
            break
        state = finish_entry(context, entry).state
        accuracy = evaluate_metric(context, state, context.data.val)
        accuracies[entry] = accuracy
        is_within = metric.is_no_worse(accuracy, worst_accuracy)
        context.run_directory.progress.say(
            f"{entry.compression:.1f}× after fine-tuning: {metric.format_value(accuracy)} on the "
            f"validation split, {'within' if is_within else 'outside'} the budget "
            f"({metric.no_worse} {metric.format_value(worst_accuracy)})"
        )
        position += 1 if is_within else -1
    return accuracies
