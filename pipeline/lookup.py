"""Values deep in a report, which may be anything that somebody wrote into a file."""

import math
from collections.abc import Mapping
from typing import Any


def get(source: Any, *keys: str) -> Any:
    """A value deep in the report, None when anything on the way is missing."""
    for key in keys:
        source = source.get(key) if isinstance(source, Mapping) else None
    return source


def number(source: Any, *keys: str) -> float | None:
    """The value there, when it is a finite number."""
    value = get(source, *keys)
    usable = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return value if usable else None


def listed(source: Any, *keys: str) -> list[Mapping[str, Any]]:
    """The objects of a list there."""
    value = get(source, *keys)
    return [x for x in value if isinstance(x, Mapping)] if isinstance(value, list | tuple) else []
