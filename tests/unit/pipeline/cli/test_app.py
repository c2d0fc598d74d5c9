"""The command line: its commands, its documentation, and how errors end it."""

import errno
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from ltp_pipeline import __version__
from ltp_pipeline.cli import app as cli
from ltp_pipeline.cli.app import app
from ltp_pipeline.demo import copy_example
from ltp_pipeline.errors import GateFailed, LtpError, TaskFailed, UnsupportedModel
from tests.support.cli import invoke
from tests.support.paths import ROOT

COMMANDS = typer.main.get_command(app).commands


def option_names(command: str) -> set[str]:
    return {
        name
        for parameter in COMMANDS[command].params
        for name in (*parameter.opts, *parameter.secondary_opts)
    }


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_can_print_json_and_be_quiet(command: str):
    assert {"--json", "--quiet"} <= option_names(command)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_text_is_a_sentence_that_starts_with_a_verb(command: str):
    assert re.match(r"[A-Z]", COMMANDS[command].help or "")
    for parameter in COMMANDS[command].params:
        help_text = getattr(parameter, "help", None)
        if help_text and parameter.name != "help":
            assert re.match(r"[A-Z].*[.]", help_text), parameter.name


@pytest.mark.parametrize("document", ["README.md", "docs/how-to/ci-gates.md"])
def test_commands_in_the_documentation_have_the_options_they_show(document: str):
    text = re.sub(r"sh '(.*)'", r"\1", (ROOT / document).read_text())  # Jenkins quotes its steps
    lines = re.findall(r"^\s*(?:- )?(?:venv/bin/)?(ltp-pipeline [a-z].*)$", text, re.M)
    assert len(lines) >= 2
    for line in lines:
        words = shlex.split(line, comments=True)
        assert words[1] in COMMANDS, line
        options = {word for word in words if word.startswith("--")}
        assert options <= option_names(words[1]), line


def test_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]):
    assert invoke(capsys, "--version").out.strip() == f"ltp-pipeline {__version__}"


def test_unknown_option_is_a_usage_error(capsys: pytest.CaptureFixture[str]):
    result = invoke(capsys, "run", "model.onnx", "--epoks", 5)
    assert result.code == 2
    assert "--epoks" in result.err


def test_terminal_without_unicode_does_not_end_a_command(tmp_path: Path):
    model = copy_example(tmp_path / "example")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "ltp_pipeline", "inspect", str(model)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "stem.weight" in result.stdout


def test_error_is_two_short_lines_whatever_the_name(capsys: pytest.CaptureFixture[str]):
    result = invoke(capsys, "inspect", "new\nline\x1b[31m" + 5000 * "x" + ".onnx")
    assert result.code == 3
    message, hint = result.err.splitlines()
    assert message.startswith("error: ")
    assert hint.startswith("  ")
    assert "new?line?[31mxxx" in message
    assert len(message) < 2010
    assert message.isprintable()


@pytest.mark.parametrize(
    ("error", "lines"),
    [
        (
            GateFailed("gate failed: a\ngate failed: b", "a: x\n  b: y"),
            ["gate failed: a", "gate failed: b", "  a: x", "  b: y"],
        ),
        (
            UnsupportedModel("no", "hint", ["first", "second"]),
            ["error: no", "  first", "  second", "  hint"],
        ),
        (TaskFailed("no", "hint", "line 1\nline 2\n"), ["line 1", "line 2", "error: no", "  hint"]),
    ],
)
def test_error_is_printed_with_all_it_has(
    error: LtpError, lines: list[str], monkeypatch: pytest.MonkeyPatch, capsys
):
    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr(cli, "app", fail)
    result = invoke(capsys)
    assert (result.code, result.err.splitlines()) == (error.exit_code, lines)


@pytest.mark.parametrize(
    ("error", "parts"),
    [
        (OSError(errno.EROFS, "Read-only file system", "run/x"), ("run/x", "Read-only")),
        (OSError(errno.ENOSPC, "No space left on device"), ("No space left", "free some space")),
    ],
)
def test_error_of_the_system_is_an_input_error(
    error: OSError, parts: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys
):
    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr(cli, "app", fail)
    result = invoke(capsys)
    assert result.code == 3
    assert all(part in result.err for part in parts)
