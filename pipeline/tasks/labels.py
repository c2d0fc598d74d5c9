"""Checks of labels before training, and conversion of one-hot labels to class numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ltp_pipeline.data.checks import iter_chunks
from ltp_pipeline.data.dataset import TARGET, DatasetSplits, Samples, Split
from ltp_pipeline.errors import InputError
from ltp_pipeline.system.arrays import Array


class OneHotClasses:
    """Class numbers of samples that are stored as one-hot labels."""

    def __init__(self, labels: Samples, axis: int) -> None:
        """Wrap labels that mark their class along an axis; axis 0 counts the samples."""
        self.labels = labels
        self.axis = axis
        self.shape = (*labels.shape[: axis - 1], *labels.shape[axis:])
        self.dtype: np.dtype[Any] = np.dtype(np.int64)

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: Array) -> Array:
        """Return the class numbers of these samples."""
        numbers: Array = self.labels.take(indices).argmax(self.axis)
        return numbers


def convert_one_hot(data: DatasetSplits, axis: int) -> DatasetSplits:
    """Return the data with class numbers; a 1 along this axis of stored labels marks the class."""
    converted = {}
    for split in dict.fromkeys(data.splits):  # two of them may be the same
        targets = {TARGET: OneHotClasses(split.targets[TARGET], axis)}
        converted[split] = Split(split.name, split.inputs, targets, split.rows)
    train, val, test = map(converted.__getitem__, data.splits)
    note = "the labels are one-hot: the position of the 1 is used as the class number"
    return replace(data, train=train, val=val, test=test, notes=(*data.notes, note))


def is_one_hot(labels: Array, axis: int) -> bool:
    """Return True if labels mark exactly one of at least two classes along an axis."""
    if labels.ndim < 2 or labels.shape[axis] < 2:
        return False
    is_binary = bool(((labels == 0) | (labels == 1)).all())
    return is_binary and bool((labels.sum(axis, dtype=np.int64) == 1).all())


def check_class_numbers(
    data: DatasetSplits, num_classes: int, ignore_index: int | None = None
) -> None:
    """Raise InputError if a label is not a class number from 0 to `num_classes` - 1.

    Args:
        data: Data whose labels are class numbers.
        num_classes: Number of classes that the model scores.
        ignore_index: Label of positions without a class; None for one label per sample.
    """
    limits = _find_label_range(data, ignore_index)
    if limits is None:
        return
    lowest, highest = limits
    if lowest < 0:
        hint = "number the classes from 0"
        if ignore_index is not None:
            hint += f"; {_suggest_ignore_index(lowest)}"
        raise InputError(f"{_locate_label(data, lowest)}, which is not a class number", hint)
    if highest < num_classes:
        return
    message = (
        f"{_locate_label(data, highest)}: the labels go from {lowest} to {highest}, and the model "
        f"has {num_classes} classes, 0 to {num_classes - 1}"
    )
    if lowest == 1 and highest == num_classes:
        raise InputError(message, "the labels start at 1: subtract 1 from each")
    others = None if ignore_index is None else _find_label_range(data, ignore_index, highest)
    if others is None or others[1] >= num_classes:
        raise InputError(message, "pass the data the model was trained for, with its class numbers")
    hint = _suggest_ignore_index(highest)
    if others[1] == 0 and num_classes == 2:
        hint += f"; if it is the second class, store 1 instead of {highest}"
    raise InputError(message, hint)


def check_multi_hot(data: DatasetSplits) -> None:
    """Raise InputError if a label is neither 0 nor 1."""
    for start, labels in _iter_label_chunks(data):
        _check_binary(start, labels, "store 1 for each label that a sample has, and 0 for others")


def check_one_hot(data: DatasetSplits, axis: int) -> None:
    """Raise InputError if labels do not mark exactly one class along an axis."""
    for start, labels in _iter_label_chunks(data):
        hint = "store 1 for one class and 0 for all others"
        if labels.ndim == 2:
            hint += '; if a sample may have several classes, set kind = "multilabel" in [task]'
        _check_binary(start, labels, hint)
        num_marked = labels.sum(axis, dtype=np.int64)
        wrong = np.argwhere(num_marked != 1)
        if len(wrong):
            row, count = int(wrong[0][0]), num_marked[tuple(wrong[0])]
            raise InputError(
                f"the labels of sample {start + row} mark {count} classes, and one-hot labels mark "
                "one",
                hint,
            )


def _check_binary(start: int, labels: Array, hint: str) -> None:
    """Raise InputError if a label is neither 0 nor 1; `start` is the number of the first sample."""
    wrong = np.argwhere((labels != 0) & (labels != 1))
    if len(wrong):
        row, value = int(wrong[0][0]), labels[tuple(wrong[0])]
        raise InputError(
            f"the labels of sample {start + row} contain {value:g}, which is neither 0 nor 1", hint
        )


def _locate_label(data: DatasetSplits, label: int) -> str:
    """Return which sample has a label first."""
    for start, labels in _iter_label_chunks(data):
        matches = np.argwhere(labels == label)
        if len(matches):
            return f"sample {start + int(matches[0][0])} has the label {label}"
    return f"there is the label {label}"


def _suggest_ignore_index(label: int) -> str:
    """Return the hint for a label that may mark positions without a class."""
    return f"if {label} marks positions without a class, set ignore_index = {label} in [task]"


def _find_label_range(data: DatasetSplits, *excluded: int | None) -> tuple[int, int] | None:
    """Return the smallest and the largest label, without some; None if there are no others."""
    limits: list[int] = []
    for _, labels in _iter_label_chunks(data):
        for label in excluded:
            if label is not None:
                labels = labels[labels != label]
        if labels.dtype.kind == "f":
            fractions = labels[labels != np.rint(labels)]
            if fractions.size:
                raise InputError(
                    f"the labels contain {fractions.flat[0]:g}, which is not a class number",
                    "number the classes from 0",
                )
        if labels.size:
            limits += [int(labels.min()), int(labels.max())]
    return (min(limits), max(limits)) if limits else None


def _iter_label_chunks(data: DatasetSplits) -> Iterator[tuple[int, Array]]:
    """Yield all labels of all splits in chunks, each with the number of its first sample."""
    columns = {id(split.targets[TARGET]): split.targets[TARGET] for split in data.splits}
    for column in columns.values():
        yield from iter_chunks(column)
