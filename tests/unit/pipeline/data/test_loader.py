"""Batches: their order, errors while reading, and worker processes that end with the main process."""

import gc
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from ltp_pipeline.data import loader
from ltp_pipeline.data.dataset import TARGET, ArraySamples, Split
from ltp_pipeline.data.loader import iter_batches
from ltp_pipeline.errors import InputError
from ltp_pipeline.system.arrays import Array
from tests.support.photos import open_photos, read_everything
from tests.support.samples import only_input, split_of

LAUNCH = """
import os, pathlib, signal, sys
from ltp_pipeline.settings.schema import DataSettings
from ltp_pipeline.data.images import collection
from ltp_pipeline.data.open import open_data
from ltp_pipeline.data.loader import iter_batches
from ltp_pipeline.graph.model_file import TensorInfo
collection.MAX_DECODED_BYTES = 0
settings = DataSettings(path=pathlib.Path(sys.argv[1]), num_workers=2)
data = open_data(settings, [TensorInfo("x", "FLOAT", ("N", 3, 8, 8))], 0)
"""


def numbered_split(count: int, samples: type[ArraySamples] = ArraySamples) -> Split:
    return split_of(np.arange(count, dtype=np.float32)[:, None], np.arange(count), samples=samples)


def list_workers() -> set[int]:
    """The processes whose parent is this process."""
    pids = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):  # a thread that has just ended
            pids |= set(map(int, (task / "children").read_text().split()))
    return pids


def wait_until_ended(pid: int) -> None:
    status = Path(f"/proc/{pid}/status")
    deadline = time.monotonic() + 10
    while status.exists() and "\nState:\tZ" not in status.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_iter_batches_order_is_followed() -> None:
    batches = list(iter_batches(numbered_split(5), 3, np.array([4, 0, 0, 3])))
    assert [batch.targets[TARGET].tolist() for batch in batches] == [[4, 0, 0], [3]]
    assert [only_input(batch)[:, 0].tolist() for batch in batches] == [[4, 0, 0], [3]]


def test_iter_batches_drop_last_leaves_out_the_smaller_batch() -> None:
    assert [len(b) for b in iter_batches(numbered_split(7), 3, drop_last=True)] == [3, 3]
    assert list(iter_batches(numbered_split(2), 3, drop_last=True)) == []


def test_iter_batches_size_below_one_raises_at_once() -> None:
    with pytest.raises(ValueError, match="batch_size"):
        iter_batches(numbered_split(2), 0)


def test_iter_batches_error_while_reading_reaches_the_caller() -> None:
    class Broken(ArraySamples):
        def take(self, indices: Array) -> Array:
            if 2 in indices:
                raise InputError("image x.png cannot be decoded", "repair or remove it")
            return super().take(indices)

    stream = iter_batches(numbered_split(4, Broken), 1)
    assert [next(stream).targets[TARGET].tolist() for _ in range(2)] == [[0], [1]]
    with pytest.raises(InputError) as caught:
        next(stream)
    assert "x.png" in caught.value.message


@pytest.mark.usefixtures("large")
def test_workers_give_the_batches_of_the_main_process(photos: Path) -> None:
    in_process, in_workers = (
        open_photos(photos, augment=True, num_workers=n, validation_fraction=0.4) for n in (0, 2)
    )
    for seed in (None, 3, 4):
        expected = read_everything(in_process, seed)
        np.testing.assert_array_equal(read_everything(in_workers, seed), expected)
    expected_val, val = (
        [only_input(batch) for batch in iter_batches(data.val, 3)]
        for data in (in_process, in_workers)
    )
    np.testing.assert_array_equal(np.concatenate(val), np.concatenate(expected_val))


@pytest.mark.usefixtures("large")
def test_workers_read_decoded_inputs_only(photos: Path) -> None:
    data = open_photos(photos, num_workers=2)
    before = list_workers()
    data.train.read_first(3)
    assert list_workers() == before
    stream = iter_batches(data.train, 4)
    next(stream)
    assert len(list_workers() - before) == 2


def test_workers_are_not_started_for_decoded_images(photos: Path) -> None:
    data = open_photos(photos, num_workers=2, augment=True)
    assert data.train.count_workers(is_augmented=False) == 0
    assert data.train.count_workers(is_augmented=True) == 2
    assert data.val.count_workers(is_augmented=True) == 0


