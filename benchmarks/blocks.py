"""Compare pruning in 4×1 blocks with unstructured pruning, for LTP and one-shot magnitude.

    python -m benchmarks.blocks [--quick] [--out FILE] [--workers 2] [--cifar FOLDER] [--data
    FOLDER] [cells...]

Networks and data are those of benchmarks/matrix.py. Only the target, the seed and the block are
set, and files are evaluated in onnxruntime. A row in blocks has the baseline in the same blocks and
the unstructured baseline. Run directories stay in the folder `blocks` of --cache, so that more
files can be exported from them. Rows that FILE already has are not measured again.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import ltp_pipeline
from benchmarks import datasets, matrix, series
from ltp_pipeline.results.schema import Report

COMPRESSIONS: Mapping[str, tuple[float, ...]] = {
    "resnet": (5, 10, 20),
    "mobilenet": (5, 10, 20),
    "resnet20": (10,),
}
SEEDS = {"resnet20": (0,)}  # other cells have the seeds of matrix.py
BLOCKS = ("4x1", None)
QUICK = {"cell": "mlp", "compression": 10, "seed": 0}  # its data are always available


def main() -> None:
    """Measure the selected cells."""
    options = matrix.parse_options(__doc__, COMPRESSIONS)
    plans = [
        {"cell": cell, "compression": c, "seed": seed, "block": block}
        for cell in options.cells
        for seed in options.seeds or SEEDS.get(cell, matrix.CELLS[cell].seeds)
        for c in COMPRESSIONS[cell]
        for block in BLOCKS
    ]
    if options.quick:
        plans = [{**QUICK, "block": block} for block in BLOCKS]
    about = {"command": "python -m benchmarks.blocks --out benchmarks/results/blocks.json"}
    measure = partial(measure_plan, folders=options.folders, cache=options.cache)
    series.run_plans(plans, measure, options.out, about, options.workers)


def measure_plan(plan: series.Plan, folders: Mapping[str, Path], cache: Path) -> dict[str, Any]:
    """Prune a network in blocks or unstructured and return its accuracies."""
    cell, block = matrix.CELLS[plan["cell"]], plan["block"]
    name = f"{plan['cell']}-{plan['compression']:g}x-{plan['seed']}-{block or 'single'}"
    report = ltp_pipeline.run(
        matrix.load_dense(plan["cell"], plan["seed"], folders, cache),
        out=cache / "blocks" / name,
        fresh=True,  # an earlier run may have used other code
        data=datasets.data_settings(cell.source, cell.pruned_with, folders, cache),
        budget={"target_compression": plan["compression"]},
        train={"seed": plan["seed"]},
        method={"block": block},
        # The row in blocks has the unstructured baseline.
        baseline={"mode": "quick" if block else "none"},
    ).report
    return collect_results(report)


def collect_results(report: Report) -> dict[str, Any]:
    """Return the accuracies of LTP and of the baselines; None for a baseline that was not run."""
    baseline = report.baseline
    unstructured = baseline.unstructured if baseline else None
    in_blocks = sum(layer.elements for layer in report.layers if layer.block)
    return {
        "original": report.original.value,
        "test": report.pruned.value,
        "one-shot": baseline.value if baseline else None,
        "one-shot-single": unstructured.accuracy if unstructured else None,
        "reached": report.pruned.compression,
        "in_blocks": in_blocks / sum(layer.elements for layer in report.layers),
        "epochs": report.pruned.epochs and report.pruned.epochs.model_dump(),
    }


if __name__ == "__main__":
    main()
