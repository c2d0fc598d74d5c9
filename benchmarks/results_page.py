"""docs/results.md, made from the results files: what is in the page is in them."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks import (
    ablation_text,
    blocks_text,
    int8_text,
    kernels_text,
    matrix_text,
    plots,
    restored_text,
)
from benchmarks.drawing import Drawing
from benchmarks.rows import Row, origins
from benchmarks.tables import table, text

FILES = (
    "matrix",
    "resnet20",
    "languages",
    "choices",
    "paper_claim",
    "paper",
    "ablations",
    "restore_bn",
    "blocks",
    "blocks_speed",
    "kernels",
    "kernels_pruned",
    "int8_drop",
    "int8",
    "six_networks",
    "decoding",
)
STAGES = ("import", "original", "learn", "finetune", "export", "validate")

HEAD = """# Results

Written by `python scripts/write_results.py` from the files in `benchmarks/results`; do not edit.

Small networks and few images, which processor cores can train; the paper's own figures are on ImageNet, stand in a
table of their own, and are marked as the paper's. Numbers of equations are those of [method.md](method.md). `make
results` measures everything anew ([benchmarks/README.md](../benchmarks/README.md)).
"""


def read(folder: Path) -> dict[str, Any]:
    """The results files that there are."""
    paths = {name: folder / f"{name}.json" for name in FILES}
    return {
        name: json.loads(path.read_text(encoding="utf-8"))
        for name, path in paths.items()
        if path.is_file()
    }


def drawings(results: Mapping[str, Any]) -> dict[str, Drawing]:
    """Every figure that there are rows for, by its name."""
    rows = rows_of(results, "ablations")
    made = {
        "regulariser": plots.regulariser(rows),
        "gradient-scatter": plots.scatter(rows),
        "gradient-gap": plots.gap(rows),
        "gap-by-t0": plots.gap_by_t0(rows),
        "seeds": plots.seeds(rows),
        "sensitivity": plots.sensitivity(rows),
        "budget-sensitivity": plots.budget_sensitivity(rows),
    }
    return {name: drawing for name, drawing in made.items() if drawing is not None}


def rows_of(results: Mapping[str, Any], name: str) -> list[Row]:
    """Rows of a results file, none where it is missing."""
    return list(results.get(name, {}).get("rows", []))


def page(results: Mapping[str, Any]) -> str:
    """The whole page."""
    others = (
        module.sections
        for module in (ablation_text, restored_text, blocks_text, kernels_text, int8_text)
    )
    parts = (matrix_text.sections, paper, *others, six_networks, decoding, measured)
    return "\n".join([HEAD, *(line for part in parts for line in part(results))]).rstrip() + "\n"


def paper(results: Mapping[str, Any]) -> Iterable[str]:
    """The paper's own figures."""
    about = results["paper"]
    yield "## The paper's figures, on ImageNet\n"
    yield text(f"Source: {about['source']}. – stands for what the paper does not give.")
    columns = ("network", "method", "epochs", "compression", "top1", "top5")
    lines = [
        [f"{row[c]:g}×" if c == "compression" else str(row.get(c, "–")) for c in columns]
        for row in about["rows"]
    ]
    yield from table(("network", "method", "epochs", "compression", "top-1, %", "top-5, %"), lines)
    yield text(f"ResNet20: {about['resnet20']}.")


def six_networks(results: Mapping[str, Any]) -> Iterable[str]:
    """What the paper's networks cost at full size."""
    about = results.get("six_networks")
    if about is None:
        return
    yield "## The paper's six networks at full size\n"
    yield text(
        "One epoch on a handful of noise images with untrained weights, so that accuracy means nothing: what is shown",
        "is that the whole pipeline works on them, and its cost.",
    )
    stages = (f"{stage}, s" for stage in STAGES)
    head = (
        "network",
        "kernels",
        "elements",
        "compression",
        "threads",
        *stages,
        "all, s",
        "peak memory, GiB",
    )
    lines = [
        [
            row["network"],
            str(row["kernels"]),
            f"{row['elements']:,}",
            f"{row['compression']:.2f}×",
            str(row["threads"]),
        ]
        + [f"{row['stages'][stage]:.1f}" for stage in (*STAGES, "all")]
        + [f"{row['peak_memory_bytes'] / 2**30:.2f}"]
        for row in about["rows"]
    ]
    yield from table(head, lines)
    yield text("Bytes of the file given, and of each format:")
    formats = list(dict.fromkeys(name for row in about["rows"] for name in row["bytes"]))
    sizes = [
        [f"{row['bytes'][n]:,}" if n in row["bytes"] else "–" for n in formats]
        for row in about["rows"]
    ]
    yield from table(
        ("network", *formats),
        [[r["network"], *s] for r, s in zip(about["rows"], sizes, strict=True)],
    )


def decoding(results: Mapping[str, Any]) -> Iterable[str]:
    """How busy decoding keeps the cores."""
    about = results.get("decoding")
    if about is None:
        return
    yield "## Decoding\n"
    yield text(
        "JPEGs of 500×375 pixels and about 100 kB to normalised inputs of 224×224, with the random crop and flip of",
        "training or the centre crop of evaluation. Beside plain Pillow and NumPy in one process, and beside",
        f"{about['workers']} such processes at once that have nothing to do with each other, which is what the cores",
        f"have to give. The bar is 0.9 × workers = {0.9 * about['workers']:.1f} × plain.",
    )
    head = (
        "crop",
        "by",
        "images/s",
        "plain",
        "plain processes at once",
        "ratio",
        "that of plain processes",
    )
    lines = [
        [row["kind"], f"{about['workers']} {row['way']}"]
        + [f"{row[f'{of}samples_per_second']:.0f}" for of in ("", "plain_", "bound_")]
        + [f"{row['ratios'][key]:.2f}" for key in ("median", "bound")]
        for row in about["rows"]
    ]
    yield from table(head, lines)
    bar = 0.9 * about["workers"]
    for row in (r for r in about["rows"] if r["way"] == "processes"):
        ratio, most = row["ratios"]["median"], row["ratios"]["bound"]
        judged = (
            "reaches the bar"
            if ratio >= bar
            else f"misses the bar; plain processes have {most:.2f}"
        )
        busy = row["ratios"].get("workers at work")
        share = f"; the processes were at work {100 * busy:.0f} % of the time" if busy else ""
        yield text(f"{row['kind'].capitalize()}: {ratio:.2f} {judged}{share}.")


def measured(results: Mapping[str, Any]) -> Iterable[str]:
    """Commands, versions and time of each results file."""
    yield "## How it was measured\n"
    lines = []
    for name, about in results.items():
        if "command" not in about or not all("seconds" in row for row in about.get("rows", [{}])):
            continue  # no series, whose rows take long
        rows = about["rows"]
        commit, processor = origins(rows)
        seeds = sorted({row["seed"] for row in rows if "seed" in row} or {about.get("seed", 0)})
        span = f"{seeds[0]}–{seeds[-1]}" if len(seeds) > 1 else str(seeds[0])
        minutes = sum(row["seconds"] for row in rows) / 60
        versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
        measured = [commit, processor, versions, str(len(rows)), span, f"{minutes:.0f}"]
        lines.append([f"`{name}.json`", f"`{about['command']}`", *measured])
    yield from table(
        ("file", "command", "commit", "processor", "with", "rows", "seeds", "minutes in all"), lines
    )
    yield text(
        "Networks are trained with one thread a process, but for the six at full size and decoding. Minutes are those",
        "of a clock, beside whatever else the machine did. – stands for what a file does not say.",
    )
