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


def by(rows: Sequence[Row], key: str) -> dict[str, list[Row]]:
    """Rows with the same setting together, in the order in which the settings come."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[key], []).append(row)
    return groups


def repeated(rows: Sequence[Row], mode: Callable[..., Row], changed: Row) -> list[Row]:
    """Rows of the small network with these settings changed, one for each seed."""
    return found(rows, (mode("resnet", seed, **changed) for seed in plans.SENSITIVITY_SEEDS))


def mean_std(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation."""
    return float(np.mean(values)), float(np.std(values))


def numbers(line: str) -> "np.ndarray[Any, Any]":
    """The weights of a layer, which are kept as one line."""
    return np.array(line.split(), float)
