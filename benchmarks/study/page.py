"""Write the page of the study from its rows alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.rows import list_origins, mean_std
from benchmarks.study import judge, schedule
from benchmarks.study.networks import MULTIPLY_ADDS, NETWORKS
from benchmarks.study.schedule import RATE_SEED, Row
from ltp_pipeline.system.templates import render_template

ROWS = Path(__file__).resolve().parent.parent / "results" / "study.jsonl"


def load_rows(path: Path = ROWS) -> list[Row]:
    """Return the rows measured so far; none if there is no file."""
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def render_page(rows: Sequence[Row]) -> str:
    """Return the page in Markdown."""
    rivals = [method for method in schedule.METHODS if method != judge.OURS]
    comparisons = {rival: judge.compare(rows, rival) for rival in rivals}
    values: dict[str, Any] = {
        "num_rows": len(rows),
        "num_rates": sum(row["seed"] == RATE_SEED for row in rows),
        "diverged": Counter(row["method"] for row in rows if row["test"] is None),
        "hours": sum(row.get("seconds", 0) for row in rows) / 3600,
        "origins": list_origins(rows),
        "cells": [_describe_cell(rows, cell) for cell in judge.list_cells(rows)],
        "rates": [_describe_rates(rows, network) for network in NETWORKS],
        "methods": schedule.METHODS,
        "comparisons": {rival: found for rival, found in comparisons.items() if found},
        "count_verdicts": judge.count_verdicts,
        "multiply_adds": MULTIPLY_ADDS,
    }
    return render_template(Path(__file__).parent, "study.md.j2", values, {})


def _describe_cell(rows: Sequence[Row], cell: judge.Cell) -> dict[str, Any]:
    """Return mean, standard deviation and number of seeds of each method in percent."""
    values = {method: judge.accuracies(rows, cell, method) for method in schedule.METHODS}
    numbers = {
        method: (*mean_std([100 * value for value in by_seed.values()]), len(by_seed))
        for method, by_seed in values.items()
        if by_seed
    }
    plan = {"network": cell.network, "cost": cell.cost, "fraction": cell.fraction}
    left = [
        row["multiply_adds_left"]
        for row in schedule.find_rows(rows, **plan, method=judge.OURS)
        if row["seed"] != RATE_SEED and row["test"] is not None
    ]
    return {
        "cell": cell,
        "numbers": numbers,
        "multiply_adds_left": float(np.mean(left)) if left else None,
    }


def _describe_rates(rows: Sequence[Row], network: str) -> dict[str, Any]:
    """Return the chosen learning rate and form of each method of a network."""
    chosen = {
        method: schedule.choose_training(rows, network, method)
        for method in schedule.methods_of(network)
    }
    return {"network": network, "chosen": {m: c for m, c in chosen.items() if c is not None}}
