"""Markdown for docs/results.md."""

import textwrap
from collections.abc import Iterable, Sequence

WIDTH = 120


def text(*sentences: str) -> str:
    """A paragraph, wrapped, and an empty line."""
    return textwrap.fill(" ".join(sentences), WIDTH, break_long_words=False, break_on_hyphens=False) + "\n"


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> Iterable[str]:
    """Lines of a table, and an empty one."""
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for line in lines:
        yield f"| {' | '.join(line)} |"
    yield ""


def figure(name: str, said: str) -> str:
    """A picture of docs/figures."""
    return f"![{said}](figures/{name}.svg)\n"


def sentence(note: str) -> str:
    """A note as a sentence."""
    return note[:1].upper() + note[1:].rstrip(".") + "." if note else ""
