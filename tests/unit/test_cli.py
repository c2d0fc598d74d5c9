"""Every command of the contract is there, takes --json and --quiet, and README's commands are real ones."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest
import typer

import ltp_pipeline
from ltp_pipeline.cli import app
from ltp_pipeline.config import Settings, load_settings, with_default_budget
from ltp_pipeline.errors import InputError
from ltp_pipeline.records import TrailEntry
from ltp_pipeline.stages.select_entry import pareto
from tests.support.cli import invoke

ROOT = Path(__file__).resolve().parents[2]
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


@pytest.mark.parametrize("document", ["README.md", "docs/ci.md"])
def test_commands_in_the_documents_have_the_options_they_show(document: str):
    text = re.sub(r"sh '(.*)'", r"\1", (ROOT / document).read_text())  # Jenkins quotes its steps
    shown = re.findall(r"^\s*(?:- )?(?:venv/bin/)?(ltp-pipeline [a-z].*)$", text, re.M)
    assert len(shown) >= 2
    for line in shown:
        words = shlex.split(line, comments=True)
        assert words[1] in COMMANDS, line
        assert {w for w in words if w.startswith("--")} <= options(words[1]), line


def test_settings_shown_in_the_readme_are_valid():
    (block,) = re.findall(r"```toml\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert Settings.model_validate(tomllib.loads(block)).budget.target_compression == 10


@pytest.mark.parametrize(
    ("text", "expected"),
    [("method.t0=0.01", 0.01), ("train.seed=7", 7), ("data.layout=NHWC", "NHWC"), ("data.mean=[0.5]", [0.5])],
)
def test_set_takes_toml_values_and_plain_words(text: str, expected: object):
    from ltp_pipeline.cli import _assignment

    section, key, value = _assignment(text)
    assert (f"{section}.{key}", value) == (text.split("=")[0], expected)


def test_of_two_entries_alike_neither_beats_the_other():
    entries = [TrailEntry(i, i, c, a, "", {}, {}) for i, (c, a) in enumerate([(2, 0.9), (5, 0.8), (5, 0.8), (4, 0.7)])]
    assert pareto(tuple(entries)) == {0, 1, 2}


def test_an_unknown_format_is_told_once():
    with pytest.raises(InputError) as told:
        load_settings(None, options={"export": {"formats": ["foo"]}})
    assert "at least 1 item" not in told.value.what


def test_settings_from_python_get_the_default_budget_and_no_options_beside_them():
    assert with_default_budget(Settings()).budget.accuracy_budget == 0.01
    with pytest.raises(InputError, match="both settings and options"):
        ltp_pipeline.run("model.onnx", Settings(), train={"epochs": 1})


@pytest.mark.parametrize(("given", "kept"), [(0.5, (0.5,)), (2, (2.0,)), ([0.1, 0.2], (0.1, 0.2))])
def test_mean_and_std_are_one_number_or_several(given: object, kept: tuple[float, ...]):
    data = load_settings(None, options={"data": {"mean": given, "std": given}}).data
    assert (data.mean, data.std) == (kept, kept)


def test_set_without_a_section_is_a_wrong_command_line(capsys: pytest.CaptureFixture[str]):
    assert invoke(capsys, "run", "model.onnx", "--set", "epochs=3").code == 2


def test_version_is_the_packages(capsys: pytest.CaptureFixture[str]):
    from ltp_pipeline import __version__

    assert invoke(capsys, "--version").out.strip() == f"ltp-pipeline {__version__}"


def test_a_terminal_that_knows_no_multiplication_sign_does_not_end_a_command(tmp_path: Path):
    import os
    import subprocess
    import sys

    from ltp_pipeline.demo import copy_to

    model = copy_to(tmp_path / "example")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "ltp_pipeline", "inspect", str(model)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "stem.weight" in result.stdout


@pytest.mark.parametrize("command", ["run", "pick", "gate"])
def test_every_command_that_judges_takes_every_gate(command: str):
    import inspect

    from ltp_pipeline import cli, cli_files
    from ltp_pipeline.cli_options import GATES

    function = getattr(cli, command, None) or getattr(cli_files, command)
    assert set(GATES) <= set(inspect.signature(function).parameters)


def test_every_section_of_the_settings_can_be_given_to_run_from_python():
    import inspect

    import ltp_pipeline

    taken = [p.name for p in inspect.signature(ltp_pipeline.run).parameters.values() if p.kind is not p.POSITIONAL_ONLY]
    assert not set(ltp_pipeline.Settings.model_fields) & set(taken)
