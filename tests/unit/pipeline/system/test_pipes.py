"""`ltp-pipeline … | head -1`: a reader that goes away changes nothing about the command and is not spoken of."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ltp_pipeline.demo import copy_example
from tests.support.sample_report import sample


def into_closed_pipe(*arguments: object, both: bool = False) -> tuple[int, str]:
    """Exit code and standard error of a command whose reader has gone before it writes; `both` of its streams."""
    process = subprocess.Popen(
        [sys.executable, "-m", "ltp_pipeline", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if both else subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate(timeout=60) if not both else (process.wait(60), "")
    return process.returncode, err or ""


@pytest.fixture
def report(tmp_path: Path) -> Path:
    (tmp_path / "report.json").write_text(json.dumps(sample()[0]))
    return tmp_path / "report.json"


def test_closed_pipe_successful_command_exits_with_0(tmp_path: Path):
    assert into_closed_pipe("inspect", copy_example(tmp_path / "example")) == (0, "")
    assert into_closed_pipe("inspect", copy_example(tmp_path / "example"), "--json") == (0, "")


def test_closed_pipe_failed_gate_exits_with_7(report: Path):
    code, err = into_closed_pipe("gate", report, "--min-accuracy", 0.99)
    assert code == 7
    assert err.startswith("gate failed: min_accuracy")
    assert "Broken" not in err


def test_closed_pipes_error_keeps_its_exit_code(tmp_path: Path):
    assert into_closed_pipe("inspect", tmp_path / "missing.onnx", both=True)[0] == 3


def test_closed_pipe_help_exits_with_0():
    assert into_closed_pipe("--help") == (0, "")


def test_closed_pipe_output_until_then_is_complete(tmp_path: Path):
    model = copy_example(tmp_path / "example")
    command = f"{sys.executable} -m ltp_pipeline inspect {model} | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{model}: ")
