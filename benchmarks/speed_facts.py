"""Compute what the results page says about latency, memory and file sizes."""

from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

from benchmarks.comparison_facts import group_rows
from benchmarks.rows import Row


def collect_sparse_ops(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Return latencies on sparse operators with random zeros, a line for each network and variant.

    A plan of `kernels.json` is the name of a network, then of a variant such as `4x1 avx2`.
    """
    lines = []
    for (plan,), of_plan in group_rows(rows, "plan").items():
        network, _, variant = plan.partition(" ")
        lines.append(
            {
                "network": network,
                "variant": variant.replace("4x1", "4×1") or "unstructured",
                "dense_ms": median(row["dense_ms"] for row in of_plan),
                "ratios": {row["sparsity"]: row["ratio"] for row in of_plan},
                "session_time": [row["session_ratio"] for row in of_plan],
                "session_memory": [
                    row["session_bytes"] / row["dense_session_bytes"] for row in of_plan
                ],
                "ratios_of_processes": of_plan[0].get("ratios_of_processes"),
            }
        )
    return lines


def collect_pruned_networks(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Return latencies of pruned networks, unstructured and in blocks side by side."""
    lines = []
    for (network, target), runs in group_rows(rows, "cell", "compression").items():
        lines.append(
            {
                "network": network,
                "target": target,
                "dense_ms": median(row["dense_ms"] for row in runs),
                "by_block": {row["block"] or "single": row for row in runs},
            }
        )
    return lines


def collect_int8_drops(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Return the accuracy that int8 files lose compared with the float file of the same run."""
    lines = []
    for (network, target), runs in group_rows(rows, "cell", "compression").items():
        forms: Mapping[str, str] = {"reduced": "7 bits", "full": "8 bits", "trained": "trained"}
        lines.append(
            {
                "network": network,
                "target": target,
                "float": [100 * row["7 bits"]["float"] for row in runs],
                "num_float_layers": max(row["7 bits"]["left_float"] for row in runs),
                **{
                    form: [100 * (row[key]["float"] - row[key]["int8"]) for row in runs]
                    for form, key in forms.items()
                },
            }
        )
    return lines
