"""Samples of a user's own data set, read one by one as it gives them: by this process, or by several others.

What a data set draws at random while it reads a sample depends on the seed and on that sample's number alone, so that
a run that goes on sees what one that was never interrupted does.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from typing import TYPE_CHECKING, Any

import numpy as np

from ltp_pipeline import draws, interrupts, own_task
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
    found = {name: task.call("dataset", name, drawn=(seed,)) for name in SPLITS}  # one order for all
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
    """A data set, read by rows: here and now, or by worker processes."""

    def __init__(self, task: OwnTask, split: str, given: Any, workers: int) -> None:
        self.task, self.workers, self._given = task, workers, given
        self._name = f"dataset({split!r})"
        self.origin = f"{self._name} of {task.origin}"
        self._lock = threading.Lock()
        self._pool: ProcessPoolExecutor | None = None
        self._names: frozenset[str] | None = None  # of what a sample holds
        with task.theirs(f"len of {self._name}"):
            self._count = len(given)
        if not self._count:
            raise InputError(f"{self.origin} is empty", "return samples, or None")

    def __len__(self) -> int:
        return self._count

    def read(self, rows: Array, seed: int | None) -> list[dict[str, Any]]:
        """These samples; a seed lets the data set draw other numbers than the last time."""
        base = 0 if seed is None else seed
        samples = self._by_workers(rows, base) if self.workers else self._here(rows, base)
        for row, sample in zip(rows, samples, strict=True):
            self._check(f"sample {row} of {self.origin}", sample)
        return samples

    def _here(self, rows: Array, seed: int) -> list[dict[str, Any]]:
        with draws.apart():
            return read_some(self._given, rows.tolist(), seed, self._name, self.task.origin)

    def _by_workers(self, rows: Array, seed: int) -> list[dict[str, Any]]:
        parts = [part.tolist() for part in np.array_split(rows, min(self.workers, len(rows)))]
        with self._lock, self.task.theirs(f"reading {self._name} by worker processes"):
            try:
                return [s for part in self._start().map(_read_in_worker, parts, [seed] * len(parts)) for s in part]
            except BrokenProcessPool:
                what = f"a process that reads {self.origin} has ended"
                raise InputError(what, "if memory ran out, set fewer workers in [data]; else try workers = 0") from None

    def _start(self) -> ProcessPoolExecutor:
        if self._pool is None:
            context = get_context("fork" if sys.platform == "linux" else "spawn")
            given = (self._given, self._name, self.task.origin)
            self._pool = ProcessPoolExecutor(self.workers, context, _begin_worker, given)
        return self._pool

    def _check(self, said: str, sample: dict[str, Any]) -> None:
        self._names = names = self._names or frozenset(sample)
        for name in sorted(names ^ set(sample)):
            has = f"has no {name!r}; it has {', '.join(map(repr, sample))}"
            what = f"{said} {has if name in names else f'has {name!r}, which others have not'}"
            raise InputError(what, "give every sample the same names; an empty array where there is nothing")
        for name, value in sample.items():
            if not own_task.is_numbers(value):
                what = f"{name!r} of {said} holds {value.dtype}, not numbers"
                raise InputError(what, "give numbers; for text, where in a list of your own it stands")


def read_some(given: Any, rows: Sequence[int], seed: int, name: str, origin: str) -> list[dict[str, Any]]:
    """Some samples, each with every generator of random numbers set by the seed and its row."""
    with own_task.theirs(f"reading a sample of {name} of {origin} failed", origin):
        return [_read_one(given, row, seed, f"sample {row} of {name} of {origin}") for row in rows]


def _read_one(given: Any, row: int, seed: int, said: str) -> dict[str, Any]:
    draws.seed(seed, row)
    sample = given[row]
    if not isinstance(sample, Mapping):
        raise InputError(f"{said} is {own_task.called(sample)}, not a dict", "return a dict of arrays by their names")
    return {str(key): own_task.as_array(value) for key, value in sample.items()}


def _begin_worker(*given: Any) -> None:
    import torch

    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # by which a pool ends its processes
    for name in {*interrupts.SIGNALS} - {"SIGTERM"}:  # which are for the process that asks
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    _in_worker["data"], _in_worker["name"], _in_worker["origin"] = given


def _end_with_parent() -> None:
    """Outlive no process that asks, however it ends."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(0)


def _read_in_worker(rows: list[int], seed: int) -> list[dict[str, Any]]:
    return read_some(_in_worker["data"], rows, seed, _in_worker["name"], _in_worker["origin"])


class OwnSplit(Split):
    """Some rows of a user's data set."""

    @property
    def reads_ahead(self) -> bool:  # type: ignore[override]  # it depends
        """Only in other processes: generators of random numbers belong to all threads of one."""
        return self._source.workers > 0

    @property
    def task(self) -> OwnTask:
        """Whose data set it is."""
        return self._source.task

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