@pytest.mark.usefixtures("large")
def test_workers_of_training_serve_every_epoch_and_end_with_the_split(photos: Path) -> None:
    data = open_photos(photos, num_workers=2, validation_fraction=0.4)
    before = list_workers()
    read_everything(data)
    workers = list_workers() - before
    assert len(workers) == 2
    list(iter_batches(data.val, 3))
    read_everything(data)
    assert list_workers() - before == workers
    del data
    gc.collect()
    assert not workers & list_workers()


@pytest.mark.usefixtures("large")
def test_workers_evaluation_within_the_last_batch_changes_nothing(photos: Path) -> None:
    data = open_photos(photos, num_workers=2)
    expected = read_everything(data)
    last = len(data.train) // 5
    pixels = []
    for i, batch in enumerate(iter_batches(data.train, 5)):
        pixels.append(only_input(batch))
        if i == last:
            read_everything(data)
    np.testing.assert_array_equal(np.concatenate(pixels), expected)


@pytest.mark.usefixtures("large")
def test_workers_second_pass_within_a_pass_raises(photos: Path) -> None:
    data = open_photos(photos, num_workers=2)
    stream = iter_batches(data.train, 3)
    next(stream)
    read_everything(data)
    with pytest.raises(RuntimeError):
        next(stream)


@pytest.mark.usefixtures("large")
def test_workers_pass_that_was_broken_off_does_not_change_the_next(photos: Path) -> None:
    data = open_photos(photos, num_workers=2)
    expected = read_everything(open_photos(photos, num_workers=0))
    stream = iter_batches(data.train, 2)
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    np.testing.assert_array_equal(read_everything(data), expected)


@pytest.mark.usefixtures("large")
def test_workers_error_is_the_one_of_the_main_process(photos: Path) -> None:
    data = open_photos(photos, num_workers=1)
    for file in (photos / "a").iterdir():
        file.unlink()
    with pytest.raises(InputError) as caught:
        read_everything(data)
    assert ".jpg" in caught.value.message


@pytest.mark.usefixtures("large")
def test_workers_that_are_killed_raise_and_are_replaced(photos: Path) -> None:
    data = open_photos(photos, num_workers=1)
    before = list_workers()
    expected = read_everything(data)
    (worker,) = list_workers() - before
    os.kill(worker, signal.SIGKILL)
    with pytest.raises(InputError) as caught:
        read_everything(data)
    assert "num_workers" in caught.value.hint
    np.testing.assert_array_equal(read_everything(data), expected)


@pytest.mark.usefixtures("large")
def test_workers_draw_no_random_numbers_of_the_main_process(photos: Path) -> None:
    import torch

    data = open_photos(photos, num_workers=1)
    state = torch.get_rng_state()
    read_everything(data)
    assert torch.equal(torch.get_rng_state(), state)


def test_workers_end_when_the_main_process_is_killed(photos: Path) -> None:
    code = LAUNCH + (
        "from multiprocessing import active_children\n"
        "next(iter_batches(data.train, 4))\n"
        "print(*[child.pid for child in active_children()], flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, photos], stdout=subprocess.PIPE, text=True)
    pids = list(map(int, done.stdout.split()))
    assert len(pids) == 2
    for pid in pids:
        wait_until_ended(pid)


def test_workers_ctrl_c_ends_all_processes_silently(photos: Path) -> None:
    code = LAUNCH + (
        "try:\n"
        "    while True:\n"
        "        for _ in iter_batches(data.train, 4):\n"
        "            print('read', flush=True)\n"
        "except KeyboardInterrupt:\n"
        "    sys.exit(7)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, photos],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        # A shell's background context ignores it and hands that on; a terminal does not.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"read\n"
        os.killpg(process.pid, signal.SIGINT)
        _, stderr = process.communicate(timeout=20)
    assert (process.returncode, stderr) == (7, b"")
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def test_workers_start_leaves_signals_as_they_are(photos: Path) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGCHLD)]
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with loader._block_signals():
        assert signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == mask
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGCHLD)] == handlers
