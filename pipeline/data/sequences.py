"""Sequences of uneven length: all values in one array, and where each sample begins; padded batch by batch."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ltp_pipeline.data.dataset import ArraySamples, Samples
from ltp_pipeline.errors import InputError
from ltp_pipeline.system.arrays import Array


class RaggedSamples:
    """Samples that differ in length; a batch is as long as its longest, or `width` where the model fixes it."""

    def __init__(
        self,
        values: Array,
        offsets: Array,
        pad: float = 0,
        width: int | None = None,
        dtype: np.dtype[Any] | None = None,
    ) -> None:
        self.values = values
        self.offsets = offsets
        self.pad = pad
        self.width = width
        self.shape: tuple[int | None, ...] = (width, *values.shape[1:])
        self.dtype: np.dtype[Any] = dtype or values.dtype

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def find_sample(self, place: int) -> int:
        """The number of the sample that has this one of all values."""
        return int(np.searchsorted(self.offsets, place, "right")) - 1

    def get_lengths(self, indices: Array) -> Array:
        """How long these samples are."""
        found: Array = self.offsets[indices + 1] - self.offsets[indices]
        return found

    def take(self, indices: Array) -> Array:
        """Copy these samples into one array, padded at the end."""
        alone = self.select(indices)
        inside = mark_values(np.diff(alone.offsets), self.width)
        padded = np.full((*inside.shape, *self.values.shape[1:]), self.pad, self.dtype)
        padded[inside] = alone.values
        return padded

    def select(self, indices: Array) -> "RaggedSamples":
        """These samples without the others, in this order."""
        lengths = self.get_lengths(indices)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        steps = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        values = self.values[np.repeat(self.offsets[indices], lengths) + steps]
        return RaggedSamples(values, offsets, self.pad, self.width, self.dtype)

    @property
    def steps(self) -> tuple[str, ...]:
        """How it is padded, in words."""
        length = "the longest of their batch" if self.width is None else f"a length of {self.width}"
        pad = int(self.pad) if float(self.pad).is_integer() else self.pad
        return (f"fill sequences up with {pad} at their ends, to {length}",)

    def with_padding(
        self, width: int | None, pad: float, dtype: np.dtype[Any] | None = None
    ) -> "RaggedSamples":
        """The same, padded with another value, or to a fixed width, or read as another type."""
        return RaggedSamples(self.values, self.offsets, pad, width, dtype or self.dtype)


class MaskSamples:
    """One where a sample of a ragged column has a value, zero where a batch is padded; or the other way round."""

    def __init__(self, of: RaggedSamples, marks_padding: bool = False) -> None:
        self.sequences, self.marks_padding = of, marks_padding
        self.shape: tuple[int | None, ...] = (of.width,)
        self.dtype: np.dtype[Any] = np.dtype(np.bool_)

    def __len__(self) -> int:
        return len(self.sequences)

    def take(self, indices: Array) -> Array:
        """The masks of these samples, as long as their batch."""
        return (
            mark_values(self.sequences.get_lengths(indices), self.sequences.width)
            ^ self.marks_padding
        )


def select_rows(samples: Mapping[str, Samples], rows: Array) -> dict[str, Samples]:
    """These rows of each input without the others; masks stay those of their sequences."""
    return {name: _only(values, rows) for name, values in samples.items()}


def _only(samples: Samples, rows: Array) -> Samples:
    if isinstance(samples, MaskSamples):
        return MaskSamples(samples.sequences.select(rows), samples.marks_padding)
    return (
        samples.select(rows)
        if isinstance(samples, RaggedSamples)
        else ArraySamples(samples.take(rows))
    )


def mark_values(lengths: Array, width: int | None) -> Array:
    """True for as many places as each row is long."""
    longest = max(int(lengths.max(initial=0)), 1) if width is None else width
    inside: Array = np.arange(longest) < lengths[:, None]
    return inside


def can_hold(dtype: np.dtype[Any], pad: float) -> bool:
    """Whether values of this type can be filled up with it."""
    if dtype.kind == "f":
        return bool(np.isfinite(pad))
    low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return float(pad).is_integer() and low <= pad <= high


def check_offsets(values: Array, offsets: Array, origin: str) -> Array:
    """Offsets as int64; an error where they do not add up to the values."""
    remedy = "give offsets that begin with 0, never fall, and end with the number of values"
    if offsets.ndim != 1 or offsets.dtype.kind not in "iu" or len(offsets) < 2:
        raise InputError(
            f"{origin} has {offsets.dtype} of shape {offsets.shape}, not a list of offsets", remedy
        )
    offsets = offsets.astype(np.int64)
    if offsets[0] != 0 or offsets[-1] != len(values):
        said = f"{origin} begins with {offsets[0]} and ends with {offsets[-1]}, and there are {len(values)} values"
        raise InputError(said, remedy)
    falls = np.flatnonzero(np.diff(offsets) < 0)
    if len(falls):
        raise InputError(f"{origin} falls after offset {falls[0]}", remedy)
    return offsets
