"""Compare LTP as published with global magnitude pruning at the compression ratios of the paper.

    python -m benchmarks.paper_claim [--quick] [--out FILE] [--workers 2] [--cifar FOLDER] [--data
    FOLDER]

`ltp-pipeline run` prunes in paper mode with the paper's T0 = 1e-3 and threshold learning rate, 1e-5
of the learning rate. λ is the smallest that reaches about the paper's compression ratios in the
epochs of the run. Global magnitude pruning keeps as many weights and trains for as many epochs.
Networks and data are those of benchmarks/matrix.py. Rows that FILE already has are not measured
again.
"""

import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import ltp_pipeline
from benchmarks import datasets, matrix, series

T0, RATIO = 1e-3, 1e-5
# λ times the number of layer elements, which is comparable between networks.
PULLS = {"mobilenet": (10.0, 100.0, 500.0), "resnet20": (50.0,)}


def main() -> None:
    """Measure the selected cells."""
    options = matrix.parse_options(__doc__, PULLS)
    plans = [
        {"cell": name, "pull": pull, "seed": seed}
        for name in options.cells
        for seed in options.seeds or matrix.CELLS[name].seeds
        for pull in PULLS[name]
    ]
    about = {
        "command": "python -m benchmarks.paper_claim --out benchmarks/results/paper_claim.json"
    }
    if options.quick:
        plans = [{**plan, "train": {"epochs": 1, "finetune_epochs": 1}} for plan in plans[:1]]
    measure = partial(measure_plan, folders=options.folders, cache=options.cache)
    series.run_plans(plans, measure, options.out, about, options.workers)


def measure_plan(plan: series.Plan, folders: Mapping[str, Path], cache: Path) -> dict[str, Any]:
    """Prune a network in paper mode and return its accuracies and those of the baseline."""
    cell = matrix.CELLS[plan["cell"]]
    model = matrix.load_dense(plan["cell"], plan["seed"], folders, cache)
    network, _ = ltp_pipeline.import_model(model)
    elements = sum(layer.elements for layer in network.layer_weights)
    method = {"lambda": plan["pull"] / elements, "t0": T0, "threshold_lr_ratio": RATIO}
    data = datasets.data_settings(cell.source, cell.pruned_with, folders, cache)
    train = {"seed": plan["seed"], **plan.get("train", {})}
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(scratch) / "run"
        quick = {"mode": "quick"}
        report = ltp_pipeline.run(
            model, out=run, data=data, method=method, train=train, baseline=quick
        ).report
    return matrix.collect_results(report)


if __name__ == "__main__":
    main()
