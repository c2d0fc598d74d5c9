"""Three Ctrl-C in a second: exit 130, one line and no traceback, and the same command goes on to the same bytes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.cli import start, takes_signals

COMMAND = (
    "run",
    "model.onnx",
    "--out",
    "run",
    "--epochs",
    2,
    "--finetune-epochs",
    1,
    "--max-drop",
    0.9,
)
COMMAND += ("--export", "sparse", "--export", "dense", "--no-baseline")
FILES = ("model.sparse.onnx", "model.dense.onnx", "trail/001.onnx", "trail/002.onnx")


def files(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in FILES}


@pytest.fixture(scope="module")
def uninterrupted(shared: Path) -> dict[str, bytes]:
    return files(shared / "run")


def press(process: "subprocess.Popen[str]", pause: float, times: int = 3) -> None:
    """Ctrl-C on a terminal goes to the process and its children."""
    for _ in range(times):
        try:
            os.killpg(process.pid, signal.SIGINT)
        except ProcessLookupError:
            return  # it has ended already
        time.sleep(pause)


@pytest.mark.parametrize(
    ("moment", "pause"),
    [
        ("the first import", 0.01),
        ("heavy imports", 0.1),
        pytest.param("trail/001.onnx", 0.3, marks=pytest.mark.slow),
        pytest.param("model.sparse.onnx", 0.0, marks=pytest.mark.slow),
    ],
)
def test_run_three_interrupts_exit_with_130_undamaged(
    example: Path, uninterrupted: dict[str, bytes], moment: str, pause: float
):
    process = start(*COMMAND, cwd=example, own_group=True)
    while not takes_signals(process):
        assert process.poll() is None, process.communicate()
    if moment == "heavy imports":
        assert process.stderr is not None
        assert process.stderr.readline().startswith("Reading ")
        time.sleep(0.3)
    elif moment in FILES:
        while not (example / "run" / moment).exists():
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
    press(process, pause)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "KeyboardInterrupt" not in err
    assert err.endswith("interrupted; the same command resumes\n")
    if moment not in FILES:
        assert not (example / "run").exists()
        return
    again = start(*COMMAND, cwd=example)
    _, err = again.communicate(timeout=300)
    assert again.returncode == 0, err
    assert files(example / "run") == uninterrupted
    assert not [path for path in (example / "run").rglob(".*") if path.name != ".lock"]


def program(code: str, *arguments: object) -> "subprocess.Popen[str]":
    """Python code that takes signals as the program does."""
    return subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from ltp_pipeline.system import signals as interrupts\ninterrupts.install_handlers()\n"
            + code,
            *map(str, arguments),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def interrupted(process: "subprocess.Popen[str]", times: int = 3) -> tuple[int, str, str]:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    press(process, 0.1, times)
    out, err = process.communicate(timeout=30)
    return process.returncode, out, err.replace(INTERRUPTED, "")


INTERRUPTED = "\ninterrupted; the same command resumes\n"
LEAVES = "\nexcept KeyboardInterrupt:\n    interrupts.exit_interrupted()\n"


def test_run_interrupted_ends_its_workers_silently(photos: Path):
    code = """
import sys, pathlib
from ltp_pipeline.settings.schema import DataSettings
from ltp_pipeline.data.images import collection
from ltp_pipeline.data.open import open_data
from ltp_pipeline.data.loader import iter_batches
from ltp_pipeline.graph.model_file import TensorInfo
collection.MAX_DECODED_BYTES = 0
data = open_data(DataSettings(path=pathlib.Path(sys.argv[1]), num_workers=2), [TensorInfo("x", "FLOAT", ("N", 3, 8, 8))], 0)
told = False
try:
    while True:
        for _ in iter_batches(data.train, 4):
            told = told or not print("ready", flush=True)
"""
    process = program(code + LEAVES, photos)
    assert interrupted(process) == (130, "", "")
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def test_cleanup_is_not_interrupted_again():
    code = """
import time
try:
    try:
        print("ready", flush=True)
        time.sleep(30)
    finally:
        time.sleep(0.5)
        print("clean", flush=True)
"""
    assert interrupted(program(code + LEAVES)) == (130, "clean\n", "")


def test_cleanup_without_end_stops_after_its_limit():
    code = """
import threading, time
interrupts.PATIENCE = 0.5
try:
    try:
        print("ready", flush=True)
        time.sleep(30)
    finally:
        time.sleep(30)
"""
    begun = time.monotonic()
    assert interrupted(program(code + LEAVES)) == (130, "", "")
    assert time.monotonic() - begun < 20


def test_exit_does_not_wait_for_endless_threads():
    code = """
import threading, time
interrupts.PATIENCE = 0.5
threading.Thread(target=time.sleep, args=(60,)).start()
try:
    print("ready", flush=True)
    time.sleep(60)
"""
    assert interrupted(program(code + LEAVES), times=1) == (130, "", "")


def test_imports_are_not_interrupted(tmp_path: Path):
    """Native code that is being imported may make any other error of an interrupt."""
    (tmp_path / "slow.py").write_text(
        "import time\nprint('ready', flush=True)\n"
        "try:\n    time.sleep(1)\nexcept BaseException:\n    raise ImportError('half a module')\n"
        "print('whole', flush=True)\n"
    )
    code = """
import sys, time
sys.path.insert(0, sys.argv[1])
try:
    import slow
    time.sleep(30)
"""
    assert interrupted(program(code + LEAVES, tmp_path)) == (130, "whole\n", "")


def test_interrupt_dropped_by_python_is_repeated():
    code = """
import time
class Slow:
    def __del__(self):
        print("ready", flush=True)
        time.sleep(1)
try:
    one = Slow()
    del one
    time.sleep(30)
"""
    assert interrupted(program(code + LEAVES)) == (130, "", "")


def test_process_started_to_ignore_interrupts_ignores_them():
    code = "import signal\nprint(signal.getsignal(signal.SIGINT) == signal.SIG_IGN)"
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from ltp_pipeline.system import signals as interrupts\ninterrupts.install_handlers()\n"
            + code,
        ],
        capture_output=True,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    assert done.stdout == "True\n", done.stderr


def test_interrupt_dropped_by_other_code_is_repeated():
    code = """
import time
try:
    try:
        print("ready", flush=True)
        time.sleep(30)
    except BaseException:
        pass
    time.sleep(30)
"""
    assert interrupted(program(code + LEAVES), times=1) == (130, "", "")
