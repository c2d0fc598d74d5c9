"""Compute what the results page says about accuracies: means, paired differences, who is ahead."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any, Literal

import numpy as np

from benchmarks.matrix import CHOSEN_ON, DEFAULTS
from benchmarks.rows import Row

# Two-sided 95 % quantiles of Student's t, by the number of seeds.
T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365}
OTHER_METHODS = ("one-shot", "classifier-spared", "gradual", "common-threshold")
CHANCE_LEVEL = 0.1  # accuracy of a network that gives every sample the same of ten classes

Scores = Mapping[int, float]  # accuracy in %, by seed
Verdict = Literal["ahead", "level", "behind"]


@dataclass(frozen=True)
class Difference:
    """Mean difference of two methods in percentage points, paired by seed."""

    mean: float
    interval: tuple[float, float] | None  # 95 % t-interval; None for a single seed

    @property
    def verdict(self) -> Verdict | None:
        """Whether the interval lies on one side of zero; None for a single seed."""
        if self.interval is None:
            return None
        low, high = self.interval
        return "ahead" if low > 0 else "behind" if high < 0 else "level"


@dataclass
class Cell:
    """Test accuracies of one network at one target, by method."""

    network: str
    target: float
    scores: dict[str, dict[int, float]] = field(default_factory=dict)
    gains: list[tuple[str | None, float]] = field(default_factory=list)  # bound and gain by seed

    @property
    def is_chosen_on(self) -> bool:
        """Whether the defaults were chosen on this network."""
        return self.network in CHOSEN_ON

    def compare(self, other: str) -> Difference | None:
        """Return LTP's scores minus those of another method; None if that was not measured."""
        return compare_scores(self.scores["ltp"], self.scores.get(other, {}))


def compare_scores(scores: Scores, other: Scores) -> Difference | None:
    """Return the mean difference over the seeds that both methods have; None without any."""
    differences = [score - other[seed] for seed, score in scores.items() if seed in other]
    if not differences:
        return None
    mean = fmean(differences)
    if len(differences) == 1:
        return Difference(mean, None)
    half = T_95[len(differences)] * np.std(differences, ddof=1) / np.sqrt(len(differences))
    return Difference(mean, (float(mean - half), float(mean + half)))


def collect_cells(rows: Iterable[Row]) -> list[Cell]:
    """Return the cells in which the defaults were measured, in the order of the rows."""
    cells: dict[tuple[str, float], Cell] = {}
    for row in rows:
        key = row["cell"], row["compression"]
        cell = cells.setdefault(key, Cell(*key))
        columns = {row["method"]: "test"}
        if row["method"] == DEFAULTS:
            columns = {"original": "original", "ltp": "test", "one-shot": "one-shot"}
        for method, column in columns.items():
            if row[column] is not None:
                cell.scores.setdefault(method, {})[row["seed"]] = 100 * row[column]
        if row.get("gain") is not None:
            cell.gains.append((row["gain_bound"], row["gain"]))
    return [cell for cell in cells.values() if "ltp" in cell.scores]


def count_verdicts(cells: Iterable[Cell], other: str) -> dict[str, int]:
    """Return in how many cells with several seeds LTP is ahead of a method, level, and behind."""
    counts = {"ahead": 0, "level": 0, "behind": 0}
    for cell in cells:
        difference = cell.compare(other)
        if difference is not None and difference.verdict is not None:
            counts[difference.verdict] += 1
    return counts


