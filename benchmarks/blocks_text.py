"""The section of docs/results.md on pruning in blocks, made from its rows."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.matrix_text import NAMES, interval
from benchmarks.rows import Row
from benchmarks.tables import spread, table, text

GUESSED = 0.1  # accuracy where every sample is given the same of ten classes

# Columns of accuracy: which rows, and which of their numbers
COLUMNS: Mapping[str, tuple[str | None, str]] = {
    "original": ("4x1", "original"),
    "LTP, single weights": (None, "test"),
    "LTP, 4×1 blocks": ("4x1", "test"),
    "one-shot magnitude, single weights": ("4x1", "one-shot-single"),
    "one-shot magnitude, 4×1 blocks": ("4x1", "one-shot"),
}


def sections(results: Mapping[str, Any]) -> Iterable[str]:
    """Accuracy against compression, and what blocks cost LTP and the baseline."""
    rows: list[Row] = list(results.get("blocks", {}).get("rows", []))
    if not rows:
        return
    yield "## Blocks of four output channels\n"
    yield text(
        'What `method.block = "4x1"` costs in accuracy, (R8) of method.md. Nothing else is set but the target and the',
        "seed; files are measured in onnxruntime. Test top-1 in %, mean ± sample standard deviation over seeds. Each",
        "seed has a dense network of its own.",
    )
    cells = {
        key: [r for r in rows if (r["cell"], r["compression"]) == key]
        for key in dict.fromkeys((r["cell"], r["compression"]) for r in rows)
    }
    lines = []
    for (name, c), own in cells.items():
        shown = (list(_by_seed(own, *where).values()) for where in COLUMNS.values())
        lines.append(
            [NAMES[name], f"{c:g}×", *(spread(values, 2) if values else "–" for values in shown)]
        )
    yield from table(("network and data", "target", *COLUMNS), lines)
    if any(row[key] == GUESSED for row in rows for key in ("one-shot", "one-shot-single")):
        yield text(
            "At 10 %, one of ten classes is guessed: global magnitude has left no weight at all in some layers.",
        )
    yield text(
        "Blocks less single weights, in points, paired by seed, with a 95 % t-interval where there are several:"
    )
    pairs = {"LTP": ("LTP, 4×1 blocks", "LTP, single weights")}
    pairs["one-shot magnitude"] = (
        "one-shot magnitude, 4×1 blocks",
        "one-shot magnitude, single weights",
    )
    lines = []
    for (name, c), own in cells.items():
        share = max(row["in_blocks"] for row in own)
        lines.append(
            [
                NAMES[name].split(",")[0],
                f"{c:g}×",
                f"{share:.0%}",
                *(_less(own, *p) for p in pairs.values()),
            ]
        )
    yield from table(("network", "target", "weights in layers with blocks", *pairs), lines)
    yield from speed(results.get("blocks_speed", {}).get("rows", []))
    yield text(
        "Layers whose output channels are no multiple of four keep single weights: depthwise convolutions and",
        "classifiers of ten classes.",
    )


def speed(rows: Sequence[Row]) -> Iterable[str]:
    """The time of these networks on sparse kernels, by the names of their run directories."""
    if not rows:
        return
    seeds = {row["run"].split("-")[2] for row in rows}
    of = f"seed {min(seeds)}" if len(seeds) == 1 else "median over seeds"
    yield text(
        f"Time of the same networks on sparse kernels / dense, one sample on one thread, {of}; every layer is",
        "turned over that can be, depthwise ones stay dense. A fast file that is slower is not written.",
    )
    found: dict[tuple[str, str], dict[str, list[Row]]] = {}
    for row in sorted(rows, key=_place):
        cell, compression, _, how = row["run"].split("-")
        found.setdefault((cell, compression), {}).setdefault(how, []).append(row)
    lines = []
    for (cell, compression), ways in found.items():
        dense = median(row["dense_ms"] for way in ways.values() for row in way)
        ratios = (ways.get(how, []) for how in ("single", "4x1"))
        shown = (f"{median(row['ratio'] for row in way):.2f}" if way else "–" for way in ratios)
        lines.append(
            [NAMES[cell].split(",")[0], compression.replace("x", "×"), f"{dense:.3f}", *shown]
        )
    yield from table(("network", "target", "dense, ms", "single weights", "4×1 blocks"), lines)


def _place(row: Row) -> tuple[int, float]:
    cell, compression, *_ = row["run"].split("-")
    return list(NAMES).index(cell), float(compression.removesuffix("x"))


def _by_seed(rows: Sequence[Row], block: str | None, key: str) -> dict[int, float]:
    return {
        row["seed"]: 100 * row[key]
        for row in rows
        if row["block"] == block and row[key] is not None
    }


def _less(rows: Sequence[Row], one: str, other: str) -> str:
    """The mean difference of two columns over the seeds that both have."""
    ours, theirs = (_by_seed(rows, *COLUMNS[name]) for name in (one, other))
    differences = [value - theirs[seed] for seed, value in ours.items() if seed in theirs]
    if not differences:
        return "–"
    low, high = interval(differences)
    bounds = f" ({low:+.2f} to {high:+.2f})" if len(differences) > 1 else ""
    return f"{sum(differences) / len(differences):+.2f}{bounds}"
