"""Compare the values of a report with the values that it should have."""

import math
from collections.abc import Iterator
from typing import Any

from ltp_pipeline.errors import InputError
from ltp_pipeline.results.metric import ROUNDING
from ltp_pipeline.results.schema import Report
from ltp_pipeline.system.text import quote_name

HINT = "the report was edited or damaged: use the one that `ltp-pipeline run` wrote"
MAX_SHOWN = 120  # characters of a value in a message
UNCOMPARED = ("histograms", "scatter", "reasons")  # never computed from other values
# Null means that the gain is exact, and that no baseline is better.
COMPARED_IF_NULL = ("baseline.gain_bound", "comparison.better")


class ContradictionError(InputError):
    """A value of a report differs from what other values or its files give.

    Args:
        key: Key of the value.
        stated: The value.
        computed: The value that it should have.
        where: Name of the report in the message.
        source: What gives the other value.
    """

    def __init__(
        self,
        key: str,
        stated: Any,
        computed: Any,
        where: str = "the report",
        source: str = "its other values",
    ) -> None:
        stated_text = quote_name(str(stated), MAX_SHOWN)[1:-1]
        computed_text = quote_name(str(computed), MAX_SHOWN)[1:-1]
        message = f"{key} is {stated_text}, but by {source} it is {computed_text}"
        super().__init__(f"{where} contradicts itself: {message}", HINT)
        self.key = key
        self.stated = stated
        self.computed = computed


def is_same(first: Any, second: Any) -> bool:
    """Return whether two values are equal up to rounding."""
    if isinstance(first, tuple) and isinstance(second, tuple):
        return len(first) == len(second) and all(map(is_same, first, second))
    are_numbers = isinstance(first, int | float) and isinstance(second, int | float)
    if are_numbers and (isinstance(first, float) or isinstance(second, float)):
        return math.isclose(first, second, rel_tol=ROUNDING, abs_tol=ROUNDING)
    return bool(first == second)


def check_same(key: str, first: Any, second: Any) -> None:
    """Raise ContradictionError if two values of a key are known and differ."""
    if first is not None and second is not None and not is_same(first, second):
        raise ContradictionError(key, first, second)


def check_same_values(
    stated: Report, computed: Report, where: str, source: str = "its other values"
) -> None:
    """Raise ContradictionError for the first value of a report that was computed otherwise.

    Args:
        stated: The report. Values that are null are not compared.
        computed: The report with the values that it should have.
        where: Name of the report in the message.
        source: What the values were computed from, in the message.
    """
    content = stated.model_dump(exclude={*UNCOMPARED})
    expected = computed.model_dump(exclude={*UNCOMPARED})
    for key, value, computed_value in _find_differences(content, expected):
        raise ContradictionError(key, value, computed_value, where, source)


def _find_differences(stated: Any, computed: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield key, stated and computed value of every value that differs in a part of a report."""
    if isinstance(stated, dict) and isinstance(computed, dict):
        for name, value in stated.items():
            if name in computed and name not in UNCOMPARED:
                inner_key = f"{key}.{name}" if key else name
                yield from _find_differences(value, computed[name], inner_key)
    elif isinstance(stated, tuple) and stated and isinstance(stated[0], dict):
        for number, pair in enumerate(zip(stated, computed, strict=True)):
            yield from _find_differences(*pair, f"{key}.{number}")
    elif stated is None and key not in COMPARED_IF_NULL:
        return
    elif not is_same(stated, computed):
        yield key, stated, computed
