"""The one place where TOML is read: files of settings and values of --set; what only costs time is refused."""

import tomllib
from typing import Any

from ltp_pipeline.system.text import quote_name

MAX_FILE_BYTES = 1 << 20  # of a file of settings
MAX_DOTS = 200  # in a line: the time for a name with dots grows with their square
MAX_DEPTH = 32  # tables and arrays inside each other
WHOLE = 2**63  # whole numbers are smaller than this, as TOML has it


def parse_toml(text: str) -> dict[str, Any]:
    """What TOML says; a ValueError where it is none, or says what no setting can mean."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") > MAX_DOTS:
            raise ValueError(f"line {number} has over {MAX_DOTS} dots; write it in several lines")
    try:
        found = tomllib.loads(text)
        _check(found, 0)
    except RecursionError:
        raise ValueError("tables or arrays are nested too deep") from None
    return found


def _check(value: Any, depth: int) -> None:
    if isinstance(value, int) and not -WHOLE <= value < WHOLE:
        raise ValueError(f"a whole number is too large: {quote_name(hex(value))}")
    if isinstance(value, dict | list):
        if depth == MAX_DEPTH:
            raise RecursionError
        for one in value.values() if isinstance(value, dict) else value:
            _check(one, depth + 1)
