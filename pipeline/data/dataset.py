"""What a format hands over, and what the rest of the pipeline reads: samples stay stored until a batch is asked for."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from ltp_pipeline.system.arrays import Array

Layout = Literal["NCHW", "NHWC"]
TARGET = "target"  # what outputs should be, of data with labels
X_COLUMN, Y_COLUMN = "x", "y"  # columns of data with one input and its labels
MAX_INSPECTED_TARGETS, MAX_INSPECTED_VALUES = (
    10_000,
    2**24,
)  # targets, and numbers in them, by which a task is told and guessed


@dataclass(frozen=True)
class Batch:
    """Some samples: what the model takes and what it should give, each by its name."""

    inputs: Mapping[str, Array]
    targets: Mapping[
        str, Any
    ]  # arrays, or lists of them for samples that differ in shape; empty without labels

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))


class Samples(Protocol):
    """Stored samples of one shape and dtype; `take` returns a new array that the caller may change."""

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Shape of one sample; None for an axis of which samples have more or less."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """As stored."""

    def __len__(self) -> int: ...

    def take(self, indices: Array) -> Array:
        """Read these samples, in this order."""


class ArraySamples:
    """Samples that are already in memory, in the dtype they were stored in."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.shape: tuple[int | None, ...] = array.shape[1:]
        self.dtype: np.dtype[Any] = array.dtype

    def __len__(self) -> int:
        return len(self.array)

    def take(self, indices: Array) -> Array:
        """Copy these samples."""
        return np.take(self.array, indices, axis=0)


class ClassNumbers(ArraySamples):
    """Whole numbers from 0 on, one a sample."""


class NonNumericColumn:
    """A column of text or the like: it is there, and `holds` says what it is of, but nothing takes it."""

    def __init__(self, count: int, holds: str) -> None:
        self.count = count
        self.type_name = holds
        self.shape: tuple[int | None, ...] = ()
        self.dtype: np.dtype[Any] = np.dtype(object)

    def __len__(self) -> int:
        return self.count

    def take(self, indices: Array) -> Array:
        """Nobody should."""
        raise TypeError(f"{len(indices)} rows of {self.type_name} are read as numbers")


@dataclass(frozen=True)
class LoadOptions:
    """What a format that can choose should deliver; None where nothing is said."""

    channels: int | None = None
    size: tuple[int, int] | None = None  # height, width
    crop: float | None = None  # share of the shorter side that the centre keeps
    workers: int = 0  # processes; 0 decodes by threads
    max_corrupt_images: int = 0  # images that may be left out
    inputs: tuple[str, ...] = ()  # names of the model's
    max_bytes: int | None = None  # that the data may hold; None: by rule
    max_pixels: int = 80_000_000  # of one image


@dataclass(frozen=True)
class DataColumn:
    """What a format found under one name, a row for each sample; `origin` is what messages call it."""

    samples: Samples
    origin: str


Part = Mapping[str, DataColumn]  # the columns of a split by their names


@dataclass(frozen=True)
class RawDataset:
    """A data set as a format found it: parts "train", "val" and "test", or "all" where nothing was divided."""

    parts: Mapping[str, Part]
    fingerprint: str
    layout: Layout | None = None  # where the format itself fixes it
    notes: tuple[str, ...] = ()
    class_names: tuple[str, ...] | None = None  # by number
    is_table: bool = False  # with whatever columns a table has


class SplitInput(NamedTuple):
    """What a split takes one input of the model from: stored samples, and how they become what the model takes."""

    samples: Samples
    prepare: Callable[[Array], Array]
    augmented: Callable[[Array, int], Array] | None = (
        None  # stored samples by row and seed, for training
    )


class Split:
    """Some rows of the stored samples, prepared as they are read."""

    reads_ahead = True  # whether other threads may read batches while one is used

    def __init__(
        self,
        name: str,
        inputs: Mapping[str, SplitInput],
        targets: Mapping[str, Samples],
        rows: Array,
    ) -> None:
        self.name = name
        self.inputs = inputs
        self.targets = targets
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def labels(self) -> Array | None:
        """The class number of each sample; None where samples have none."""
        target = self.targets.get(TARGET)
        return target.take(self.rows) if isinstance(target, ClassNumbers) else None

    @cached_property
    def inspected_targets(self) -> Array:
        """What outputs should be, of all samples or of some from everywhere in the split; inputs are not read."""
        target = self.targets[TARGET]
        fitting = max(1, MAX_INSPECTED_VALUES // max(1, math.prod(n or 1 for n in target.shape)))
        chosen = np.linspace(
            0, len(self) - 1, min(len(self), MAX_INSPECTED_TARGETS, fitting)
        ).astype(np.int64)
        return target.take(self.rows[chosen])

    def read_first(self, count: int) -> Batch:
        """The first samples, as many as there are."""
        return self.read(np.arange(min(count, len(self))))

    def read(self, indices: Array, augment_seed: int | None = None) -> Batch:
        """Return these samples as the model takes them; a seed augments them where the split is for training so."""
        rows = self.rows[indices]
        inputs = {
            name: _prepared(source, rows, augment_seed) for name, source in self.inputs.items()
        }
        return Batch(inputs, {name: values.take(rows) for name, values in self.targets.items()})


def _prepared(source: SplitInput, rows: Array, augment_seed: int | None) -> Array:
    if augment_seed is None or source.augmented is None:
        return source.prepare(source.samples.take(rows))
    return source.prepare(source.augmented(rows, augment_seed))


@dataclass(frozen=True)
class DatasetSplits:
    """The three splits; `notes` says what was decided for the user."""

    train: Split
    val: Split
    test: Split
    num_classes: int | None  # None where the samples have no class numbers
    fingerprint: str
    notes: tuple[str, ...] = ()
    class_names: tuple[str, ...] | None = None  # by number
    steps: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # from stored sample to input, but for scale, …

    @property
    def splits(self) -> tuple[Split, Split, Split]:
        """For training, validation and test; the last two may be one."""
        return self.train, self.val, self.test

    @property
    def has_labels(self) -> bool:
        """Whether it says what outputs should be."""
        return bool(self.train.targets)
