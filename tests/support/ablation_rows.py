"""Made-up rows of benchmarks/ablations, by plan."""

from collections.abc import Sequence
from typing import Any

from benchmarks.ablations import plans
from benchmarks.ablations.runs import BINS


def row(
    plan: plans.Plan,
    kept: Sequence[float] = (0.5, 0.2),
    val: float = 0.8,
    test: float = 0.8,
    reached: float = 5.0,
    grown: float = 1.0,
    below: int = 5,
) -> dict[str, Any]:
    """What was kept over the epochs, accuracies, how the layer grew, and how many weights end just below √τ."""
    counts = [5] * (len(BINS) - 1)
    counts[19] = below
    about = " ".join(map(str, counts))
    place = {"tau": 0.5, "kept": kept[-1], "came": 0.1, "went": 0.2, "about_threshold": about}
    place |= {"before": "0.1 0.5 2", "after": "0.2 0.4 3"}
    seen = [
        {"epoch": i + 1, "kept": k, "val": val, "train": val, "mean_square": 0.1 * grown}
        for i, k in enumerate(kept)
    ]
    measured = {
        "test": test,
        "val": val,
        "reached": reached,
        "before": {"mean_square": 0.1},
        "epochs_seen": seen,
    }
    where = {"seconds": 60.0, "commit": "abc", "processor": "a processor"}
    return {**plan, **measured, "kernels": place, "layer": place, **where}


def start(plan: plans.Plan) -> dict[str, Any]:
    """A dense network."""
    where = {"seconds": 60.0, "commit": "abc", "processor": "a processor"}
    return {
        **plan,
        "test": 0.9,
        "val": 0.9,
        "reached": 1.0,
        "elements": 77072,
        "train_samples": 8000,
        **where,
    }


def every() -> list[dict[str, Any]]:
    """A row for every plan."""
    return [*map(start, plans.iter_dense_runs()), *map(row, plans.list_runs())]
