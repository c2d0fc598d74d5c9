"""The script of the composite action, run with a replacement of the program."""

import os
import re
import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest

from tests.support.cli import invoke
from tests.support.finished import lay_out
from tests.support.paths import ROOT

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="the action runs in bash")


def run_action(folder: Path, status: int = 0, **inputs: str) -> tuple[int, list[str], str]:
    """Run the last step of the action.

    Returns:
        The exit code, the arguments of the program, and the outputs of the step.
    """
    program = folder / "ltp-pipeline"
    program.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" > "{folder}/arguments"\nexit {status}\n', encoding="utf-8"
    )
    program.chmod(0o755)
    script = textwrap.dedent(
        (ROOT / "action.yml").read_text(encoding="utf-8").split("      run: |\n")[1]
    )
    variables = {"MODEL": "", "REPORT": "report.json", "OUT": "out", "OPTIONS": "", **inputs}
    environment = {
        **variables,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "GITHUB_OUTPUT": str(folder / "output"),
    }
    process = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script], env=environment, cwd=folder, check=False
    )
    arguments = (folder / "arguments").read_text().splitlines()
    return process.returncode, arguments, (folder / "output").read_text()


def test_action_with_a_model_prunes_it(tmp_path: Path) -> None:
    code, arguments, output = run_action(
        tmp_path, MODEL="a b;$(x).onnx", OPTIONS="--max-drop 0.01\n--exclude 'fc*'"
    )
    assert code == 0
    assert arguments == [
        "run",
        "a b;$(x).onnx",
        "--out",
        "out",
        "--max-drop",
        "0.01",
        "--exclude",
        "'fc*'",
    ]
    assert output == "report=out/report.json\n"


@pytest.mark.parametrize("status", [0, 3, 7])
def test_action_without_a_model_checks_the_report_and_keeps_the_exit_code(
    tmp_path: Path, status: int
) -> None:
    code, arguments, output = run_action(tmp_path, status)
    assert code == status
    assert arguments == ["gate", "report.json"]
    assert output == "report=report.json\n"


def test_uploaded_files_of_the_documentation_suffice_for_a_gate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lay_out(tmp_path / "ltp-run")
    upload = (
        (ROOT / "docs" / "how-to" / "ci-gates.md")
        .read_text(encoding="utf-8")
        .split("upload-artifact@v4")[1]
        .split("```")[0]
    )
    patterns = re.findall(r"^ +(ltp-run/\S+)$", upload, flags=re.MULTILINE)
    for path in {path for pattern in patterns for path in tmp_path.glob(pattern)}:
        (tmp_path / "download").mkdir(exist_ok=True)
        shutil.copy(path, tmp_path / "download")
    assert (
        invoke(capsys, "gate", tmp_path / "download" / "report.json", "--max-drop", 0.5).code == 0
    )


def test_action_inputs_are_all_declared() -> None:
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    declared = set(re.findall(r"^  ([\w-]+):$", text.split("outputs:")[0], flags=re.MULTILINE))
    assert set(re.findall(r"inputs\.([\w-]+)", text)) == declared
