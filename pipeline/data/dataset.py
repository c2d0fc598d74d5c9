"""Samples, splits of them and batches. Samples stay as they are stored until a batch is read."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np

from ltp_pipeline.data.images.augment import Move, shift_images
from ltp_pipeline.data.preprocessing import prepare_samples
from ltp_pipeline.results.schema_parts import InputRecipe
from ltp_pipeline.settings.schema import DataSettings
from ltp_pipeline.system import threads
from ltp_pipeline.system.arrays import Array

Layout = Literal["NCHW", "NHWC"]
TRAIN = "train"  # name of the training split
TARGET = "target"  # name of what outputs are compared with, in data with labels
X_COLUMN = "x"  # column of the only input
Y_COLUMN = "y"  # column of the labels
NUM_THREADS = min(4, threads.count_usable_cores())  # threads of the main process that decode images
MAX_INSPECTED_TARGETS = 10_000  # targets by which the task and its chance level are inferred
MAX_INSPECTED_VALUES = 2**24  # numbers in those targets


@dataclass(frozen=True)
class Batch:
    """Some samples: inputs and targets by their names."""

    inputs: Mapping[str, Array]
    targets: Mapping[str, Any]  # arrays, or lists of arrays that differ in shape

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))


class Samples(Protocol):
    """Stored samples of one shape and dtype."""

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Shape of one sample; None for an axis of sequences of uneven length."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the stored values."""

    def __len__(self) -> int: ...

    def take(self, indices: Array) -> Array:
        """Read these samples, in this order, into a new array that the caller may change."""


class ArraySamples:
    """Samples in an array, in memory or mapped from a file."""

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
    """Class numbers: one integer for each sample, from 0."""


class NonNumericColumn(ArraySamples):
    """A column of text or of other values that are not numbers, which are not stored."""

    def __init__(self, count: int, type_name: str) -> None:
        super().__init__(np.broadcast_to(np.array(None), count))
        self.type_name = type_name


@dataclass(frozen=True)
class LoadOptions:
    """What formats take into account when they read data."""

    channels: int | None = None  # channels of decoded images; None: by the images
    size: tuple[int, int] | None = None  # height and width of decoded images; None: by the images
    inputs: tuple[str, ...] = ()  # names of the model's inputs
    settings: DataSettings = field(default_factory=DataSettings)


@dataclass(frozen=True)
class DataColumn:
    """A named column of the data, with one row for each sample."""

    samples: Samples
    origin: str  # name in messages


Part = Mapping[str, DataColumn]  # columns of a split by their names


@dataclass(frozen=True)
class RawDataset:
    """A data set as a format reads it: parts train, val and test, or one part all."""

    parts: Mapping[str, Part]
    fingerprint: str  # hash of the data
    layout: Layout | None = None  # layout of images that the format fixes
    notes: tuple[str, ...] = ()
    class_names: tuple[str, ...] | None = None  # by class number
    is_table: bool = False  # columns may be left over


class FetchedValues(NamedTuple):
    """Stored samples of one input, and the problems of files that were met while reading them."""

    values: Array
    problems: Sequence[Any] = ()


@runtime_checkable
class FileSamples(Samples, Protocol):
    """Samples in files, which are decoded when they are read and may turn out to be corrupt."""

    def fetch(self, rows: Array, augment_seed: int | None, num_threads: int) -> FetchedValues:
        """Read samples without changing this object, as a worker process must."""

    def report_problems(self, problems: Sequence[Any]) -> None:
        """Warn of corrupt files; raise InputError if there are too many."""

    def needs_decoding(self, is_augmented: bool) -> bool:
        """Return whether reading samples decodes files."""


class SplitInput(NamedTuple):
    """One input of the model in a split, and what reading with a seed does to its images.

    Attributes:
        samples: Stored samples.
        recipe: Their preprocessing.
        is_augmented: True if image files are cropped and flipped when they are decoded.
        moves: Shifts and flips of images as they are stored, or decoded.
    """

    samples: Samples
    recipe: InputRecipe
    is_augmented: bool = False
    moves: tuple[Move, ...] = ()

    def fetch(self, rows: Array, augment_seed: int | None, num_threads: int = 1) -> FetchedValues:
        """Read stored samples, and augment them if the split is augmented and a seed is passed."""
        if isinstance(self.samples, FileSamples):
            seed = augment_seed if self.is_augmented else None
            fetched = self.samples.fetch(rows, seed, num_threads)
        else:
            fetched = FetchedValues(self.samples.take(rows))
        if augment_seed is None or not self.moves:
            return fetched
        has_channels_first = fetched.values.ndim == 4 and not self.recipe.channels_to_front
        axis = 2 if has_channels_first else 1
        moved = shift_images(fetched.values, rows, augment_seed, axis, self.moves)
        return fetched._replace(values=moved)

    def prepare(self, fetched: FetchedValues) -> Array:
        """Return fetched samples as the model takes them; report files that were corrupt."""
        if fetched.problems and isinstance(self.samples, FileSamples):
            self.samples.report_problems(fetched.problems)
        return prepare_samples(self.recipe, fetched.values)


