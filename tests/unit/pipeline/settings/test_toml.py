"""TOML from elsewhere: what means nothing, or only costs time, is refused in a line."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from ltp_pipeline.errors import InputError
from ltp_pipeline.settings.load import load_settings
from ltp_pipeline.settings.toml import MAX_DOTS, MAX_FILE_BYTES, parse_toml
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


@pytest.mark.parametrize("bomb", BOMBS)
def test_what_is_no_settings_is_refused_in_seconds(tmp_path: Path, bomb: str) -> None:
    path = tmp_path / "ltp.toml"
    path.write_text(BOMBS[bomb], encoding="utf-8")
    begun = time.process_time()
    with pytest.raises(InputError) as caught:
        load_settings(None, path)
    assert time.process_time() - begun < 2
    assert len(caught.value.message) < 400


@pytest.mark.parametrize("value", ["9" * 5000, "9" * 400, "[" * 5000, "1e400", "nan"])
def test_set_takes_no_such_value_either(capsys: Any, tmp_path: Path, value: str) -> None:
    result = invoke(capsys, "run", tmp_path / "model.onnx", "--set", f"train.epochs={value}")
    assert result.code in (2, 3)
    assert "Traceback" not in result.err


def test_settings_that_are_no_file_are_refused_and_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", ".", "missing"):
        with pytest.raises(InputError, match="cannot read"):
            load_settings(None, tmp_path / name)


def test_lists_of_numbers_may_have_as_many_dots_as_they_need() -> None:
    numbers = ", ".join(["0.5"] * MAX_DOTS)
    assert parse_toml(f"a = [{numbers}]") == {"a": [0.5] * MAX_DOTS}
    assert parse_toml(f"a = [{numbers},\n{numbers}]") == {"a": [0.5] * 2 * MAX_DOTS}
    assert parse_toml(f"a = {2**63 - 1}\nb = {-(2**63)}") == {"a": 2**63 - 1, "b": -(2**63)}
