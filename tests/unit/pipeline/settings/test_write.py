"""TOML that is written is read again as the same settings."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltp_pipeline.settings.write import format_key, format_section_name, format_toml, format_value

TEXT = st.text(st.characters(codec="utf-8"))
SCALARS = (
    TEXT
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(
    SCALARS,
    lambda of: st.lists(of, max_size=3) | st.dictionaries(TEXT, of, max_size=3),
    max_leaves=5,
)


@given(TEXT)
def test_format_key_any_name_is_read_as_that_name(name: str) -> None:
    assert tomllib.loads(f"{format_key(name)} = 1") == {name: 1}


@pytest.mark.parametrize("name", ["image", "input_0", "a-b"])
def test_format_key_plain_name_is_not_quoted(name: str) -> None:
    assert format_key(name) == name


@given(VALUES)
def test_format_value_any_value_is_read_as_that_value(value: object) -> None:
    text = format_value(value)
    assert "\n" not in text
    assert tomllib.loads(f"value = {text}") == {"value": value}


def test_format_section_name_quotes_dots_inside_a_name() -> None:
    assert format_section_name("data", "inputs", "a.b") == '[data.inputs."a.b"]'


@given(st.dictionaries(TEXT, VALUES, max_size=4))
def test_format_toml_any_mapping_is_read_as_that_mapping(settings: dict[str, object]) -> None:
    assert tomllib.loads(format_toml(settings)) == settings


def test_format_toml_none_is_left_out() -> None:
    assert format_toml({"train": {"seed": 0, "lr": None}}) == "[train]\nseed = 0\n"


def test_format_toml_nested_mapping_becomes_a_section_without_an_empty_parent() -> None:
    settings = {"data": {"inputs": {"a": {"scale": 0.5}}}, "log": {}}
    assert format_toml(settings) == "[data.inputs.a]\nscale = 0.5\n\n[log]\n"
