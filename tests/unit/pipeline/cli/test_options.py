"""Options that are made from the settings schema, and those that several commands share."""

import inspect
from typing import Any

import pytest
import typer

from ltp_pipeline.cli import options, result_commands, run_commands
from ltp_pipeline.cli.app import app
from ltp_pipeline.errors import UsageError
from ltp_pipeline.settings.load import load_settings
from ltp_pipeline.settings.schema import GateSettings, Settings
from tests.support.cli import invoke

COMMANDS = typer.main.get_command(app).commands
# An argument of each option of a setting, and the value that the settings then have.
ARGUMENTS = {
    "data.path": ("data.npz", "data.npz"),
    "budget.target_compression": ("2.5", 2.5),
    "budget.target_sparsity": ("0.5", 0.5),
    "budget.target_macs": ("0.2", 0.2),
    "budget.target_bytes": ("2000", 2000.0),
    "budget.target_latency": ("0.5", 0.5),
    "budget.accuracy_budget": ("0.01", 0.01),
    "train.epochs": ("3", 3),
    "train.finetune_epochs": ("0", 0),
    "train.batch_size": ("16", 16),
    "train.lr": ("0.5", 0.5),
    "train.distillation_weight": ("0.25", 0.25),
    "train.skip_label_check": (None, True),
    "train.seed": ("7", 7),
    "train.device": ("cpu", "cpu"),
    "train.precision": ("bf16", "bf16"),
    "train.threads": ("2", 2),
    "prune.include": ("conv*", ("conv*",)),
    "prune.exclude": ("head*", ("head*",)),
    "export.formats": ("dense", ("dense",)),
    "export.weight_storage": ("int8", ("int8",)),
    "export.best": (None, True),
    "baseline.mode": ("gradual", "gradual"),
    "gates.min_accuracy": ("0.9", 0.9),
    "gates.max_drop": ("-0.01", -0.01),
    "gates.min_sparsity": ("0.5", 0.5),
    "gates.min_compression": ("2", 2.0),
    "gates.min_model_compression": ("2", 2.0),
    "gates.max_macs": ("0.2", 0.2),
    "gates.beat_baseline": (None, True),
    "gates.baseline_margin": ("0.01", 0.01),
    "gates.min_gain": ("1.5", 1.5),
    "gates.max_bytes": ("int8=1000", {"int8-packed": 1000}),
    "gates.max_latency_ratio": ("0.5", 0.5),
    "gates.min_layer_density": ("0.01", 0.01),
    "gates.confidence": ("0.95", 0.95),
}


def test_every_option_of_a_setting_is_tested():
    setting_options = options.iter_options(*Settings.model_fields)
    assert [f"{option.section}.{option.key}" for option in setting_options] == list(ARGUMENTS)


def capture_settings(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Let `run` do nothing but fill the returned mapping with the settings of its options."""
    passed: dict[str, Any] = {}
    monkeypatch.setattr(run_commands, "load_settings", lambda *args: passed.update(args[-1]))
    monkeypatch.setattr(run_commands, "_prune_model", lambda *_, **__: None)
    return passed


@pytest.mark.parametrize("name", ARGUMENTS)
def test_option_of_a_setting_sets_it(name: str, monkeypatch, capsys: pytest.CaptureFixture[str]):
    passed = capture_settings(monkeypatch)
    argument, expected = ARGUMENTS[name]
    section, key = name.split(".")
    option = options.find_option(section, key)
    arguments = [option.name] if argument is None else [option.name, argument]
    extra = ["--beat-baseline"] if key == "baseline_margin" else []
    result = invoke(capsys, "run", "model.onnx", *arguments, *extra)
    assert result.code == 0, result.err
    value = getattr(getattr(load_settings(None, options=passed), section), key)
    assert (str(value) if key == "path" else value) == expected


def test_options_that_are_not_used_set_nothing(monkeypatch, capsys):
    passed = capture_settings(monkeypatch)
    assert invoke(capsys, "run", "model.onnx").code == 0
    assert load_settings(None, options=passed) == Settings()


@pytest.mark.parametrize(
    "option", options.iter_options(*Settings.model_fields), ids=lambda option: option.name
)
def test_help_of_an_option_is_the_description_with_the_default(option, capsys):
    help_text = " ".join(invoke(capsys, "run", "--help").out.split())
    assert option.name in help_text
    assert " ".join(option.help_text.split()) in help_text


@pytest.mark.parametrize(
    ("section", "key", "default"),
    [
        ("train", "batch_size", "128"),
        ("train", "seed", "0"),
        ("export", "formats", "sparse, packed"),
    ],
)
def test_help_of_an_option_ends_with_the_default(section: str, key: str, default: str):
    assert options.find_option(section, key).help_text.endswith(f"Default: {default}.")


@pytest.mark.parametrize("command", ["run", "pick", "gate"])
def test_commands_that_check_gates_take_every_gate(command: str):
    names = {name for parameter in COMMANDS[command].params for name in parameter.opts}
    assert {f"--{key.replace('_', '-')}" for key in GateSettings.model_fields} <= names


def test_with_settings_keeps_name_and_documentation_of_the_command():
    assert result_commands.gate.__name__ == "gate"
    assert (result_commands.gate.__doc__ or "").startswith("Check a report")
    assert "values" not in inspect.signature(result_commands.gate).parameters


@pytest.mark.parametrize(
    ("mode", "no_baseline", "expected"),
    [(None, False, None), (None, True, "none"), ("none", True, "none"), ("curve", False, "curve")],
)
def test_merge_baseline_mode(mode: str | None, no_baseline: bool, expected: str | None):
    assert options.merge_baseline_mode(mode, no_baseline) == expected


def test_merge_baseline_mode_contradiction_is_rejected():
    with pytest.raises(UsageError, match="--baseline curve"):
        options.merge_baseline_mode("curve", no_baseline=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("method.t0=0.01", {"method": {"t0": 0.01}}),
        ("train.seed=7", {"train": {"seed": 7}}),
        ("data.layout=NHWC", {"data": {"layout": "NHWC"}}),
        ("data.mean=[0.5]", {"data": {"mean": [0.5]}}),
        (
            'data.inputs."side.info:0".scale=0.5',
            {"data": {"inputs": {"side.info:0": {"scale": 0.5}}}},
        ),
    ],
)
def test_parse_assignment_value_is_toml_or_text(text: str, expected: object):
    assert options.parse_assignment(text) == expected


@pytest.mark.parametrize("text", ["epochs=3", "train", "data.inputs.side:0.scale=0.5", ""])
def test_parse_assignment_other_form_is_rejected(text: str):
    with pytest.raises(UsageError) as caught:
        options.parse_assignment(text)
    assert caught.value.exit_code == 2
    assert "--set" in caught.value.hint


def test_add_assignments_override_options_in_their_order():
    values: options.SettingValues = {"train": {"seed": 1, "lr": None}}
    options.add_assignments(values, ["train.seed=2", "train.seed=3", "log.tensorboard=true"])
    assert values == {"train": {"seed": 3, "lr": None}, "log": {"tensorboard": True}}
