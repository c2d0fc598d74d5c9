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
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from typing import TYPE_CHECKING, Any

import numpy as np

from ltp_pipeline.data import vocabulary
from ltp_pipeline.data.checks import NUMBER_KINDS, find_lost_value, raise_lost_value
from ltp_pipeline.data.dataset import ArraySamples, Batch, DatasetSplits, Split, SplitInput
from ltp_pipeline.data.open import INFERRED_TASK, open_data
from ltp_pipeline.data.preprocessing import Preparation, format_shape, get_input_dtype
from ltp_pipeline.data.splitting import divide_rows
from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.model_file import ModelFile, TensorInfo
from ltp_pipeline.settings.schema import DataSettings, TaskSettings
from ltp_pipeline.system import random_state, signals
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.tasks import custom

if TYPE_CHECKING:
    from ltp_pipeline.tasks.custom import CustomTask

SPLITS = ("train", "val", "test")
INSPECTED_SAMPLES = 256
USED_SETTINGS = frozenset(
    {"path", "validation_fraction", "num_workers"}
)  # of [data], where samples are a user's own
_in_worker: dict[str, Any] = {}  # what a worker process reads from


def open_custom_data(
    task: CustomTask,
    settings: DataSettings,
    inputs: Sequence[TensorInfo],
    seed: int,
    tables: Mapping[str, int] | None = None,
) -> DatasetSplits:
    """The three splits of a user's data set; samples that are missing for validation are split off.

    `tables` has, for each input of tokens, how many rows the model's table has for them.
    """
    if settings.path is not None:
        raise InputError(
            f"both a task ({task.origin}) and data ({settings.path}) are given", "give one of them"
        )
    prepared = [
        name
        for name, value in settings
        if name not in USED_SETTINGS and value != getattr(DataSettings(), name)
    ]
    if prepared:
        raise InputError(
            f"{prepared[0]} under [data] does nothing with a task ({task.origin}): samples are taken as it gives them",
            "prepare them in dataset, and take the line out",
        )
    found = {
        name: task.call_function("dataset", name, drawn=(seed,)) for name in SPLITS
    }  # one order for all
    if found["train"] is None:
        raise InputError(
            f"dataset('train') of {task.origin} is None", "return the training samples"
        )
    sets = {
        name: CustomSamples(task, name, given, settings.num_workers)
        for name, given in found.items()
        if given is not None
    }
    rows, notes = divide_rows(
        {n: np.zeros(len(s), np.int64) for n, s in sets.items()}, settings.validation_fraction, seed
    )
    takers = [CustomInput(info, (tables or {}).get(info.name)) for info in inputs]
    splits = {
        name: CustomSplit(name, sets[source], takers, chosen)
        for name, (source, chosen) in rows.items()
    }
    if rows["test"] is rows["val"]:
        splits["test"] = splits["val"]
    sizes = " ".join(f"{name} {len(sets[rows[name][0]])}" for name in SPLITS)
    digest = hashlib.sha256(f"{task.fingerprint} {sizes}".encode())
    for name in SPLITS:
        digest.update(splits[name].rows.tobytes())
    steps = {info.name: () for info in inputs}
    return DatasetSplits(
        splits["train"], splits["val"], splits["test"], None, digest.hexdigest(), notes, steps=steps
    )


