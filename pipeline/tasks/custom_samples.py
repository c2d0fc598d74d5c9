"""Read samples of the user's own data set, in this process or in worker processes.

Random numbers that the data set uses for a sample depend only on the seed and on the sample's
number. So a resumed run sees the samples of a run that was never interrupted.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from typing import TYPE_CHECKING, Any

import numpy as np

from ltp_pipeline.errors import InputError
from ltp_pipeline.system import random_state, signals
from ltp_pipeline.tasks.custom import (
    describe_value,
    is_numeric,
    report_task_errors,
    to_array,
)

if TYPE_CHECKING:
    from ltp_pipeline.system.arrays import Array
    from ltp_pipeline.tasks.custom import CustomTask

    Sample = dict[str, Array]

_worker_reader: list[SampleReader] = []  # the reader of this process if it is a worker


class SampleReader:
    """Reads samples of a data set one by one, with a seed for each."""

    def __init__(self, dataset: Any, name: str, origin: str) -> None:
        """Read from `dataset`; messages call it `name` of the task `origin`."""
        self.dataset = dataset
        self.name = name
        self.origin = origin

    def read_rows(self, rows: Iterable[int], seed: int) -> list[Sample]:
        """Return samples by number."""
        return [self._read_row(row, seed) for row in rows]

    def _read_row(self, row: int, seed: int) -> Sample:
        """Return a sample; its random numbers depend on `seed` and `row`."""
        name = f"sample {row} of {self.name} of {self.origin}"
        random_state.seed_all(seed, row)
        with report_task_errors(f"reading {name} failed", self.origin):
            sample = self.dataset[row]
        if not isinstance(sample, Mapping):
            raise InputError(
                f"{name} is {describe_value(sample)}, not a dict",
                "return a dict of arrays by name",
            )
        return {str(key): to_array(value) for key, value in sample.items()}


class CustomSamples:
    """Samples of a split of the user's data set, by number."""

    def __init__(self, task: CustomTask, split: str, dataset: Any, num_workers: int) -> None:
        """Read a split of a task.

        Args:
            task: The user's task.
            split: Name of the split.
            dataset: What the task's `dataset` returns for the split.
            num_workers: Number of worker processes; 0 reads in this process.

        Raises:
            InputError: The data set is empty.
        """
        self.task = task
        self.num_workers = num_workers
        name = f"dataset({split!r})"
        self.origin = f"{name} of {task.origin}"
        self._reader = SampleReader(dataset, name, task.origin)
        self._lock = threading.Lock()
        self._pool: ProcessPoolExecutor | None = None
        self._names: frozenset[str] | None = None  # arrays that every sample has
        with task.report_errors(f"len of {name}"):
            self._count = len(dataset)
        if not self._count:
            raise InputError(f"{self.origin} is empty", "return samples, or None")

    def __len__(self) -> int:
        return self._count

    def read(self, rows: Array, seed: int | None) -> list[Sample]:
        """Return samples by number; with another seed, the data set may augment differently."""
        sample_seed = 0 if seed is None else seed
        if self.num_workers:
            samples = self._read_in_workers(rows, sample_seed)
        else:
            with random_state.isolate_rng():
                samples = self._reader.read_rows(rows.tolist(), sample_seed)
        for row, sample in zip(rows, samples, strict=True):
            self._check_sample(f"sample {row} of {self.origin}", sample)
        return samples

    def _read_in_workers(self, rows: Array, seed: int) -> list[Sample]:
        """Return samples that worker processes read, each a part of them."""
        num_parts = min(self.num_workers, len(rows))
        parts = [part.tolist() for part in np.array_split(rows, num_parts)]
        activity = f"reading {self._reader.name} by worker processes"
        samples: list[Sample] = []
        with self._lock, self.task.report_errors(activity):
            try:
                for part in self._get_pool().map(_read_in_worker, parts, [seed] * num_parts):
                    samples += part
            except BrokenProcessPool:
                raise InputError(
                    f"a worker process that reads {self.origin} has ended unexpectedly",
                    "if memory ran out, set a smaller num_workers in [data]; else set it to 0",
                ) from None
        return samples

    def _get_pool(self) -> ProcessPoolExecutor:
        """Return the worker processes, which are started when first used."""
        if self._pool is None:
            context = get_context("fork" if sys.platform == "linux" else "spawn")
            arguments = (self._reader,)
            self._pool = ProcessPoolExecutor(self.num_workers, context, _init_worker, arguments)
        return self._pool

    def _check_sample(self, description: str, sample: Sample) -> None:
        """Raise InputError if a sample has other names than the first, or no numbers."""
        if self._names is None:
            self._names = frozenset(sample)
        for name in sorted(self._names ^ set(sample)):
            if name in self._names:
                message = f"has no {name!r}; it has {', '.join(map(repr, sample))}"
            else:
                message = f"has {name!r}, which other samples do not have"
            raise InputError(
                f"{description} {message}",
                "return the same names for every sample, with an empty array if there is nothing",
            )
        for name, values in sample.items():
            if not is_numeric(values):
                raise InputError(
                    f"{name!r} of {description} has type {values.dtype}, not numbers",
                    "return numbers; for a text, return its position in a list of your own",
                )


def _init_worker(reader: SampleReader) -> None:
    """Prepare a worker process: signals, threads and what it reads."""
    import torch

    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # with which a pool ends its processes
    for name in signals.SIGNALS:
        # Other signals of the terminal are for the parent process, which then ends the pool.
        if name != "SIGTERM" and hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    _worker_reader[:] = [reader]


def _exit_with_parent() -> None:
    """Wait until the parent process ends, in whatever way, and end this process."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(0)


def _read_in_worker(rows: Sequence[int], seed: int) -> list[Sample]:
    """Return samples by number, in a worker process."""
    (reader,) = _worker_reader
    return reader.read_rows(rows, seed)
