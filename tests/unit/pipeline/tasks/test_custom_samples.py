"""Samples of the user's data set, read in the main process or in worker processes."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ltp_pipeline.data.dataset import Batch
from ltp_pipeline.data.loader import iter_batches
from ltp_pipeline.errors import InputError, TaskFailed
from ltp_pipeline.tasks.custom import CustomTask
from ltp_pipeline.tasks.custom_data import CustomSplit
from ltp_pipeline.tasks.custom_samples import CustomSamples

each_num_workers = pytest.mark.parametrize("num_workers", [0, 2])


def samples_of(dataset: Any) -> CustomSamples:
    task = CustomTask.load(SimpleNamespace(dataset=len))
    return CustomSamples(task, "test", dataset)


def read_batches(
    dataset: Any, num_workers: int, rows: list[int], seed: int | None = None
) -> list[Batch]:
    """Read samples one by one as training does."""
    samples = samples_of(dataset)
    split = CustomSplit("test", samples, [], np.arange(len(samples)), num_workers)
    return list(iter_batches(split, 1, np.array(rows), augment_seed=seed))


class Numbered:
    """Samples that may be told by their number."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"x": np.full(2, i)}


class Random(Numbered):
    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"x": np.random.rand(2) + torch.rand(2).numpy()}


class Located(Numbered):
    """Samples that name the process and the thread that reads them."""

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"process": os.getpid(), "thread": threading.get_ident()}


class Failing(Numbered):
    """A data set with one sample whose error cannot be pickled."""

    class OddError(Exception):
        def __init__(self, one: str, two: str) -> None:
            super().__init__(f"{one} {two}")

    def __getitem__(self, i: int) -> dict[str, Any]:
        if i == 7:
            raise Failing.OddError("their", "message")
        return super().__getitem__(i)


class Ending(Numbered):
    def __getitem__(self, i: int) -> dict[str, Any]:
        return super().__getitem__(i) if i != 7 else os._exit(1)


def test_read_random_numbers_depend_on_seed_and_row():
    samples = samples_of(Random())
    first, second = samples.read(np.array([3, 5]), 7)
    (again,) = samples.read(np.array([5]), 7)
    (other,) = samples.read(np.array([5]), 8)
    np.testing.assert_array_equal(second["x"], again["x"])
    assert not np.array_equal(first["x"], second["x"])
    assert not np.array_equal(again["x"], other["x"])


def test_iter_batches_in_workers_equal_those_of_the_main_process():
    for seed in (None, 3):
        expected, actual = (
            [batch.targets["x"] for batch in read_batches(Random(), n, list(range(9)), seed)]
            for n in (0, 2)
        )
        np.testing.assert_array_equal(actual, expected)


def test_iter_batches_without_workers_use_the_calling_thread():
    batches = read_batches(Located(), 0, list(range(8)))
    places = {(int(b.targets["process"][0]), int(b.targets["thread"][0])) for b in batches}
    assert places == {(os.getpid(), threading.get_ident())}


def test_iter_batches_with_workers_use_other_processes():
    batches = read_batches(Located(), 2, list(range(8)))
    assert os.getpid() not in {int(batch.targets["process"][0]) for batch in batches}


@each_num_workers
def test_iter_batches_failing_sample_shows_the_users_lines_once(num_workers: int):
    with pytest.raises(TaskFailed) as caught:
        read_batches(Failing(), num_workers, [6, 7, 8])
    parts = ("sample 7", "dataset('test')", "OddError: their message")
    assert [part for part in parts if part not in caught.value.message] == []
    text = caught.value.traceback_text
    assert text.count('raise Failing.OddError("their", "message")') == 1
    assert "ltp_pipeline" not in text.replace(str(Path(__file__)), "")


def test_iter_batches_ended_worker_process_raises_input_error():
    with pytest.raises(InputError) as caught:
        read_batches(Ending(), 2, [6, 7])
    assert "num_workers" in caught.value.hint


@each_num_workers
@pytest.mark.parametrize(
    ("changed", "part"),
    [
        ({"x": np.zeros(2)}, "no 'id'; it has 'x'"),
        ({"x": np.zeros(2), "id": 1, "z": 1}, "'z'"),
        ({"x": np.zeros(2), "id": "ab"}, "<U2"),
        ({"x": np.zeros(2), "id": None}, "object"),
        ([1, 2], "list"),
    ],
)
def test_iter_batches_sample_unlike_the_others_names_it(changed: Any, part: str, num_workers: int):
    dataset: list[Any] = [{"x": np.zeros(2), "id": i} for i in range(8)]
    dataset[3] = changed
    with pytest.raises(InputError) as caught:
        read_batches(dataset, num_workers, [2, 3])
    assert "sample 3 of dataset('test')" in caught.value.message
    assert part in caught.value.message
    assert not isinstance(caught.value, TaskFailed)