class CustomSamples:
    """A data set, read by rows: here and now, or by worker processes."""

    def __init__(self, task: CustomTask, split: str, given: Any, workers: int) -> None:
        self.task, self.workers, self._given = task, workers, given
        self._name = f"dataset({split!r})"
        self.origin = f"{self._name} of {task.origin}"
        self._lock = threading.Lock()
        self._pool: ProcessPoolExecutor | None = None
        self._names: frozenset[str] | None = None  # of what a sample holds
        with task.report_errors(f"len of {self._name}"):
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
        with random_state.isolate_rng():
            return read_samples(self._given, rows.tolist(), seed, self._name, self.task.origin)

    def _by_workers(self, rows: Array, seed: int) -> list[dict[str, Any]]:
        parts = [part.tolist() for part in np.array_split(rows, min(self.workers, len(rows)))]
        with self._lock, self.task.report_errors(f"reading {self._name} by worker processes"):
            try:
                return [
                    s
                    for part in self._start().map(_read_in_worker, parts, [seed] * len(parts))
                    for s in part
                ]
            except BrokenProcessPool:
                what = f"a process that reads {self.origin} has ended"
                raise InputError(
                    what, "if memory ran out, lower num_workers in [data], or set it to 0"
                ) from None

    def _start(self) -> ProcessPoolExecutor:
        if self._pool is None:
            context = get_context("fork" if sys.platform == "linux" else "spawn")
            given = (self._given, self._name, self.task.origin)
            self._pool = ProcessPoolExecutor(self.workers, context, _init_worker, given)
        return self._pool

    def _check(self, said: str, sample: dict[str, Any]) -> None:
        self._names = names = self._names or frozenset(sample)
        for name in sorted(names ^ set(sample)):
            has = f"has no {name!r}; it has {', '.join(map(repr, sample))}"
            what = f"{said} {has if name in names else f'has {name!r}, which others have not'}"
            raise InputError(
                what, "give every sample the same names; an empty array where there is nothing"
            )
        for name, value in sample.items():
            if not custom.is_numeric(value):
                what = f"{name!r} of {said} holds {value.dtype}, not numbers"
                raise InputError(
                    what, "give numbers; for text, where in a list of your own it stands"
                )


def read_samples(
    given: Any, rows: Sequence[int], seed: int, name: str, origin: str
) -> list[dict[str, Any]]:
    """Some samples, each with every generator of random numbers set by the seed and its row."""
    return [
        _read_sample(given, row, seed, f"sample {row} of {name} of {origin}", origin)
        for row in rows
    ]


def _read_sample(given: Any, row: int, seed: int, said: str, origin: str) -> dict[str, Any]:
    random_state.seed_all(seed, row)
    with custom.report_task_errors(f"reading {said} failed", origin):
        sample = given[row]
    if not isinstance(sample, Mapping):
        raise InputError(
            f"{said} is {custom.describe_value(sample)}, not a dict",
            "return a dict of arrays by their names",
        )
    return {str(key): custom.to_array(value) for key, value in sample.items()}


def _init_worker(*given: Any) -> None:
    import torch

    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # by which a pool ends its processes
    for name in {*signals.SIGNALS} - {"SIGTERM"}:  # which are for the process that asks
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    _in_worker["data"], _in_worker["name"], _in_worker["origin"] = given


def _exit_with_parent() -> None:
    """Outlive no process that asks, however it ends."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(0)


def _read_in_worker(rows: list[int], seed: int) -> list[dict[str, Any]]:
    return read_samples(_in_worker["data"], rows, seed, _in_worker["name"], _in_worker["origin"])


@dataclass(frozen=True)
class CustomInput:
    """An input of the model, with the checks that its samples must pass; for tokens, how many the model's table has."""

    info: TensorInfo
    table: int | None = None

    @property
    def name(self) -> str:
        """As the model and the samples have it."""
        return self.info.name

    @property
    def dtype(self) -> np.dtype[Any]:
        """What the model takes."""
        return get_input_dtype(self.info)

    def stacked(self, samples: Sequence[Mapping[str, Array]], rows: Array, origin: str) -> Array:
        """This input of some samples as one array, of the type that they have; `rows` are their numbers."""
        found, said = _get_arrays(samples, rows, self.name, origin), f"{self.name!r} of {origin}"
        for values, row in zip(found, rows, strict=True):
            self._check(values, f"{self.name!r} of sample {row} of {origin}")
        if any(values.shape != found[0].shape for values in found):
            shapes = " and ".join(
                str(shape) for shape in dict.fromkeys(values.shape for values in found)
            )
            raise InputError(
                f"samples of {origin} differ in the shape of {self.name!r}: {shapes}", "pad them"
            )
        whole = np.stack(found)
        place = find_lost_value(whole, self.dtype)
        if place is not None:
            raise_lost_value(said, whole[place], int(rows[place[0]]), self.dtype)
        outside = None if self.table is None else vocabulary.find_unknown_token(whole, self.table)
        if outside is not None and self.table is not None:
            vocabulary.raise_unknown_token(
                self.name, whole[outside], int(rows[outside[0]]), self.table
            )
        return whole

    def _check(self, values: Array, said: str) -> None:
        if values.dtype.kind not in NUMBER_KINDS:
            raise InputError(
                f"{said} holds {values.dtype}, not numbers", "give the model's inputs as numbers"
            )
        dims = values.shape if self.info.shape is None else self.info.shape[1:]
        fits = len(dims) == values.ndim and all(
            n == d for n, d in zip(values.shape, dims, strict=True) if isinstance(d, int)
        )
        if not fits:
            raise InputError(
                f"{said} has shape {format_shape(values.shape)}, and the model takes {format_shape(dims)}",
                "give one sample as the model takes it, without the axis of the batch",
            )


