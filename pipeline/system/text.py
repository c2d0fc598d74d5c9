"""Format numbers and names for messages."""

from collections.abc import Sequence

MISSING = "–"  # stands for a value that was not measured
DIGITS = 4  # significant digits of a number that is not a fraction
MAX_LINE_LENGTH = 500  # characters of a message


def pluralize(number: int, thing: str) -> str:
    """Return a number with its noun: `1 step`, `2 steps`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def format_value(value: object) -> str:
    """Return a limit or a measurement as text."""
    if value is None:
        return "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def format_percent(share: float, digits: int = 2) -> str:
    """Return a fraction in percent: 0.9132 as `91.32 %`."""
    return f"{_format_fixed(100 * share, digits)} %"


def format_points(share: float) -> str:
    """Return a fraction in percentage points: 0.0045 as `0.45`."""
    return _format_fixed(100 * share, 2)


def format_number(value: float) -> str:
    """Return a number with four significant digits, or with all digits before the point.

    For example 2.3104 as `2.31`, 12345.6 as `12346` and 0.0000123 as `1.23e−05`.
    """
    is_large = 10 ** (DIGITS - 1) <= abs(value) < 1e15
    text = f"{value:.0f}" if is_large else f"{value + 0.0:.{DIGITS}g}"
    return text.replace("-", "−")


def format_ratio(value: float | None) -> str:
    """Return a ratio of sizes or counts: 8.3637 → 8.36×."""
    if value is None:
        return MISSING
    return f"{value:.2f}×" if value < 100 else f"{value:.0f}×"


def format_shape(shape: Sequence[int | str | None] | None) -> str:
    """Return the shape of a tensor: (3, None) → 3×?."""
    if shape is None:
        return "any shape"
    return "×".join("?" if size is None else str(size) for size in shape) or "scalar"


def make_printable(text: str) -> str:
    """Return a text whose control characters are replaced by `?`.

    Names may hold any character, and control characters have no place in XML or in a log line.
    """
    return "".join(c if c.isprintable() else "?" for c in text)


def quote_name(name: str, most: int = 60) -> str:
    """Return a name from a file in quotes, on one line, shortened in the middle."""
    half = most // 2
    text = name if len(name) <= most else f"{name[:half]}…{name[-half:]}"
    return f"'{make_printable(text)}'"


def one_line(text: str, most: int = MAX_LINE_LENGTH) -> str:
    """Return a text on one line, shortened in the middle."""
    half = most // 2 - 2
    return make_printable(text if len(text) <= most else f"{text[:half]} … {text[-half:]}")


def _format_fixed(value: float, digits: int) -> str:
    """Return a number with a true minus sign, and none before zero."""
    zero = f"{0:.{digits}f}"
    return f"{value:.{digits}f}".replace(f"-{zero}", zero).replace("-", "−")


def round_duration(seconds: float) -> str:
    """Return a duration in seconds, rounded as an estimate deserves."""
    if seconds < 60:
        return f"{max(round(seconds / 5) * 5, 5)} s"
    minutes = round(seconds / 60)
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest:02d} min" if hours else f"{minutes} min"
