"""The one place where JSON that may come from elsewhere is read; whatever JSON leaves open is refused.

That is: a key twice, NaN and infinity, numbers that are too large or have too many digits, a zero with a minus sign,
deep nesting, text that is no Unicode, files that are no regular ones or far too large.
"""

import json
import math
from typing import Any

from ltp_pipeline.errors import InputError
from ltp_pipeline.system.files import AnyPath, read_text
from ltp_pipeline.system.text import quote_name

MAX_DEPTH = 64  # lists and objects inside each other
MAX_NUMBER_LENGTH = 40  # characters; a float has up to 24, a whole number of 64 bits 20


def read_json(path: AnyPath, hint: str) -> Any:
    """What the JSON in a file says; `remedy` is what to do where it cannot be read."""
    return parse_json(read_text(path, hint), str(path), hint)


def parse_json(text: str, source: str, hint: str) -> Any:
    """What JSON says; messages call it `what`."""
    try:
        content = json.loads(
            text,
            object_pairs_hook=_make_object,
            parse_constant=_reject_constant,
            parse_float=_parse_float,
            parse_int=_parse_int,
        )
        _check_depth(content, 0)
    except (ValueError, RecursionError) as error:
        why = (
            "lists and objects are nested too deep" if isinstance(error, RecursionError) else error
        )
        raise InputError(f"{source} is not JSON, or was cut off: {why}", hint) from None
    return content


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {quote_name(key)} stands twice in one object")
        found[key] = value
    return found


def _reject_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _parse_float(written: str) -> float:
    value = float(_check_length(written))
    if not math.isfinite(value):
        raise ValueError(f"the number {written} is too large")
    if value == 0 and written.startswith("-"):
        raise ValueError(f"{written} is no number that is measured; write 0.0")
    return value


def _parse_int(written: str) -> int:
    value = int(_check_length(written))
    if value == 0 and written.startswith("-"):
        raise ValueError(f"{written} is no number that is measured; write 0")
    return value


def _check_length(written: str) -> str:
    if len(written) > MAX_NUMBER_LENGTH:
        raise ValueError(f"the number {quote_name(written)} has {len(written)} characters")
    return written


def _check_depth(value: Any, depth: int) -> None:
    """Refuse what is nested too deep, and halves of characters, which cannot be written again."""
    if isinstance(value, str):
        value.encode()
    elif isinstance(value, list | dict):
        if depth == MAX_DEPTH:
            raise RecursionError
        for one in value:  # of a dict, its keys
            _check_depth(one, depth + 1)
        for one in value.values() if isinstance(value, dict) else ():
            _check_depth(one, depth + 1)
