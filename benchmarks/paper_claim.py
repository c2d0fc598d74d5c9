"""Does LTP as published beat global pruning, at the compressions of the paper?

    python -m benchmarks.paper_claim [--quick] [--out FILE] [--workers 2] [--cifar FOLDER] [--data
    FOLDER]

Paper mode of `ltp-pipeline run` with T0 = 1e-3 and thresholds at 1e-5 of the learning rate, as the
paper has them, and λ as small as reaches about the paper's compressions in the epochs there are.
Global magnitude pruning is cut to the same count and trained for as many epochs. Networks and data
are those of benchmarks/matrix.py. Rows that FILE has already are not measured again.
"""

import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import ltp_pipeline
from benchmarks import datasets, matrix, series

T0, RATIO = 1e-3, 1e-5
# λ times the number of weights in kernels, which compares networks
PULLS = {"mobilenet": (10.0, 100.0, 500.0), "resnet20": (50.0,)}


def main() -> None:
    """Measure the rows asked for."""
    options = matrix.parse(__doc__, PULLS)
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
    at_work = partial(measure, folders=options.folders, cache=options.cache)
    series.run(plans, at_work, options.out, about, options.workers)


def measure(plan: series.Plan, folders: Mapping[str, Path], cache: Path) -> dict[str, Any]:
    """Prune one network once."""
    cell = matrix.CELLS[plan["cell"]]
    model = matrix.dense(plan["cell"], plan["seed"], folders, cache)
    elements = sum(k.elements for k in ltp_pipeline.import_model(model)[0].layer_weights)
    method = {"lambda": plan["pull"] / elements, "t0": T0, "threshold_lr_ratio": RATIO}
    data = datasets.data_settings(cell.source, cell.pruned_with, folders, cache)
    train = {"seed": plan["seed"], **plan.get("train", {})}
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(scratch) / "run"
        quick = {"mode": "quick"}
        report = ltp_pipeline.run(
            model, out=run, data=data, method=method, train=train, baseline=quick
        ).report
    return matrix.both(report)


if __name__ == "__main__":
    main()
