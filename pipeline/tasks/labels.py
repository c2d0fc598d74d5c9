"""Labels that a task cannot take: what is wrong with them, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ltp_pipeline.data.checks import iter_chunks
from ltp_pipeline.data.dataset import TARGET
from ltp_pipeline.errors import InputError

if TYPE_CHECKING:
    from ltp_pipeline.data.dataset import DatasetSplits
    from ltp_pipeline.system.arrays import Array

SEVERAL = 'or write kind = "multilabel" under [task] where a sample may have several'


def check_classes(data: DatasetSplits, classes: int, ignored: int | None = None) -> None:
    """Refuse labels that the model has no output for; one that is `ignored` may be among those of positions."""
    ends = _label_range(data, ignored)
    if ends is None:
        return
    lowest, highest = ends
    if lowest < 0:
        what, remedy = (
            f"{_find_label(data, lowest)} {lowest}, which is no class number",
            "number the classes from 0",
        )
        raise InputError(
            what, remedy if ignored is None else f"{remedy}; {_suggest_ignoring(lowest)}"
        )
    if highest < classes:
        return
    what = f"the labels are {lowest}..{highest}, the model has {classes} classes (0..{classes - 1})"
    what = f"{_find_label(data, highest)} {highest}: {what}"
    if lowest == 1 and highest == classes:
        raise InputError(what, "the labels count from 1: subtract 1 from each")
    others = None if ignored is None else _label_range(data, ignored, highest)
    if others is None or others[1] >= classes:
        raise InputError(what, "give the data the model was trained for, with its class numbers")
    remedy = (
        f"; if it is the second class, write 1 for {highest}"
        if others[1] == 0 and classes == 2
        else ""
    )
    raise InputError(what, _suggest_ignoring(highest) + remedy)


def _find_label(data: DatasetSplits, label: int) -> str:
    """Where a label stands first."""
    for start, chunk in _iter_label_chunks(data):
        found = np.argwhere(chunk == label)
        if len(found):
            return f"sample {start + int(found[0][0])} has the label"
    return "there is the label"


def _suggest_ignoring(label: int) -> str:
    return f"if {label} marks what has no label, write ignore_index = {label} under [task]"


def _label_range(data: DatasetSplits, *without: int | None) -> tuple[int, int] | None:
    """Smallest and largest label but for some; None where there are no others."""
    found = list[int]()
    for _, chunk in _iter_label_chunks(data):
        known = chunk
        for label in without:
            known = known if label is None else known[known != label]
        parts = known[known != np.rint(known)] if known.dtype.kind == "f" else known[:0]
        if parts.size:
            raise InputError(
                f"the labels hold {parts.flat[0]:g}, which is no class number",
                "number the classes from 0",
            )
        if known.size:
            found += [int(known.min()), int(known.max())]
    return (min(found), max(found)) if found else None


def _iter_label_chunks(data: DatasetSplits) -> Iterator[tuple[int, Array]]:
    """All labels of all splits, a few at a time."""
    for target in {id(s.targets[TARGET]): s.targets[TARGET] for s in data.splits}.values():
        yield from iter_chunks(target)


def check_multi_hot(data: DatasetSplits) -> None:
    """Refuse what is neither 0 nor 1."""
    for start, chunk in _iter_label_chunks(data):
        _check_zero_or_one(start, chunk, "mark labels that are there by 1, and all others by 0")


def check_one_hot(data: DatasetSplits, axis: int) -> None:
    """Refuse labels that do not mark exactly one class along an axis."""
    for start, chunk in _iter_label_chunks(data):
        remedy = "mark one class by 1, and all others by 0" + (
            f"; {SEVERAL}" if chunk.ndim == 2 else ""
        )
        _check_zero_or_one(start, chunk, remedy)
        marked = chunk.sum(axis, dtype=np.int64)
        wrong = np.argwhere(marked != 1)
        if len(wrong):
            what = f"the labels of sample {start + int(wrong[0][0])} mark {marked[tuple(wrong[0])]} classes"
            raise InputError(f"{what}, and one-hot labels mark one", remedy)


def _check_zero_or_one(start: int, chunk: Array, remedy: str) -> None:
    wrong = np.argwhere((chunk != 0) & (chunk != 1))
    if len(wrong):
        what = f"the labels of sample {start + int(wrong[0][0])} hold {chunk[tuple(wrong[0])]:g}"
        raise InputError(f"{what}, which is neither 0 nor 1", remedy)


def is_one_hot(labels: Array, axis: int) -> bool:
    """Whether each sample, or position of one, marks exactly one of two classes or more along an axis."""
    if labels.ndim < 2 or labels.shape[axis] < 2:
        return False
    return bool(
        ((labels == 0) | (labels == 1)).all() and (labels.sum(axis, dtype=np.int64) == 1).all()
    )
