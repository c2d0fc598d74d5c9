"""What blocks cost: LTP with `method.block = "4x1"` beside LTP of single weights, each with its baseline.

    python -m benchmarks.blocks [--quick] [--out FILE] [--workers 2] [--cifar FOLDER] [--data
    FOLDER] [cells...]

Networks and data are those of benchmarks/matrix.py. Nothing is set but the target, the seed and the
block, and files are measured in onnxruntime. A row in blocks has the baseline in the same blocks,
and that of single weights beside it. Run directories stay in the folder `blocks` of --cache, so
that further files can be made of them. Rows that FILE has already are not measured again.
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
SEEDS = {"resnet20": (0,)}  # others have those of the matrix
BLOCKS = ("4x1", None)
QUICK = {"cell": "mlp", "compression": 10, "seed": 0}  # its data are always there


def main() -> None:
    """Measure the rows asked for."""
    options = matrix.parse(__doc__, COMPRESSIONS)
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
    at_work = partial(measure, folders=options.folders, cache=options.cache)
    series.run(plans, at_work, options.out, about, options.workers)


def measure(plan: series.Plan, folders: Mapping[str, Path], cache: Path) -> dict[str, Any]:
    """Prune one network once, in blocks or by single weights."""
    cell, block = matrix.CELLS[plan["cell"]], plan["block"]
    name = f"{plan['cell']}-{plan['compression']:g}x-{plan['seed']}-{block or 'single'}"
    report = ltp_pipeline.run(
        matrix.dense(plan["cell"], plan["seed"], folders, cache),
        out=cache / "blocks" / name,
        fresh=True,  # what is there may be of other code
        data=datasets.data_settings(cell.source, cell.pruned_with, folders, cache),
        budget={"target_compression": plan["compression"]},
        train={"seed": plan["seed"]},
        method={"block": block},
        baseline={
            "mode": "quick" if block else "none"
        },  # of single weights, the row in blocks has it
    ).report
    return numbers(report)


def numbers(report: Report) -> dict[str, Any]:
    """Accuracies of LTP and, as far as they were trained, of global magnitude in blocks and of single weights."""
    baseline = report.baseline
    single = baseline.unstructured if baseline else None
    in_blocks = sum(layer.elements for layer in report.layers if layer.block)
    return {
        "original": report.original.value,
        "test": report.pruned.value,
        "one-shot": baseline.value if baseline else None,
        "one-shot-single": single.accuracy if single else None,
        "reached": report.pruned.compression,
        "in_blocks": in_blocks / sum(layer.elements for layer in report.layers),
        "epochs": report.pruned.epochs and report.pruned.epochs.model_dump(),
    }


if __name__ == "__main__":
    main()
