"""Every command of the contract is there, takes --json and --quiet, and README's commands are real ones."""

import errno
import re
import shlex
from pathlib import Path

import pytest
import typer

from ltp_pipeline.cli import app as cli
from ltp_pipeline.cli.app import app
from tests.support.cli import invoke
from tests.support.paths import ROOT

COMMANDS = typer.main.get_command(app).commands
CONTRACT = (
    "run",
    "demo",
    "inspect",
    "validate",
    "trail",
    "pick",
    "export",
    "report",
    "gate",
    "compare",
    "unpack",
    "handoff",
)


def options(name: str) -> set[str]:
    return {o for p in COMMANDS[name].params for o in (*p.opts, *p.secondary_opts)}


@pytest.mark.parametrize("name", CONTRACT)
def test_every_command_speaks_json_and_can_be_quiet(name: str):
    assert {"--json", "--quiet"} <= options(name)


@pytest.mark.parametrize("document", ["README.md", "docs/how-to/ci-gates.md"])
def test_commands_in_the_documents_have_the_options_they_show(document: str):
    text = re.sub(r"sh '(.*)'", r"\1", (ROOT / document).read_text())  # Jenkins quotes its steps
    shown = re.findall(r"^\s*(?:- )?(?:venv/bin/)?(ltp-pipeline [a-z].*)$", text, re.M)
    assert len(shown) >= 2
    for line in shown:
        words = shlex.split(line, comments=True)
        assert words[1] in COMMANDS, line
        assert {w for w in words if w.startswith("--")} <= options(words[1]), line


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("method.t0=0.01", 0.01),
        ("train.seed=7", 7),
        ("data.layout=NHWC", "NHWC"),
        ("data.mean=[0.5]", [0.5]),
    ],
)
def test_set_takes_toml_values_and_plain_words(text: str, expected: object):
    from ltp_pipeline.cli.options import parse_assignment

    section, key = text.split("=")[0].split(".")
    assert parse_assignment(text) == {section: {key: expected}}


def test_set_reaches_the_settings_of_one_input():
    from ltp_pipeline.cli.options import parse_assignment

    assert parse_assignment('data.inputs."side.info:0".scale=0.5') == {
        "data": {"inputs": {"side.info:0": {"scale": 0.5}}}
    }


def test_set_of_a_name_without_quotes_says_so(capsys: pytest.CaptureFixture[str]):
    refused = invoke(capsys, "run", "model.onnx", "--set", "data.inputs.side:0.scale=0.5")
    assert refused.code == 2
    assert "need quotes" in refused.err


def test_set_without_a_section_is_a_wrong_command_line(capsys: pytest.CaptureFixture[str]):
    assert invoke(capsys, "run", "model.onnx", "--set", "epochs=3").code == 2


def test_version_is_the_packages(capsys: pytest.CaptureFixture[str]):
    from ltp_pipeline import __version__

    assert invoke(capsys, "--version").out.strip() == f"ltp-pipeline {__version__}"


def test_a_terminal_that_knows_no_multiplication_sign_does_not_end_a_command(tmp_path: Path):
    import os
    import subprocess
    import sys

    from ltp_pipeline.demo import copy_example

    model = copy_example(tmp_path / "example")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "ltp_pipeline", "inspect", str(model)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "stem.weight" in result.stdout


def test_names_of_any_kind_and_length_keep_an_error_to_two_short_lines(
    capsys: pytest.CaptureFixture[str],
):
    said = invoke(capsys, "inspect", "new\nline\x1b[31m" + 5000 * "x" + ".onnx")
    assert said.code == 3
    first, second = said.err.splitlines()
    assert first.startswith("error: ")
    assert second.startswith("  ")
    assert "new?line?[31mxxx" in first
    assert len(first) < 2010
    assert first.isprintable()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            OSError(errno.EROFS, "Read-only file system", "run/x"),
            "cannot read or write run/x: Read-only file system",
        ),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            "cannot read or write: No space left on device",
        ),
    ],
)
def test_what_the_system_refuses_is_no_bug(
    error: OSError, said: str, monkeypatch: pytest.MonkeyPatch, capsys
):
    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr(cli, "app", fail)
    result = invoke(capsys)
    assert (result.code, result.err.splitlines()[0]) == (3, f"error: {said}")
