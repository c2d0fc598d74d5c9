"""Read JSON that may come from elsewhere, strictly.

Rejected are duplicate keys, NaN and infinity, numbers that are too large or have too many digits, a
zero with a minus sign, deep nesting, invalid Unicode, and files that are not regular or too large.
"""

import json
import math
from functools import partial
from itertools import chain
from typing import Any

from ltp_pipeline.errors import InputError
from ltp_pipeline.system.files import AnyPath, read_text
from ltp_pipeline.system.text import quote_name

MAX_DEPTH = 64  # nesting of lists and objects
MAX_NUMBER_LENGTH = 40  # characters; a float has up to 24, an integer of 64 bits 20


def read_json(path: AnyPath, hint: str) -> Any:
    """Return the content of a JSON file; raise InputError with a hint if that fails."""
    return parse_json(read_text(path, hint), str(path), hint)


def parse_json(text: str, source: str, hint: str) -> Any:
    """Return the content of a JSON text.

    Args:
        text: The text.
        source: Name of the text in messages.
        hint: What the user can do about an error.

    Raises:
        InputError: The text is not strict JSON.
    """
    try:
        content = json.loads(
            text,
            object_pairs_hook=_make_object,
            parse_constant=_reject_constant,
            parse_float=partial(_parse_number, float),
            parse_int=partial(_parse_number, int),
        )
        _check_depth(content, 0)
    except RecursionError:
        message = f"{source} is not JSON, or was cut off: lists and objects are nested too deep"
        raise InputError(message, hint) from None
    except ValueError as error:
        raise InputError(f"{source} is not JSON, or was cut off: {error}", hint) from None
    return content


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for key, value in pairs:
        if key in content:
            raise ValueError(f"duplicate key {quote_name(key)} in an object")
        content[key] = value
    return content


def _reject_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _parse_number(kind: type[int] | type[float], written: str) -> float:
    if len(written) > MAX_NUMBER_LENGTH:
        raise ValueError(f"the number {quote_name(written)} has {len(written)} characters")
    value = kind(written)
    if not math.isfinite(value):
        raise ValueError(f"the number {written} is too large")
    if value == 0 and written.startswith("-"):
        raise ValueError(f"{written} is not allowed; write {kind(0)}")
    return value


def _check_depth(value: Any, depth: int) -> None:
    """Raise an error for deep nesting, and for unpaired surrogates, which cannot be encoded."""
    if isinstance(value, str):
        value.encode()
    elif isinstance(value, list | dict):
        if depth == MAX_DEPTH:
            raise RecursionError
        values = value.values() if isinstance(value, dict) else ()
        for item in chain(value, values):  # an object gives its keys
            _check_depth(item, depth + 1)
