"""Settings from files and options: their order, unknown keys, and invalid TOML."""

import os
import time
from pathlib import Path

import pytest

from ltp_pipeline.errors import InputError
from ltp_pipeline.settings.load import (
    MAX_DOTS,
    MAX_FILE_BYTES,
    load_settings,
    merge_tables,
    parse_toml,
)
from tests.support.cli import invoke

BOMBS = {
    "a number of 5000 digits": "[gates]\nmax_drop = " + "9" * 5000,
    "a number of 400 digits": "[gates]\nmin_compression = " + "9" * 400,
    "a number over 64 bits": f"[train]\nseed = {2**63}",
    "a hexadecimal number": "[train]\nseed = 0x" + "f" * 50_000,
    "a number too large for a float": "[gates]\nmax_drop = 1e400",
    "no number": "[gates]\nmax_drop = nan",
    "arrays in arrays": "a = " + "[" * 10_000,
    "arrays in arrays, closed": "a = " + "[" * 40 + "]" * 40,
    "tables in tables": "a = " + "{a=" * 10_000,
    "a name of dots": ".".join("a" * 20_000) + " = 1",
    "a quoted name of dots": ".".join(['"="'] * 20_000) + " = 1",
    "a table of dots": f"[{'.'.join('a' * 50_000)}]",
    "a large file": "#" * (MAX_FILE_BYTES + 1),
}


def write_settings(folder: Path, text: str) -> Path:
    path = folder / "ltp.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_load_settings_later_sources_win(tmp_path: Path) -> None:
    write_settings(tmp_path, "[train]\nepochs = 5\nlr = 0.5\n")
    model = tmp_path / "model.onnx"
    settings = load_settings(model, None, "resnet20-cifar100", {"train": {"lr": 0.25}})
    assert settings.train.lr == 0.25
    assert settings.train.epochs == 5
    assert settings.train.weight_decay == 1e-4
    assert settings.train.momentum == 0.9


def test_load_settings_config_replaces_the_file_beside_the_model(tmp_path: Path) -> None:
    write_settings(tmp_path, "[train]\nepochs = 5\n")
    other = tmp_path / "other.toml"
    other.write_text("[train]\nlr = 0.5\n")
    settings = load_settings(tmp_path / "model.onnx", other)
    assert settings.train.epochs is None
    assert settings.train.lr == 0.5


def test_load_settings_path_of_data_is_relative_to_the_file(tmp_path: Path) -> None:
    path = write_settings(tmp_path, '[data]\npath = "data.npz"\n')
    assert load_settings(None, path).data.path == tmp_path / "data.npz"


@pytest.mark.parametrize(
    ("text", "key", "hint"),
    [
        ("[train2]\nx = 1\n", "train2", "train"),
        ("[train]\nepoks = 1\n", "train.epoks", "finetune_epochs"),
        ("[method]\nlambda_ = 1\nfoo = 1\n", "method.foo", "lambda"),
        ("epochs = 1\n", "epochs", "[train]"),
        ("[train]\nepochs = 0\n", "train.epochs", ""),
        ("[budget]\ntarget_compression = 3\ntarget_sparsity = 0.5\n", "target_sparsity", ""),
    ],
)
def test_load_settings_invalid_key_is_rejected_by_name(
    tmp_path: Path, text: str, key: str, hint: str
) -> None:
    with pytest.raises(InputError) as caught:
        load_settings(None, write_settings(tmp_path, text))
    assert caught.value.exit_code == 3
    assert key in caught.value.message
    assert hint in caught.value.hint


def test_load_settings_unknown_format_is_named_once() -> None:
    with pytest.raises(InputError) as caught:
        load_settings(None, options={"export": {"formats": ["foo"]}})
    assert caught.value.message.count("export.formats") == 1


@pytest.mark.parametrize("preset", ["unheard-of", "../presets/resnet20-cifar100", ""])
def test_load_settings_unknown_preset_is_rejected_with_all_names(preset: str) -> None:
    with pytest.raises(InputError) as caught:
        load_settings(None, preset=preset)
    assert "resnet20-cifar100" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "section"),
    [
        ("[data.inputs.a.b]\nscale = 1.0", '[data.inputs."a.b"]'),
        ("[data.inputs.a.b.c]\nscale = 1.0", '[data.inputs."a.b.c"]'),
        ("[data.inputs.a.b.c.d]", '[data.inputs."a.b.c.d"]'),
        ("[data]\ninputs.a.b.scale = 1.0", '[data.inputs."a.b"]'),
    ],
)
def test_load_settings_input_with_unquoted_dots_is_rejected_with_its_section(
    tmp_path: Path, text: str, section: str
) -> None:
    with pytest.raises(InputError) as caught:
        load_settings(None, write_settings(tmp_path, text))
    assert section in caught.value.message


@pytest.mark.parametrize(
    "text", ["[data.inputs.input:0]\nscale = 1.0", "[data\nscale = 1.0", "[data]\nscale = 1.0.0"]
)
def test_load_settings_invalid_toml_is_rejected_with_its_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="TOML") as caught:
        load_settings(None, write_settings(tmp_path, text))
    assert "line" in caught.value.message
    assert "[data.inputs." in caught.value.hint


@pytest.mark.parametrize("bomb", BOMBS)
def test_load_settings_bomb_is_rejected_in_seconds(tmp_path: Path, bomb: str) -> None:
    path = write_settings(tmp_path, BOMBS[bomb])
    started = time.process_time()
    with pytest.raises(InputError) as caught:
        load_settings(None, path)
    assert time.process_time() - started < 2
    assert len(caught.value.message) < 400


@pytest.mark.parametrize("value", ["9" * 5000, "9" * 400, "[" * 5000, "1e400", "nan"])
def test_set_option_with_a_bomb_is_rejected(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, value: str
) -> None:
    result = invoke(capsys, "run", tmp_path / "model.onnx", "--set", f"train.epochs={value}")
    assert result.code in (2, 3)
    assert "Traceback" not in result.err


def test_load_settings_path_that_is_not_a_file_is_rejected_unopened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", ".", "missing"):
        with pytest.raises(InputError) as caught:
            load_settings(None, tmp_path / name)
        assert str(tmp_path / name) in caught.value.message


def test_parse_toml_long_lists_and_64_bit_integers_are_accepted() -> None:
    numbers = ", ".join(["0.5"] * MAX_DOTS)
    assert parse_toml(f"a = [{numbers}]") == {"a": [0.5] * MAX_DOTS}
    assert parse_toml(f"a = [{numbers},\n{numbers}]") == {"a": [0.5] * 2 * MAX_DOTS}
    assert parse_toml(f"a = {2**63 - 1}\nb = {-(2**63)}") == {"a": 2**63 - 1, "b": -(2**63)}


def test_merge_tables_updates_recursively_and_ignores_none() -> None:
    target = {"a": {"b": 1, "c": {"d": 2}}, "e": 3}
    merge_tables(target, {"a": {"b": None, "c": {"f": 4}}, "e": {"g": 5}})
    assert target == {"a": {"b": 1, "c": {"d": 2, "f": 4}}, "e": {"g": 5}}
