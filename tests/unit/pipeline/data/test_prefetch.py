"""Batches: order, prefetch, errors, and a reader that stops when it is no longer wanted."""

import threading
import time

import numpy as np
import pytest

from ltp_pipeline.data.dataset import TARGET, Batch, Split
from ltp_pipeline.data.prefetch import iter_batches
from ltp_pipeline.errors import InputError
from ltp_pipeline.system.arrays import Array
from tests.support.samples import only, split_of


def split(count: int) -> Split:
    return split_of(np.arange(count, dtype=np.float32)[:, None], np.arange(count))


def readers() -> int:
    return sum(thread.name.startswith("prefetch") for thread in threading.enumerate())


def test_an_order_is_followed() -> None:
    order = np.array([4, 0, 0, 3])
    got = list(iter_batches(split(5), 3, order))
    assert [batch.targets[TARGET].tolist() for batch in got] == [[4, 0, 0], [3]]
    assert [only(batch)[:, 0].tolist() for batch in got] == [[4, 0, 0], [3]]


def test_drop_last_leaves_the_rest_out() -> None:
    assert [len(batch) for batch in iter_batches(split(7), 3, drop_last=True)] == [3, 3]
    assert list(iter_batches(split(2), 3, drop_last=True)) == []


def test_a_batch_size_below_one_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="batch_size"):
        iter_batches(split(2), 0)


def test_the_next_batches_are_read_while_one_is_used() -> None:
    read = []

    class Watched(Split):
        def read(self, indices: Array, augment_seed: int | None = None) -> Batch:
            read.append(indices.tolist())
            return super().read(indices, augment_seed)

    source = split(4)
    stream = iter_batches(Watched("train", source.inputs, source.targets, source.rows), 1)
    next(stream)
    deadline = time.monotonic() + 5
    while len(read) < 3 and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.01)
    assert sorted(read) == [[0], [1], [2]]


def test_an_error_while_reading_reaches_the_caller() -> None:
    def broken(batch: Array) -> Array:
        if batch[0, 0] == 2:
            raise InputError("image x.png cannot be decoded", "repair or remove it")
        return batch

    stream = iter_batches(
        split_of(np.arange(4, dtype=np.float32)[:, None], np.arange(4), prepare=broken), 1
    )
    assert next(stream).targets[TARGET].tolist() == [0]
    assert next(stream).targets[TARGET].tolist() == [1]
    with pytest.raises(InputError, match=r"x\.png"):
        next(stream)
    assert readers() == 0


def test_closing_stops_the_reader() -> None:
    stream = iter_batches(split(100), 1)
    next(stream)
    assert readers() == 2
    stream.close()  # type: ignore[attr-defined]
    assert readers() == 0