def collect_claims(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Return what LTP as published reaches at each λ, next to global magnitude pruning."""
    claims = []
    for (network, pull), runs in group_rows(rows, "cell", "pull").items():
        scores = {key: _collect_scores(runs, key) for key in ("original", "one-shot", "test")}
        claims.append(
            {
                "network": network,
                "pull": pull,
                "reached": [row["reached"] for row in runs],
                "scores": scores,
                "difference": compare_scores(scores["test"], scores["one-shot"]),
            }
        )
    return claims


def collect_blocks(rows: Iterable[Row], speed_rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Return accuracy and latency of each network pruned in 4×1 blocks and unstructured.

    Args:
        rows: Rows of `blocks.json`.
        speed_rows: Rows of `blocks_speed.json`, which name their runs `cell-target-seed-how`.
    """
    latencies: dict[tuple[str, float], dict[str, list[float]]] = {}
    for row in speed_rows:
        network, target, _, how = row["run"].split("-")
        ratios = latencies.setdefault((network, float(target.removesuffix("x"))), {})
        ratios.setdefault(how, []).append(row["ratio"])
    cells = []
    for (network, target), runs in group_rows(rows, "cell", "compression").items():
        in_blocks = [row for row in runs if row["block"] is not None]
        unstructured = [row for row in runs if row["block"] is None]
        ltp = {
            "4x1": _collect_scores(in_blocks, "test"),
            "single": _collect_scores(unstructured, "test"),
        }
        magnitude = {
            "4x1": _collect_scores(in_blocks, "one-shot"),
            "single": _collect_scores(in_blocks, "one-shot-single"),
        }
        ratios = latencies.get((network, target), {})
        cells.append(
            {
                "network": network,
                "target": target,
                "original": _collect_scores(in_blocks, "original"),
                "ltp": ltp,
                "magnitude": magnitude,
                "ltp_difference": compare_scores(ltp["4x1"], ltp["single"]),
                "magnitude_difference": compare_scores(magnitude["4x1"], magnitude["single"]),
                "latency_ratios": {how: median(values) for how, values in ratios.items()},
                "is_at_chance": any(row["one-shot"] == CHANCE_LEVEL for row in in_blocks),
            }
        )
    return cells


def collect_restored(rows: Sequence[Row]) -> dict[str, Any] | None:
    """Return accuracies with folded, restored and original BatchNorm; None without rows."""
    if not rows:
        return None
    runs = group_rows(rows, "form", "lr", "compression")
    return {
        "epochs": rows[0]["epochs"],
        "finetune_epochs": rows[0]["finetune_epochs"],
        "compressions": sorted({row["compression"] for row in rows}),
        "original": list(_collect_scores(rows, "original").values()),
        "kinds": {
            kind: {
                row["compression"]: _summarize_runs(runs[*kind, row["compression"]])
                for row in of_kind
            }
            for kind, of_kind in group_rows(rows, "form", "lr").items()
        },
        "differences": list(_compare_restored(runs)),
    }


def collect_rates(rows: Iterable[Row]) -> dict[str, Any] | None:
    """Return validation accuracies by AdamW's learning rate; None without rows."""
    runs = [row for row in rows if "lr" in row]
    if not runs:
        return None
    return {
        "network": runs[0]["cell"],
        "original": {row["seed"]: 100 * row["original"] for row in runs},
        "rates": list(dict.fromkeys(row["lr"] for row in runs)),
        "targets": _values_by_target(runs, "lr"),
    }


def collect_rules(rows: Iterable[Row]) -> dict[str, Any] | None:
    """Return validation accuracies by distillation weight and aggressiveness; None without rows.

    The aggressiveness is None for one-shot magnitude, 0 for fixed masks, and 1 for thresholds that
    are learned fully.
    """
    runs = [row for row in rows if "lr" not in row]
    if not runs:
        return None
    return {
        "methods": list(dict.fromkeys((row["distill"], row["strength"]) for row in runs)),
        "cells": [
            {
                "network": network,
                "original": {row["seed"]: 100 * row["original"] for row in of_network},
                "targets": _values_by_target(of_network, "distill", "strength"),
            }
            for (network,), of_network in group_rows(runs, "cell").items()
        ],
    }


def _values_by_target(rows: Sequence[Row], *keys: str) -> dict[float, dict[Any, list[float]]]:
    """Return validation accuracies in percent by target, then by one setting or by several."""
    values: dict[float, dict[Any, list[float]]] = {}
    for row in rows:
        setting = row[keys[0]] if len(keys) == 1 else tuple(row[key] for key in keys)
        values.setdefault(row["compression"], {}).setdefault(setting, []).append(100 * row["val"])
    return values


def _compare_restored(runs: Mapping[tuple[Any, ...], Sequence[Row]]) -> Iterable[dict[str, Any]]:
    """Yield restored minus other forms, each at its best learning rate on the validation split."""
    best: dict[tuple[str, float], tuple[float, Sequence[Row]]] = {}
    complete = [
        (form, lr, compression, rows)
        for (form, lr, compression), rows in runs.items()
        if all(row["test"] is not None for row in rows)
    ]
    for form, lr, compression, rows in sorted(
        complete, key=lambda entry: fmean(row["val"] for row in entry[3])
    ):
        best[form, compression] = lr, rows
    for (form, compression), (lr, rows) in best.items():
        if form != "restored" and ("restored", compression) in best:
            restored = _collect_scores(best["restored", compression][1], "test")
            difference = compare_scores(restored, _collect_scores(rows, "test"))
            if difference is not None:
                yield {"form": form, "lr": lr, "target": compression, "difference": difference}


def _summarize_runs(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the scores of the runs that trained, and the number of those that failed."""
    scores = list(_collect_scores(rows, "test").values())
    return {"scores": scores, "num_failed": len(rows) - len(scores)}


def _collect_scores(rows: Iterable[Row], key: str) -> dict[int, float]:
    """Return accuracies in percent by seed; without runs that have no value."""
    return {row["seed"]: 100 * row[key] for row in rows if row[key] is not None}


def group_rows(rows: Iterable[Row], *keys: str) -> dict[tuple[Any, ...], list[Row]]:
    """Return rows by the values of some keys, in the order of the rows."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups
