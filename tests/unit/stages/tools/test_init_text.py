"""Names from a file cannot break the file that is written."""

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from ltp_pipeline.stages.tools.init_text import quoted, toml

TEXT = st.text(st.characters(codec="utf-8"))
PLAIN = (
    TEXT
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(
    PLAIN, lambda of: st.lists(of, max_size=3) | st.dictionaries(TEXT, of, max_size=3), max_leaves=5
)


@given(TEXT)
def test_any_name_is_read_again_as_a_key_and_as_a_value(name: str) -> None:
    assert tomllib.loads(f"{quoted(name)} = {quoted(name)}") == {name: name}


@given(VALUES)
def test_any_value_of_settings_is_read_again(value: object) -> None:
    assert tomllib.loads(f"value = {toml(value)}") == {"value": value}
