"""What a format hands over, and what the rest of the pipeline reads: samples stay stored until a batch is asked for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from ltp_pipeline.task import LABEL, Batch

Array = np.ndarray[Any, Any]
Layout = Literal["NCHW", "NHWC"]


class Samples(Protocol):
    """Stored samples of one shape and dtype; `take` returns a new array that the caller may change."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """As stored."""

    def __len__(self) -> int: ...

    def take(self, indices: Array) -> Array:
        """Read these samples, in this order."""


class ArraySamples:
    """Samples that are already in memory, in the dtype they were stored in."""

    def __init__(self, array: Array) -> None:
        self._array = array
        self.shape: tuple[int, ...] = array.shape[1:]
        self.dtype: np.dtype[Any] = array.dtype

    def __len__(self) -> int:
        return len(self._array)

    def take(self, indices: Array) -> Array:
        """Copy these samples."""
        return np.take(self._array, indices, axis=0)


@dataclass(frozen=True)
class Wanted:
    """What a format that can choose should deliver; None where nothing is said."""

    channels: int | None = None
    size: tuple[int, int] | None = None  # height, width
    crop: float | None = None  # share of the shorter side that the centre keeps
    workers: int = 0  # processes; 0 decodes by threads
    max_broken: int = 0  # images that may be left out


@dataclass(frozen=True)
class Part:
    """Samples and labels as a format found them; `origin` is what messages call them."""

    samples: Samples
    labels: Array | None  # None where there are none: then the original model itself is what is learned from
    origin: str
    labels_origin: str


@dataclass(frozen=True)
class Stored:
    """A data set as a format found it: parts "train", "val" and "test", or "all" where nothing was divided."""

    parts: Mapping[str, Part]
    fingerprint: str
    layout: Layout | None = None  # where the format itself fixes it
    notes: tuple[str, ...] = ()
    class_names: tuple[str, ...] | None = None  # by number


class Input(NamedTuple):
    """What a split takes one input of the model from: stored samples, and how they become what the model takes."""

    samples: Samples
    prepare: Callable[[Array], Array]
    augmented: Callable[[Array, int], Array] | None = None  # stored samples by row and seed, for training


class Split:
    """Some rows of the stored samples, prepared as they are read."""

    def __init__(self, name: str, inputs: Mapping[str, Input], targets: Mapping[str, Array], rows: Array) -> None:
        self.name = name
        self.inputs = inputs
        self.targets = {target: values[rows] for target, values in targets.items()}
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def labels(self) -> Array | None:
        """The class number of each sample; None where there are none."""
        return self.targets.get(LABEL)

    @property
    def input(self) -> Input:
        """The one input that there is."""
        (only,) = self.inputs.values()
        return only

    def first(self, count: int) -> Batch:
        """The first samples, as many as there are."""
        return self.read(np.arange(min(count, len(self))))

    def read(self, indices: Array, augment_seed: int | None = None) -> Batch:
        """Return these samples as the model takes them; a seed augments them where the split is for training so."""
        rows = self.rows[indices]
        inputs = {name: _prepared(source, rows, augment_seed) for name, source in self.inputs.items()}
        return Batch(inputs, {name: values[indices] for name, values in self.targets.items()})


def _prepared(source: Input, rows: Array, augment_seed: int | None) -> Array:
    if augment_seed is None or source.augmented is None:
        return source.prepare(source.samples.take(rows))
    return source.prepare(source.augmented(rows, augment_seed))


@dataclass(frozen=True)
class Data:
    """The three splits; `notes` says what was decided for the user."""

    train: Split
    val: Split
    test: Split
    classes: int | None  # None where the samples have no labels
    fingerprint: str
    notes: tuple[str, ...] = ()
    class_names: tuple[str, ...] | None = None  # by number
    steps: tuple[str, ...] = ()  # from a stored sample to the model's input, but for scale, mean and std
