"""Numbers and names in sentences."""

DIGITS = 4  # of a number that is no share
LONGEST_LINE = 500  # characters of a message


def pluralize(number: int, thing: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def format_value(value: object) -> str:
    """A limit or a measurement in a line of text."""
    if value is None:
        return "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def format_percent(share: float, digits: int = 2) -> str:
    """0.9132 → 91.32 %."""
    return f"{_format_fixed(100 * share, digits)} %"


def format_points(share: float) -> str:
    """0.0045 → 0.45; a minus sign is a gain."""
    return _format_fixed(100 * share, 2)


def format_number(value: float) -> str:
    """2.3104 → 2.31, 12345.6 → 12346, 0.0000123 → 1.23e−05: four digits, or all before the point."""
    whole = 10 ** (DIGITS - 1) <= abs(value) < 1e15
    return (f"{value:.0f}" if whole else f"{value + 0.0:.{DIGITS}g}").replace("-", "−")


def make_printable(text: str) -> str:
    """Names may hold anything; control characters have no place in XML, nor in a line of a log."""
    return "".join(c if c.isprintable() else "?" for c in text)


def quote_name(name: str, most: int = 60) -> str:
    """A name from a file in a sentence: in quotes, on one line, its middle left out where it is long."""
    half = most // 2
    value_text = name if len(name) <= most else f"{name[:half]}…{name[-half:]}"
    return f"'{make_printable(value_text)}'"


def one_line(text: str, most: int = LONGEST_LINE) -> str:
    """A text as one line of a length to read, whatever names are in it: the middle is left out where it is longer."""
    half = most // 2 - 2
    return make_printable(text if len(text) <= most else f"{text[:half]} … {text[-half:]}")


def _format_fixed(value: float, digits: int) -> str:
    """With a true minus sign, and none before zero."""
    zero = f"{0:.{digits}f}"
    return f"{value:.{digits}f}".replace(f"-{zero}", zero).replace("-", "−")


def round_duration(seconds: float) -> str:
    """A duration in the unit that an estimate deserves."""
    if seconds < 60:
        return f"{max(round(seconds / 5) * 5, 5)} s"
    minutes = round(seconds / 60)
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest:02d} min" if hours else f"{minutes} min"
