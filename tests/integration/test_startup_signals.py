"""A signal at any moment from the first line of the program on: exit 130, one line and no traceback."""

import ast
import subprocess
import sys
import time
from pathlib import Path
from signal import SIGHUP, SIGINT, SIGTERM, Signals

import pytest

from tests.support.cli import start, takes_signals
from tests.support.paths import ROOT

SLOW = pytest.mark.slow
SOON = [0.0, 0.002, 0.03]
LATER = [0.0005, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.2, 1.8, 2.5]


@pytest.mark.parametrize(
    "number", [SIGINT, pytest.param(SIGTERM, marks=SLOW), pytest.param(SIGHUP, marks=SLOW)]
)
@pytest.mark.parametrize("seconds", [*SOON, *(pytest.param(s, marks=SLOW) for s in LATER)])
def test_startup_signal_at_any_delay_exits_with_130(example: Path, seconds: float, number: Signals):
    process = start("run", "model.onnx", cwd=example)
    while not takes_signals(process):
        assert process.poll() is None, process.communicate()
    time.sleep(seconds)
    process.send_signal(number)
    out, err = process.communicate(timeout=180)
    assert process.returncode == 130, err
    assert err.endswith("\ninterrupted; the same command resumes\n")
    assert "Traceback" not in out + err


def test_startup_installs_signal_handlers_first():
    """Nothing that reads a file stands before it: `_signal` is built in."""
    _, first, *rest = ast.parse((ROOT / "pipeline" / "__main__.py").read_text()).body
    assert ast.unparse(first) == "import _signal"
    assert "_signal" in sys.builtin_module_names
    loop_position = next(i for i, statement in enumerate(rest) if isinstance(statement, ast.For))
    assert not any(isinstance(s, ast.Import | ast.ImportFrom) for s in rest[:loop_position])


def test_package_imports_two_small_modules_only():
    code = "import sys; before = set(sys.modules); import ltp_pipeline; print(sorted(set(sys.modules) - before))"
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert (
        process.stdout.strip()
        == "['ltp_pipeline', 'ltp_pipeline.system', 'ltp_pipeline.system.thread_env']"
    )


def test_startup_uncaught_interrupt_exits_with_130():
    code = """
import os, signal
from ltp_pipeline.system import signals as interrupts
interrupts.install_handlers()
os.kill(os.getpid(), signal.SIGTERM)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("interrupted"), done.stderr.count("Traceback")) == (
        130,
        1,
        0,
    )
