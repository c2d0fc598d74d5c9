"""Processes that decode: the bytes of threads, no matter who dies, and none left behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ltp_pipeline.data.images import decode
from ltp_pipeline.data.images.decode import Form, ImageSource, pixels
from ltp_pipeline.data.workers import DecodeWorker, Workers
from ltp_pipeline.errors import InputError
from tests.support.photos import everything, jpeg, opened, put


def stopped(workers: Workers) -> None:
    while not workers._idle.empty():
        worker = workers._idle.get()
        if worker is not None:
            worker.stop()


@pytest.mark.usefixtures("large")
def test_processes_give_the_bytes_that_threads_give(photos: Path) -> None:
    threads, processes = opened(photos, augment=True), opened(photos, augment=True, num_workers=2)
    for seed in (None, 3):
        np.testing.assert_array_equal(everything(processes, seed), everything(threads, seed))


def test_a_process_that_ends_is_an_error_and_is_replaced(photos: Path) -> None:
    sources = [ImageSource(str(f)) for f in sorted(photos.rglob("*.jpg"))]
    form, out = Form("RGB", (8, 8)), np.empty((20, 8, 8, 3), np.uint8)
    workers = Workers(1, form)
    workers.decode(sources[:1], [None], out)
    worker = workers._idle.get()
    assert worker is not None
    worker._process.kill()
    worker._process.wait()
    workers._idle.put(worker)
    with pytest.raises(InputError, match=r"ended while reading image .*jpg"):
        workers.decode(sources, [None] * 20, out)
    assert workers.decode(sources, [None] * 20, out) == {}
    assert out[3].tobytes() == pixels(sources[3], form)
    stopped(workers)


def test_a_broken_image_in_a_process_does_not_end_it(photos: Path) -> None:
    bad = put(photos / "a" / "bad \udcff\n.jpg", jpeg(0)[:300])
    sources = [
        ImageSource(str(bad)),
        ImageSource(str(photos / "a" / "00.jpg")),
        ImageSource(str(photos / "gone.jpg")),
    ]
    out = np.empty((3, 8, 8, 3), np.uint8)
    workers = Workers(1, Form("RGB", (8, 8)))
    problems = workers.decode(sources, [None] * 3, out)
    assert sorted(problems) == [0, 2]
    assert "cannot be decoded" in problems[0][0]
    assert out[1].tobytes() == pixels(sources[1], Form("RGB", (8, 8)))
    stopped(workers)


def test_a_python_without_memfd_shares_a_file(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "memfd_create")
    sources = [ImageSource(str(f)) for f in sorted(photos.rglob("*.jpg"))]
    form, out = Form("RGB", (8, 8)), np.empty((20, 8, 8, 3), np.uint8)
    workers = Workers(2, form)
    assert workers.decode(sources, [None] * 20, out) == {}
    assert [image.tobytes() for image in out] == [pixels(source, form) for source in sources]
    stopped(workers)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Interrupts are heard, also where a shell started the tests in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_does_not_wait_for_every_image(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = [ImageSource(str(f)) for f in sorted(photos.rglob("*.jpg"))]
    asked = []

    def interrupted(self: DecodeWorker, request: bytes) -> None:
        asked.append(request)
        if len(asked) == 5:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.2)  # for the main thread to hear of it
        ask(self, request)

    ask = DecodeWorker.ask
    monkeypatch.setattr(DecodeWorker, "ask", interrupted)
    workers = Workers(1, Form("RGB", (8, 8)))
    with pytest.raises(KeyboardInterrupt):
        workers.decode(sources, [None] * 20, np.empty((20, 8, 8, 3), np.uint8))
    assert len(asked) < 10
    stopped(workers)


def test_no_process_outlives_its_pool() -> None:
    worker = DecodeWorker(Form("L", (4, 4)))
    process = worker._process
    del worker
    assert process.poll() == 0


def test_no_process_outlives_the_one_that_asked(photos: Path) -> None:
    code = """
import os, signal
from ltp_pipeline.data.images.decode import Form
from ltp_pipeline.data.workers import DecodeWorker
worker = DecodeWorker(Form("L", (4, 4)))
print(worker._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    found = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    pid = int(found.stdout)
    deadline = time.monotonic() + 10
    while (
        Path(f"/proc/{pid}").exists()
        and "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    ):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_ctrl_c_ends_everything_without_a_word_from_the_processes(photos: Path) -> None:
    code = """
import sys, pathlib
from ltp_pipeline.settings.schema import DataSettings
from ltp_pipeline.data.images import collection as images
from ltp_pipeline.data.open import open_data
from ltp_pipeline.data.prefetch import iter_batches
from ltp_pipeline.graph.model_file import TensorInfo
images.MAX_DECODED_BYTES = 0
data = open_data(DataSettings(path=pathlib.Path(sys.argv[1]), num_workers=2), [TensorInfo("x", "FLOAT", ("N", 3, 8, 8))], 0)
try:
    while True:
        for _ in iter_batches(data.train, 4):
            print("read", flush=True)
except KeyboardInterrupt:
    sys.exit(7)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code, photos],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        # A shell's background job ignores it and hands that on; a terminal does not.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"read\n"
        os.killpg(process.pid, signal.SIGINT)
        _, told = process.communicate(timeout=20)
    assert (process.returncode, told) == (7, b"")
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def test_processes_know_neither_numpy_nor_the_rest_of_the_package() -> None:
    code = f"""
import runpy, sys
runpy.run_path({decode.__file__!r})
sys.exit(any(name.split('.')[0] in ('numpy', 'torch', 'ltp_pipeline') for name in sys.modules))
"""
    assert subprocess.run([sys.executable, "-P", "-c", code]).returncode == 0
