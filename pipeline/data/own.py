"""Samples of a user's own data set, read one by one as it gives them: by this process, or by several others.

What a data set draws at random while it reads a sample depends on the seed and on that sample's number alone, so that
a run that goes on sees what one that was never interrupted does.
"""

from __future__ import annotations

import hashlib
import random
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import numpy as np

from ltp_pipeline.config import DataSettings
from ltp_pipeline.data.division import divide
from ltp_pipeline.data.preparation import Preparation, type_of
from ltp_pipeline.data.samples import Array, ArraySamples, Data, Input, Split
from ltp_pipeline.errors import InputError
from ltp_pipeline.records import TensorInfo
from ltp_pipeline.task import Batch

if TYPE_CHECKING:
    from ltp_pipeline.own_task import OwnTask

SPLITS = ("train", "val", "test")
LOOKED_AT = 256
_in_worker: dict[str, Any] = {}  # what a worker process reads from


def open_own(task: OwnTask, settings: DataSettings, inputs: Sequence[TensorInfo], seed: int) -> Data:
    """The three splits of a user's data set; samples that are missing for validation are split off."""
    if settings.path is not None:
        raise InputError(f"both a task ({task.origin}) and data ({settings.path}) are given", "give one of them")
    found = {name: task.call("dataset", name) for name in SPLITS}
    if found["train"] is None:
        raise InputError(f"dataset('train') of {task.origin} is None", "return the training samples")
    sets = {name: Rows(task, name, given, settings.workers) for name, given in found.items() if given is not None}
    rows, notes = divide({n: np.zeros(len(s), np.int64) for n, s in sets.items()}, settings.validation_share, seed)
    splits = {name: OwnSplit(name, sets[source], inputs, chosen) for name, (source, chosen) in rows.items()}
    if rows["test"] is rows["val"]:
        splits["test"] = splits["val"]
    sizes = " ".join(f"{name} {len(sets[rows[name][0]])}" for name in SPLITS)
    digest = hashlib.sha256(f"{task.fingerprint} {sizes}".encode())
    for name in SPLITS:
        digest.update(splits[name].rows.tobytes())
    steps = {info.name: () for info in inputs}
    return Data(splits["train"], splits["val"], splits["test"], None, digest.hexdigest(), notes, steps=steps)


class Rows:
    """A data set, read by rows; several threads may ask, and one at a time reads."""

    def __init__(self, task: OwnTask, split: str, given: Any, workers: int) -> None:
        self.origin = f"dataset({split!r}) of {task.origin}"
        self._task, self._given, self._workers = task, given, workers
        self._lock = threading.Lock()
        self._pool: ProcessPoolExecutor | None = None
        with task.theirs(f"len of {self.origin}"):
            self._count = len(given)
        if not self._count:
            raise InputError(f"{self.origin} is empty", "return samples, or None")

    def __len__(self) -> int:
        return self._count

    def read(self, rows: Array, seed: int | None) -> list[dict[str, Any]]:
        """These samples; a seed lets the data set draw other numbers than the last time."""
        base = 0 if seed is None else seed
        with self._lock, self._task.theirs(f"reading a sample in {self.origin}"):
            if not self._workers:
                return [read_one(self._given, int(row), base) for row in rows]
            found: list[dict[str, Any]] = []
            parts = np.array_split(rows, min(self._workers, len(rows)))
            for part in self._start().map(_read_in_worker, [part.tolist() for part in parts], [base] * len(parts)):
                found += part
            return found

    def _start(self) -> ProcessPoolExecutor:
        if self._pool is None:
            context = get_context("fork" if sys.platform == "linux" else "spawn")
            self._pool = ProcessPoolExecutor(self._workers, context, _begin_worker, (self._given,))
        return self._pool


def read_one(given: Any, row: int, seed: int) -> dict[str, Any]:
    """One sample, with every generator of random numbers set by the seed and its row."""
    import torch

    drawn = int.from_bytes(hashlib.sha256(f"{seed}/{row}".encode()).digest()[:4], "big")
    random.seed(drawn)
    np.random.seed(drawn)
    state = torch.get_rng_state()  # which training uses at the same time
    torch.default_generator.manual_seed(drawn)  # torch.manual_seed takes a millisecond, and sets those of devices too
    try:
        sample = given[row]
    finally:
        torch.set_rng_state(state)
    if not isinstance(sample, Mapping):
        raise TypeError(f"sample {row} is a {type(sample).__name__}, not a dict of arrays by name")
    return {str(name): np.asarray(value) for name, value in sample.items()}


def _begin_worker(given: Any) -> None:
    import torch

    torch.set_num_threads(1)
    _in_worker["data"] = given


def _read_in_worker(rows: list[int], seed: int) -> list[dict[str, Any]]:
    return [read_one(_in_worker["data"], row, seed) for row in rows]


class OwnSplit(Split):
    """Some rows of a user's data set."""

    def __init__(self, name: str, source: Rows, inputs: Sequence[TensorInfo], rows: Array) -> None:
        self._source = source
        self._types = {info.name: type_of(info) for info in inputs}
        first = source.read(rows[:1], None)[0]
        missing = [name for name in self._types if name not in first]
        if missing:
            raise InputError(
                f"samples of {source.origin} have no {missing[0]!r}, which the model takes; they have "
                f"{', '.join(map(repr, first))}",
                "name the arrays of a sample after the model's inputs",
            )
        columns = {n: Input(Column(source, n, first[n]), Preparation(dtype)) for n, dtype in self._types.items()}
        super().__init__(name, columns, {}, rows)

    def read(self, indices: Array, augment_seed: int | None = None) -> Batch:
        """These samples: inputs stacked, all else beside them."""
        samples = self._source.read(self.rows[indices], augment_seed)
        whole = {name: _stacked([sample[name] for sample in samples]) for name in samples[0]}
        inputs = {}
        for name, dtype in self._types.items():
            values = whole[name]
            if isinstance(values, list):
                shapes = " and ".join(str(v.shape) for v in {v.shape: v for v in values}.values())
                raise InputError(
                    f"samples of {self._source.origin} differ in the shape of {name!r}: {shapes}", "pad them"
                )
            inputs[name] = whole[name] = np.ascontiguousarray(values, dtype)
        return Batch(inputs, whole)


class Column:
    """One input of the samples, for those who look at it alone."""

    def __init__(self, source: Rows, name: str, first: Array) -> None:
        self._source, self._name = source, name
        self.shape: tuple[int | None, ...] = first.shape
        self.dtype: np.dtype[Any] = first.dtype

    def __len__(self) -> int:
        return len(self._source)

    def first(self) -> ArraySamples:
        """The first ones, by which the range of values is told: reading all may take long."""
        return ArraySamples(self.take(np.arange(min(LOOKED_AT, len(self)))))

    def take(self, indices: Array) -> Array:
        """Read these."""
        return np.stack([sample[self._name] for sample in self._source.read(indices, None)])


def _stacked(values: list[Array]) -> Array | list[Array]:
    alike = all(value.shape == values[0].shape for value in values)
    return np.stack(values) if alike else values
