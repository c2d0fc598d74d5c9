"""Markdown for docs/results.md."""

import textwrap
from collections.abc import Iterable, Sequence

from benchmarks.rows import mean_std

WIDTH = 120


def text(*sentences: str) -> str:
    """A paragraph, wrapped anew, and an empty line."""
    words = " ".join(" ".join(sentences).split())
    return textwrap.fill(words, WIDTH, break_long_words=False, break_on_hyphens=False) + "\n"


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> Iterable[str]:
    """Lines of a table, and an empty one."""
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for line in lines:
        yield f"| {' | '.join(line)} |"
    yield ""


def figure(name: str, said: str) -> str:
    """A picture beside the results that it shows."""
    return f"![{said}](../benchmarks/results/{name}.svg)\n"


def spread(values: Sequence[float], digits: int = 1) -> str:
    """Mean, and the standard deviation where there is one."""
    mean, std = mean_std(values)
    return f"{mean:.{digits}f} ± {std:.{digits}f}" if len(values) > 1 else f"{mean:.{digits}f}"


def percent(share: float) -> str:
    """0.873 → 87.3."""
    return f"{100 * share:.1f}"
