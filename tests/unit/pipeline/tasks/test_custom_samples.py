"""Samples of the user's data set, read in this process or in worker processes."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ltp_pipeline.errors import InputError, TaskFailed
from ltp_pipeline.tasks.custom import CustomTask
from ltp_pipeline.tasks.custom_samples import CustomSamples

each_num_workers = pytest.mark.parametrize("num_workers", [0, 2])


def samples_of(dataset: Any, num_workers: int = 0) -> CustomSamples:
    task = CustomTask.load(SimpleNamespace(dataset=len))
    return CustomSamples(task, "test", dataset, num_workers)


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


@each_num_workers
def test_read_random_numbers_depend_on_seed_and_row(num_workers: int):
    samples = samples_of(Random(), num_workers)
    first, second = samples.read(np.array([3, 5]), 7)
    (again,) = samples.read(np.array([5]), 7)
    (other,) = samples.read(np.array([5]), 8)
    np.testing.assert_array_equal(second["x"], again["x"])
    assert not np.array_equal(first["x"], second["x"])
    assert not np.array_equal(again["x"], other["x"])


def test_read_in_workers_equals_reading_in_this_process():
    rows = np.arange(9)
    here, elsewhere = (samples_of(Random(), n).read(rows, 3) for n in (0, 2))
    np.testing.assert_array_equal([s["x"] for s in here], [s["x"] for s in elsewhere])


def test_read_without_workers_uses_the_calling_thread():
    places = {
        (int(s["process"]), int(s["thread"])) for s in samples_of(Located()).read(np.arange(8), 0)
    }
    assert places == {(os.getpid(), threading.get_ident())}


def test_read_with_workers_uses_other_processes():
    read = samples_of(Located(), 2).read(np.arange(8), 0)
    assert os.getpid() not in {int(sample["process"]) for sample in read}


@each_num_workers
def test_read_failing_sample_shows_the_users_lines_once(num_workers: int):
    samples = samples_of(Failing(), num_workers)
    with pytest.raises(TaskFailed) as caught:
        samples.read(np.array([6, 7, 8]), 0)
    parts = ("sample 7", "dataset('test')", "OddError: their message")
    assert [part for part in parts if part not in caught.value.message] == []
    text = caught.value.traceback_text
    assert text.count('raise Failing.OddError("their", "message")') == 1
    assert "ltp_pipeline" not in text.replace(str(Path(__file__)), "")
    assert samples.read(np.array([6]), 0)[0]["x"].tolist() == [6, 6]  # reading goes on


def test_read_ended_worker_process_raises_input_error():
    with pytest.raises(InputError) as caught:
        samples_of(Ending(), 2).read(np.array([7]), 0)
    assert "dataset('test')" in caught.value.message
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
def test_read_sample_unlike_the_others_names_it(changed: Any, part: str, num_workers: int):
    dataset: list[Any] = [{"x": np.zeros(2), "id": i} for i in range(8)]
    dataset[3] = changed
    with pytest.raises(InputError) as caught:
        samples_of(dataset, num_workers).read(np.array([2, 3]), 0)
    assert "sample 3 of dataset('test')" in caught.value.message
    assert part in caught.value.message
    assert not isinstance(caught.value, TaskFailed)
