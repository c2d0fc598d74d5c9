"""Judge the rows of the study by the tests of PLAN.md."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.study.networks import NETWORKS
from benchmarks.study.schedule import RATE_SEED, Row, find_rows

LEVEL = 0.05  # of a test, after Holm's correction
FEWEST_PAIRS = 3
OURS = "ltp"
CONTROLS = ("dense", "own-loop")  # neither prunes under the same conditions as LTP


@dataclass(frozen=True)
class Cell:
    """A network and a budget.

    Attributes:
        network: Name of the network.
        cost: What the budget counts.
        fraction: Fraction of the cost that is left.
    """

    network: str
    cost: str
    fraction: float


@dataclass(frozen=True)
class Comparison:
    """LTP beside another method in one cell.

    Attributes:
        cell: The cell.
        mean: Mean difference of accuracy, LTP minus the other method.
        interval: Its 95 % t-interval.
        p: Two-sided p-value of the paired t-test.
        adjusted: The p-value after Holm's correction over all cells of the other method.
        pairs: Number of seeds.
    """

    cell: Cell
    mean: float
    interval: tuple[float, float]
    p: float
    adjusted: float
    pairs: int

    @property
    def verdict(self) -> str:
        """Ahead, behind or level."""
        if self.adjusted >= LEVEL:
            return "level"
        return "ahead" if self.mean > 0 else "behind"


def list_cells(rows: Sequence[Row]) -> list[Cell]:
    """Return the cells in which seeds were compared, in the order of the plan."""
    cells = {
        Cell(row["network"], row["cost"], row["fraction"])
        for row in rows
        if row["seed"] != RATE_SEED and row["method"] != "dense"
    }
    names = list(NETWORKS)
    return sorted(cells, key=lambda cell: (names.index(cell.network), cell.cost, -cell.fraction))


def accuracies(rows: Sequence[Row], cell: Cell, method: str) -> dict[int, float]:
    """Return the test accuracy of a method in a cell by seed, without the seed of the rates.

    A run that diverged has the accuracy of chance. The dense network is the same in all cells.
    """
    values: dict[str, Any] = {"network": cell.network, "method": method}
    if method != "dense":
        values |= {"cost": cell.cost, "fraction": cell.fraction}
    chance = 1 / NETWORKS[cell.network].classes
    return {
        row["seed"]: chance if row["test"] is None else row["test"]
        for row in find_rows(rows, **values)
        if row["seed"] != RATE_SEED
    }


def compare(rows: Sequence[Row], rival: str) -> list[Comparison]:
    """Compare LTP with another method in all cells in which both have enough seeds."""
    results = []
    for cell in list_cells(rows):
        ours = accuracies(rows, cell, OURS)
        theirs = accuracies(rows, cell, rival)
        seeds = sorted(ours.keys() & theirs.keys())
        if len(seeds) >= FEWEST_PAIRS:
            differences = [ours[seed] - theirs[seed] for seed in seeds]
            results.append((cell, differences, *paired_t_test(differences)))
    adjusted = adjust_by_holm([p for *_, p in results])
    return [
        Comparison(cell, float(np.mean(differences)), interval, p, corrected, len(differences))
        for (cell, differences, interval, p), corrected in zip(results, adjusted, strict=True)
    ]


def paired_t_test(differences: Sequence[float]) -> tuple[tuple[float, float], float]:
    """Return the 95 % t-interval of a mean difference, and its two-sided p-value."""
    n = len(differences)
    mean = float(np.mean(differences))
    error = float(np.std(differences, ddof=1)) / math.sqrt(n)
    if error == 0:  # as good as never: accuracies are counts of thousands of samples
        return (mean, mean), 1.0 if mean == 0 else 0.0
    half = _t_quantile(LEVEL, n - 1) * error
    return (mean - half, mean + half), t_tail(abs(mean) / error, n - 1)


def t_tail(t: float, freedom: int) -> float:
    """Return the probability that Student's |t| is at least `t`.

    These are the finite series for whole degrees of freedom (Abramowitz and Stegun, 26.7.3 and
    26.7.4).
    """
    angle = math.atan(t / math.sqrt(freedom))
    squared = math.cos(angle) ** 2
    term = 1.0 if freedom % 2 == 0 else math.cos(angle)
    total = term if freedom > 1 else 0.0
    for k in range(1 + freedom % 2, freedom - 2, 2):
        term *= squared * k / (k + 1)
        total += term
    inside = total * math.sin(angle)
    if freedom % 2:
        inside = 2 / math.pi * (angle + inside)
    return max(1 - inside, 0.0)


def adjust_by_holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number by Holm's method (1979)."""
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, i in enumerate(np.argsort(p_values, kind="stable").tolist()):
        highest = max(highest, min((len(p_values) - rank) * p_values[i], 1.0))
        adjusted[i] = highest
    return adjusted


def count_verdicts(comparisons: Sequence[Comparison]) -> Mapping[str, int]:
    """Return the number of cells in which LTP is ahead, level and behind."""
    verdicts = [comparison.verdict for comparison in comparisons]
    return {verdict: verdicts.count(verdict) for verdict in ("ahead", "level", "behind")}


def _t_quantile(tail: float, freedom: int) -> float:
    """Return the t that |t| exceeds with a probability, by bisection."""
    low, high = 0.0, 1e6
    for _ in range(100):
        middle = (low + high) / 2
        if t_tail(middle, freedom) > tail:
            low = middle
        else:
            high = middle
    return high