@dataclass(eq=False)
class Split:
    """Some rows of the stored samples, prepared when they are read.

    Attributes:
        name: Name of the split: train, val or test.
        inputs: Samples and preprocessing of each input.
        targets: What outputs are compared with; empty without labels.
        rows: Rows of the stored samples that belong to the split.
        num_workers: Number of worker processes that decode image files; 0 uses threads.
    """

    name: str
    inputs: Mapping[str, SplitInput]
    targets: Mapping[str, Samples]
    rows: Array
    num_workers: int = 0

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def labels(self) -> Array | None:
        """Class number of each sample; None if samples have no class numbers."""
        target = self.targets.get(TARGET)
        if isinstance(target, ClassNumbers):
            return target.take(self.rows)
        return None

    @cached_property
    def inspected_targets(self) -> Array:
        """Targets of all samples, or of some that are spread over the split."""
        target = self.targets[TARGET]
        values_per_sample = math.prod(n or 1 for n in target.shape)
        count = max(1, MAX_INSPECTED_VALUES // max(1, values_per_sample))
        count = min(count, MAX_INSPECTED_TARGETS, len(self))
        indices = np.linspace(0, len(self) - 1, count).astype(np.int64)
        return target.take(self.rows[indices])

    def count_workers(self, is_augmented: bool) -> int:
        """Return the number of worker processes for reading; 0 if no file has to be decoded."""
        for source in self.inputs.values():
            if isinstance(source.samples, FileSamples):
                changes_images = is_augmented and source.is_augmented
                if source.samples.needs_decoding(changes_images):
                    return self.num_workers
        return 0

    def select(self, indices: Array) -> Split:
        """Return a split of some samples of this one."""
        selected = copy(self)
        selected.__dict__.pop("labels", None)
        selected.__dict__.pop("inspected_targets", None)
        selected.rows = self.rows[indices]
        return selected

    def with_moves(self, moves: tuple[Move, ...]) -> Split:
        """Return a split whose images are shifted and flipped when they are read with a seed."""
        moved = copy(self)
        moved.inputs = {n: source._replace(moves=moves) for n, source in self.inputs.items()}
        return moved

    def read_first(self, count: int) -> Batch:
        """Return the first samples, at most `count`."""
        return self.read(np.arange(min(count, len(self))))

    def read(self, indices: Array, augment_seed: int | None = None) -> Batch:
        """Return samples as the model takes them.

        Args:
            indices: Indices of the samples in the split.
            augment_seed: Seed for augmentation; None, or a split without it, does not augment.
        """
        rows = self.rows[indices]
        return self.make_batch(rows, self.fetch(rows, augment_seed, NUM_THREADS))

    def fetch(self, rows: Array, augment_seed: int | None, num_threads: int = 1) -> Any:
        """Read these rows of the stored samples for `make_batch` without changing the split."""
        inputs = {}
        for name, source in self.inputs.items():
            inputs[name] = source.fetch(rows, augment_seed, num_threads)
        targets = {name: samples.take(rows) for name, samples in self.targets.items()}
        return inputs, targets

    @property
    def fetch_in_worker(self) -> Callable[[Array, int | None], Any]:
        """Function that worker processes call: `fetch` of a copy that keeps nothing alive."""
        return copy(self).fetch

    def make_batch(self, rows: Array, fetched: Any) -> Batch:  # noqa: ARG002 - others need the rows
        """Prepare fetched samples of these rows in the main process."""
        values, targets = fetched
        inputs = {name: source.prepare(values[name]) for name, source in self.inputs.items()}
        return Batch(inputs, targets)


@dataclass(frozen=True)
class DatasetSplits:
    """The three splits of a data set; test and val may be the same."""

    train: Split
    val: Split
    test: Split
    num_classes: int | None  # None if samples have no class numbers
    fingerprint: str  # hash of the data and of their division
    notes: tuple[str, ...] = ()  # decisions that the user should know
    class_names: tuple[str, ...] | None = None  # by class number

    @property
    def splits(self) -> tuple[Split, Split, Split]:
        """Training, validation and test split."""
        return self.train, self.val, self.test

    def list_samples(self, input_name: str) -> list[Samples]:
        """Return the samples of an input; splits of one part of the data share them."""
        samples = [split.inputs[input_name].samples for split in self.splits]
        return list(dict.fromkeys(samples))

    @property
    def has_labels(self) -> bool:
        """Whether the data have targets."""
        return bool(self.train.targets)
