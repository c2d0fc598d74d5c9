"""The rows of a results file: a dictionary for each run, its plan first and then what was measured."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from benchmarks.ablations import plans

Row = dict[str, Any]


def find(rows: Iterable[Row], plan: Row) -> Row | None:
    """The row of a plan, when it was measured."""
    return next((row for row in rows if plan.items() <= row.items()), None)


def found(rows: Sequence[Row], wanted: Iterable[Row]) -> list[Row]:
    """Rows of these plans, as many as were measured."""
    return [row for plan in wanted if (row := find(rows, plan)) is not None]


def by(rows: Sequence[Row], key: str) -> dict[Any, list[Row]]:
    """Rows with the same setting together, in the order in which the settings come."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[key], []).append(row)
    return groups


def repeated(rows: Sequence[Row], mode: Callable[..., Row], changed: Row) -> list[Row]:
    """Rows with these settings changed, one for each seed."""
    return found(rows, (mode(seed, **changed) for seed in plans.VARIED_SEEDS))


def mean_std(values: Sequence[float]) -> tuple[float, float]:
    """Mean and sample standard deviation; none for a single value."""
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def numbers(line: str) -> "np.ndarray[Any, Any]":
    """Many numbers, which are kept as one line."""
    return np.array(line.split(), float)


def origins(rows: Sequence[Row]) -> tuple[str, str]:
    """The commits and the processors that rows were measured with; – where a row does not say it."""
    commits, processors = (
        sorted({str(row.get(key, "–")) for row in rows}) for key in ("commit", "processor")
    )
    return ", ".join(commits), ", ".join(processors)
