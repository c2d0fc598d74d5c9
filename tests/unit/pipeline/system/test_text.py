"""Numbers and names as text."""

from typing import Any

import pytest

from ltp_pipeline.system import text


@pytest.mark.parametrize(
    ("function", "value", "expected"),
    [
        (text.format_ratio, 8.3637, "8.36×"),
        (text.format_ratio, 123.4, "123×"),
        (text.format_ratio, None, "–"),
        (text.format_shape, (3, None), "3×?"),
        (text.format_shape, (), "scalar"),
        (text.format_shape, None, "any shape"),
    ],
)
def test_format_value_gives_text(function: Any, value: Any, expected: str) -> None:
    assert function(value) == expected
