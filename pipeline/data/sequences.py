"""Sequences of uneven length: stored one after the other, padded when a batch is read."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ltp_pipeline.data.dataset import ArraySamples, Samples
from ltp_pipeline.errors import InputError
from ltp_pipeline.system.arrays import Array


@dataclass(eq=False)
class RaggedSamples:
    """Sequences of uneven length in one array of all their values.

    Attributes:
        values: Values of all sequences, one after the other.
        offsets: Index of the first value of each sequence, and the number of all values.
        pad: Value that fills up shorter sequences.
        width: Length of padded sequences; None for that of the longest in a batch.
        padded_dtype: Type of padded sequences; None for that of the values.
    """

    values: Array
    offsets: Array
    pad: float = 0
    width: int | None = None
    padded_dtype: np.dtype[Any] | None = None

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Shape of one padded sequence; its length is None if it depends on the batch."""
        return (self.width, *self.values.shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of padded sequences."""
        return self.padded_dtype or self.values.dtype

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def find_sample(self, place: int) -> int:
        """Return the index of the sequence that has the value at this place of all values."""
        return int(np.searchsorted(self.offsets, place, "right")) - 1

    def get_lengths(self, indices: Array) -> Array:
        """Return the lengths of these sequences."""
        lengths: Array = self.offsets[indices + 1] - self.offsets[indices]
        return lengths

    def take(self, indices: Array) -> Array:
        """Copy these sequences into one array, padded at their ends."""
        selected = self.select(indices)
        has_value = mark_values(np.diff(selected.offsets), self.width)
        padded = np.full((*has_value.shape, *self.values.shape[1:]), self.pad, self.dtype)
        padded[has_value] = selected.values
        return padded

    def select(self, indices: Array) -> "RaggedSamples":
        """Return these sequences, in this order."""
        lengths = self.get_lengths(indices)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        steps = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        values = self.values[np.repeat(self.offsets[indices], lengths) + steps]
        return replace(self, values=values, offsets=offsets)


@dataclass(eq=False)
class MaskSamples:
    """Masks of sequences: True at their values and False at their padding, or the reverse."""

    sequences: RaggedSamples
    marks_padding: bool = False
    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.bool_)

    @property
    def shape(self) -> tuple[int | None]:
        """Length of one mask; None if it depends on the batch."""
        return (self.sequences.width,)

    def __len__(self) -> int:
        return len(self.sequences)

    def take(self, indices: Array) -> Array:
        """Compute the masks of these sequences, as long as their batch."""
        lengths = self.sequences.get_lengths(indices)
        return mark_values(lengths, self.sequences.width) ^ self.marks_padding


def select_rows(samples: Mapping[str, Samples], rows: Array) -> dict[str, Samples]:
    """Return these rows of each input; masks belong to the sequences of these rows."""
    selected: dict[str, Samples] = {}
    for name, values in samples.items():
        if isinstance(values, MaskSamples):
            selected[name] = replace(values, sequences=values.sequences.select(rows))
        elif isinstance(values, RaggedSamples):
            selected[name] = values.select(rows)
        else:
            selected[name] = ArraySamples(values.take(rows))
    return selected


def mark_values(lengths: Array, width: int | None) -> Array:
    """Return a mask of the values of sequences that are padded to a width, or to the longest."""
    if width is None:
        width = max(int(lengths.max(initial=0)), 1)
    has_value: Array = np.arange(width) < lengths[:, None]
    return has_value


def can_hold(dtype: np.dtype[Any], pad: float) -> bool:
    """Return whether an array of this type can hold the padding value."""
    if dtype.kind == "f":
        return bool(np.isfinite(pad))
    low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return float(pad).is_integer() and low <= pad <= high


def check_offsets(values: Array, offsets: Array, origin: str) -> Array:
    """Return offsets as int64; raise InputError if they do not divide the values into sequences."""
    hint = "store offsets that begin with 0, never decrease, and end with the number of values"
    if offsets.ndim != 1 or offsets.dtype.kind not in "iu" or len(offsets) < 2:
        raise InputError(
            f"{origin} must be a list of at least two integers, but it is {offsets.dtype}"
            f" of shape {offsets.shape}",
            hint,
        )
    offsets = offsets.astype(np.int64)
    if offsets[0] != 0 or offsets[-1] != len(values):
        raise InputError(
            f"{origin} must begin with 0 and end with {len(values)}, the number of values,"
            f" but it begins with {offsets[0]} and ends with {offsets[-1]}",
            hint,
        )
    decreases = np.flatnonzero(np.diff(offsets) < 0)
    if len(decreases):
        raise InputError(f"{origin} decreases after offset {decreases[0]}", hint)
    return offsets
