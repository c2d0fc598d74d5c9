"""Which network of the trail to finish: the last one, or the sparsest that stays within an accuracy budget.

Choosing looks only at the validation split.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ltp_pipeline.errors import InputError
from ltp_pipeline.records import LearnedThresholds, PrunedModel, TrailEntry
from ltp_pipeline.stages import finetune, prune
from ltp_pipeline.words import counted

if TYPE_CHECKING:
    from ltp_pipeline.stages.training import Training

ROUNDING = 1e-9  # what is exactly at the limit is within it
MOST_ATTEMPTS = 4  # networks that are fine-tuned in search of the sparsest within the budget


class Chosen(NamedTuple):
    """The entry, the network made of it, what was tried on the way, and why it is outside the budget if it is."""

    entry: TrailEntry
    tuned: PrunedModel
    notes: list[str]
    missed: str | None = None


def run(learned: LearnedThresholds, training: Training, epochs: int, least: float | None) -> Chosen:
    """Prune and fine-tune; `least` is the lowest accuracy that will do."""
    if least is None:
        return Chosen(learned.trail[-1], finish(learned.trail[-1], training, epochs), [])
    least -= ROUNDING
    entries = sorted(learned.trail, key=lambda e: e.compression)
    tried = _search(entries, training, epochs, least)
    held = [e for e, accuracy in tried.items() if accuracy >= least]
    notes = [f"tried {e.compression:.1f}×: {a:.2%} on the validation split, fine-tuned" for e, a in tried.items()]
    missed = None
    if held:
        best = max(held, key=lambda e: e.compression)
    else:
        best = max(tried, key=lambda e: tried[e])
        missed = (
            f"no network of the trail reached {least:.2%} within {counted(len(tried), 'attempt')}; "
            "the closest is reported: give a larger accuracy budget, more epochs or a lower learning rate"
        )
    return Chosen(best, finish(best, training, epochs), [*notes, *([missed] if missed else [])], missed)


def finish(entry: TrailEntry, training: Training, epochs: int) -> PrunedModel:
    """Hard-prune to an entry of the trail and fine-tune it."""
    pruned = prune.run(entry, training.imported, training.workspace)
    learning = training.epochs
    return finetune.run(pruned, training, epochs, key=finetune.key_of(entry), before=learning)


def find(learned: LearnedThresholds, number: int) -> TrailEntry:
    """The entry of this number."""
    for entry in learned.trail:
        if entry.entry == number:
            return entry
    numbers = ", ".join(str(e.entry) for e in learned.trail)
    raise InputError(f"the trail has no entry {number}", f"entries: {numbers}; `ltp-pipeline trail` lists them")


def pareto(trail: tuple[TrailEntry, ...]) -> set[int]:
    """Entries that no other beats: of two alike, neither beats the other."""
    best = (0.0, -1.0)
    found = set()
    for entry in sorted(trail, key=lambda e: (-e.compression, -e.accuracy)):
        if entry.accuracy > best[1] or (entry.compression, entry.accuracy) == best:
            best = (entry.compression, entry.accuracy)
            found.add(entry.entry)
    return found


def _search(entries: list[TrailEntry], training: Training, epochs: int, least: float) -> dict[TrailEntry, float]:
    """Fine-tune from the sparsest entry that is good as it is: on while the result holds, back while it does not."""
    good = [i for i, e in enumerate(entries) if e.accuracy >= least]
    position = max(good, default=0)
    tried: dict[TrailEntry, float] = {}
    while 0 <= position < len(entries) and entries[position] not in tried and len(tried) < MOST_ATTEMPTS:
        entry = entries[position]
        finish(entry, training, epochs)
        tried[entry] = training.accuracy(training.data.val)
        holds = tried[entry] >= least
        training.workspace.progress.say(
            f"{entry.compression:.1f}× fine-tuned: {tried[entry]:.2%} on the validation split, "
            f"{'within' if holds else 'outside'} the budget (at least {least:.2%})"
        )
        position += 1 if holds else -1
    return tried
