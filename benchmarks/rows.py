"""Find the rows of a results file: dictionaries of a plan and of what was measured for it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.ablations import plans

Row = dict[str, Any]


def find_row(rows: Iterable[Row], plan: Row) -> Row | None:
    """Return the row of a plan; None if it was not measured."""
    return next((row for row in rows if plan.items() <= row.items()), None)


def find_rows(rows: Sequence[Row], selection: Iterable[Row]) -> list[Row]:
    """Return the rows of the plans that were measured."""
    candidates = (find_row(rows, plan) for plan in selection)
    return [row for row in candidates if row is not None]


def group_by(rows: Sequence[Row], key: str) -> dict[Any, list[Row]]:
    """Return rows by the value of a key, in the order of the rows."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[key], []).append(row)
    return groups


def find_repetitions(rows: Sequence[Row], make_plan: Callable[..., Row], changed: Row) -> list[Row]:
    """Return the rows with changed settings, one for each seed.

    Args:
        rows: Rows of the ablations.
        make_plan: Function of plans.py that makes the plan of a seed.
        changed: Settings that differ from its defaults.
    """
    return find_rows(rows, (make_plan(seed, **changed) for seed in plans.VARIED_SEEDS))


def mean_std(values: Sequence[float]) -> tuple[float, float]:
    """Return mean and sample standard deviation, which is 0 for a single value."""
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def parse_numbers(line: str) -> "np.ndarray[Any, Any]":
    """Return the numbers that a results file has as one line."""
    return np.array(line.split(), float)


def list_origins(rows: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Return the commits and the processors of rows; – stands for a row without the entry."""
    commits = {str(row.get("commit", "–")) for row in rows}
    processors = {str(row.get("processor", "–")) for row in rows}
    return ", ".join(sorted(commits)), ", ".join(sorted(processors))
