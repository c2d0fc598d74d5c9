"""onnxruntime in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ltp_pipeline.system import child_process


def test_what_native_code_prints_is_no_answer():
    code = """
import os
from ltp_pipeline.system import child_process as ort_subprocess
ort_subprocess._answer = lambda *_: os.write(1, b"*****\\n") and {"outputs": []}
ort_subprocess._serve()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], input=b"{}\n{}\n", capture_output=True, check=True
    )
    assert [json.loads(line) for line in done.stdout.splitlines()] == 2 * [{"outputs": []}]


@pytest.mark.parametrize("said", ["", "{", '{"outputs": [-1]}', "Killed"])
def test_an_answer_that_is_missing_or_cut_off_is_that_of_a_process_that_died(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last but one is whole, but the outputs were never written."""
    code = f"import sys; sys.stdin.readline(); print({said!r}, flush=True)"

    class Spoiled(child_process.OrtProcess):
        def __init__(self) -> None:
            super().__init__()
            self.process.kill()
            self.process.communicate()
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            self.process = subprocess.Popen([sys.executable, "-c", code], **pipes)

    monkeypatch.setattr(child_process, "_worker", Spoiled())
    with pytest.raises(child_process.WorkerDied):
        child_process.run(tmp_path / "model.onnx", {})
