"""Numbers and names in sentences."""


def counted(number: int, thing: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def shown(value: object) -> str:
    """A limit or a measurement in a line of text."""
    if value is None:
        return "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def printable(text: str) -> str:
    """Names may hold anything; control characters have no place in XML, nor in a line of a log."""
    return "".join(c if c.isprintable() else "?" for c in text)
