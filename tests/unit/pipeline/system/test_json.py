"""JSON from elsewhere: what it leaves open is refused, and what this program writes is read."""

import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltp_pipeline.errors import InputError
from ltp_pipeline.system.files import MAX_TEXT_BYTES, json_text
from ltp_pipeline.system.json import MAX_DEPTH, MAX_NUMBER_LENGTH, parse_json, read_json

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
    ),
    max_leaves=20,
)


@given(VALUES)
def test_parse_json_reads_json_text(value: object) -> None:
    assert parse_json(json_text(value), "it", "") == value


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ('{"a": 1, "b": {"c": 1, "c": 1}}', "'c'"),
        ('{"' + "k" * 5000 + '": 1, "' + "k" * 5000 + '": 1}', "…"),
        ("[NaN]", "NaN"),
        ("[-Infinity]", "-Infinity"),
        ("[1e400]", "1e400"),
        ("[-1e400]", "-1e400"),
        ("[" + "9" * 400 + "]", "400"),
        ("[0." + "3" * 400 + "]", "402"),
        ("[" + "9" * 5000 + "]", "5000"),
        ("[-0.0]", "-0.0"),
        ("[-0]", "-0"),
        ("[-0e5]", "-0e5"),
        ("[-1e-400]", "-1e-400"),
        ("[" * 100_000 + "]" * 100_000, "nested too deep"),
        ('{"a":' * 100_000, "nested too deep"),
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "nested too deep"),
        (r'["\ud800"]', "surrogates not allowed"),
        (r'{"\udfff": 1}', "surrogates not allowed"),
        ("{'a': 1}", "not JSON"),
        ('{"a": 1}x', "not JSON"),
        ("", "not JSON"),
        ("\ufeff{}", "not JSON"),
    ],
)
def test_parse_json_ambiguous_text_raises(text: str, part: str) -> None:
    with pytest.raises(InputError, match=r"^it\b") as caught:
        parse_json(text, "it", "do this")
    assert part in caught.value.message
    assert len(caught.value.message) < 400
    assert caught.value.hint == "do this"


def test_parse_json_values_at_the_limits_are_accepted() -> None:
    deep = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert json.dumps(parse_json(deep, "it", "")) == deep
    assert parse_json("9" * MAX_NUMBER_LENGTH, "it", "") == 10**MAX_NUMBER_LENGTH - 1


def test_json_text_zeros_have_no_sign() -> None:
    (value,), pair = parse_json(json_text([[-0.0], {"a": (-0.0, -1.5)}]), "it", "")
    assert math.copysign(1, value) == 1
    assert pair == {"a": [0.0, -1.5]}


def test_read_json_returns_the_content(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"é": [1, 2.5, true, null]}', encoding="utf-8")
    assert read_json(path, "") == {"é": [1, 2.5, True, None]}


def test_read_json_path_that_is_not_a_file_raises_unopened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "nowhere").symlink_to(tmp_path / "missing")
    (tmp_path / "latin").write_bytes(b'"\xe9"')
    with (tmp_path / "large").open("wb") as file:
        file.truncate(MAX_TEXT_BYTES + 1)
    messages = {}
    for name in ("pipe", "nowhere", "latin", "large", ".", "missing", "n" * 5000, "zero\0"):
        with pytest.raises(InputError) as caught:
            read_json(tmp_path / name, "")
        messages[name] = caught.value.message
    assert "pipe" in messages["pipe"]
    assert "a folder" in messages["."]
    assert f"{MAX_TEXT_BYTES:,}" in messages["large"]
    assert "UTF-8" in messages["latin"]