class CustomSplit(Split):
    """Some rows of a user's data set."""

    @property
    def reads_ahead(self) -> bool:  # type: ignore[override]  # it depends
        """Only in other processes: generators of random numbers belong to all threads of one."""
        return self._source.workers > 0

    @property
    def task(self) -> CustomTask:
        """Whose data set it is."""
        return self._source.task

    def __init__(
        self, name: str, source: CustomSamples, inputs: Sequence[CustomInput], rows: Array
    ) -> None:
        self._source, self._inputs = source, inputs
        first = source.read(rows[:1], None)
        for taken in inputs:
            taken.stacked(first, rows[:1], source.origin)
        columns = {
            i.name: SplitInput(CustomInputColumn(source, i, first[0][i.name]), Preparation(i.dtype))
            for i in inputs
        }
        super().__init__(name, columns, {}, rows)

    def read(self, indices: Array, augment_seed: int | None = None) -> Batch:
        """These samples: inputs stacked, all else beside them."""
        rows = self.rows[indices]
        samples = self._source.read(rows, augment_seed)
        origin = self._source.origin
        inputs = {
            i.name: np.ascontiguousarray(i.stacked(samples, rows, origin), i.dtype)
            for i in self._inputs
        }
        rest = [name for name in samples[0] if name not in inputs]
        beside = {name: _stack_if_equal(_get_arrays(samples, rows, name, origin)) for name in rest}
        return Batch(inputs, {**beside, **inputs})


class CustomInputColumn:
    """One input of the samples, for those who look at it alone."""

    def __init__(self, source: CustomSamples, taken: CustomInput, first: Array) -> None:
        self._source, self._taken = source, taken
        self.shape: tuple[int | None, ...] = first.shape
        self.dtype: np.dtype[Any] = first.dtype

    def __len__(self) -> int:
        return len(self._source)

    def first(self) -> ArraySamples:
        """The first ones, by which the range of values is told: reading all may take long."""
        return ArraySamples(self.take(np.arange(min(INSPECTED_SAMPLES, len(self)))))

    def take(self, indices: Array) -> Array:
        """Read these."""
        samples = self._source.read(indices, None)
        return self._taken.stacked(samples, indices, self._source.origin)


def _get_arrays(
    samples: Sequence[Mapping[str, Array]], rows: Array, name: str, origin: str
) -> list[Array]:
    """What samples hold under a name; each must have it."""
    for sample, row in zip(samples, rows, strict=True):
        if name not in sample:
            raise InputError(
                f"sample {row} of {origin} has no {name!r}; it has {', '.join(map(repr, sample))}",
                "give every sample the same arrays, and the model's inputs by their names",
            )
    return [sample[name] for sample in samples]


def _stack_if_equal(values: list[Array]) -> Array | list[Array]:
    alike = all(value.shape == values[0].shape for value in values)
    return np.stack(values) if alike else values


def open_model_data(
    file: ModelFile,
    settings: DataSettings,
    seed: int,
    task: TaskSettings = INFERRED_TASK,
    own: CustomTask | None = None,
) -> DatasetSplits:
    """The data of a model, from files or from a user's own data set, checked against all that its graph tells."""
    rows = vocabulary.find_table_sizes(file.model.graph)
    if own is not None:
        return open_custom_data(own, settings, file.inputs, seed, rows)
    data = open_data(settings, file.inputs, seed, task, file.outputs)
    vocabulary.check_tokens(rows, data)
    return data
