"""Names from a file cannot break the file that is written."""

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from ltp_pipeline.stages.init.text import quoted

TEXT = st.text(st.characters(codec="utf-8"))


@given(TEXT)
def test_any_name_is_read_again_as_a_key_and_as_a_value(name: str) -> None:
    assert tomllib.loads(f"{quoted(name)} = {quoted(name)}") == {name: name}
