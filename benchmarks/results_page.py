"""Write the results page of the documentation and its figures from the results files alone."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import ablation_facts, comparison_facts, plots, speed_facts
from benchmarks.drawing import Drawing
from benchmarks.rows import Row, list_origins, mean_std
from ltp_pipeline.system.templates import render_template

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


def load_results(folder: Path) -> dict[str, Any]:
    """Return the contents of the results files in a folder by their names."""
    paths = {name: folder / f"{name}.json" for name in FILES}
    return {
        name: json.loads(path.read_text(encoding="utf-8"))
        for name, path in paths.items()
        if path.is_file()
    }


def make_figures(results: Mapping[str, Any]) -> dict[str, Drawing]:
    """Return each figure that has rows by its name."""
    rows = _rows_of(results, "ablations")
    figures = {
        "regulariser": plots.draw_regularizers(rows),
        "gradient-scatter": plots.draw_scatter(rows),
        "gradient-gap": plots.draw_gap(rows),
        "gap-by-t0": plots.draw_gap_by_t0(rows),
        "seeds": plots.draw_seeds(rows),
        "sensitivity": plots.draw_sensitivity(rows),
        "budget-sensitivity": plots.draw_budget(rows),
    }
    return {name: figure for name, figure in figures.items() if figure is not None}


def render_page(results: Mapping[str, Any]) -> str:
    """Return the page in Markdown; what was not measured has no section."""
    comparisons = [
        row for name in ("matrix", "resnet20", "languages") for row in _rows_of(results, name)
    ]
    blocks, blocks_speed = _rows_of(results, "blocks"), _rows_of(results, "blocks_speed")
    values = {
        "cells": comparison_facts.collect_cells(comparisons),
        "methods": comparison_facts.OTHER_METHODS,
        "count_verdicts": comparison_facts.count_verdicts,
        "rates": comparison_facts.collect_rates(_rows_of(results, "choices")),
        "rules": comparison_facts.collect_rules(_rows_of(results, "choices")),
        "claims": comparison_facts.collect_claims(_rows_of(results, "paper_claim")),
        "paper": results["paper"],
        "ablations": ablation_facts.collect_ablations(_rows_of(results, "ablations")),
        "restored": comparison_facts.collect_restored(_rows_of(results, "restore_bn")),
        "blocks": comparison_facts.collect_blocks(blocks, blocks_speed),
        "sparse_ops": results.get("kernels"),
        "sparse_lines": speed_facts.collect_sparse_ops(_rows_of(results, "kernels")),
        "pruned_networks": speed_facts.collect_pruned_networks(_rows_of(results, "kernels_pruned")),
        "int8": results.get("int8"),
        "int8_drops": speed_facts.collect_int8_drops(_rows_of(results, "int8_drop")),
        "six_networks": _rows_of(results, "six_networks"),
        "decoding": results.get("decoding"),
        "series": list(_describe_series(results)),
    }
    filters = {"spread": format_spread, "extent": format_extent}
    return render_template(Path(__file__).parent, "results.md.j2", values, filters)


def format_spread(values: Sequence[float] | Mapping[int, float], digits: int = 1) -> str:
    """Return mean ± sample standard deviation, the mean alone for one value, – for none."""
    numbers = list(values.values() if isinstance(values, Mapping) else values)
    if not numbers:
        return "–"
    mean, std = mean_std(numbers)
    return f"{mean:.{digits}f} ± {std:.{digits}f}" if len(numbers) > 1 else f"{mean:.{digits}f}"


def format_extent(values: Sequence[float], digits: int = 2) -> str:
    """Return the smallest and the largest of some values, or the only one."""
    ends = dict.fromkeys(f"{value:.{digits}f}" for value in (min(values), max(values)))
    return "–".join(ends)


def _rows_of(results: Mapping[str, Any], name: str) -> list[Row]:
    """Return the rows of a results file, none if it is missing."""
    return list(results.get(name, {}).get("rows", []))


def _describe_series(results: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    """Yield where and by which command each results file was measured."""
    for name, content in results.items():
        rows = content.get("rows", [])
        if not rows or not all("seconds" in row for row in rows):
            continue  # one run that measures ratios, not a series of runs
        commit, processor = list_origins(rows)
        seeds = {row["seed"] for row in rows if "seed" in row}
        versions = content["versions"].items()
        yield {
            "file": f"{name}.json",
            "command": content["command"]
            .removeprefix("python -m benchmarks.")
            .partition(" --out")[0],
            "commit": commit,
            "processor": processor,
            "num_rows": len(rows),
            "seeds": sorted(seeds) or [content.get("seed", 0)],
            "minutes": sum(row["seconds"] for row in rows) / 60,
            "versions": ", ".join(f"{package} {version}" for package, version in versions),
        }
