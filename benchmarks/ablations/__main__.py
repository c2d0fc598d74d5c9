"""Measure the paper's ablations on Fashion-MNIST: regularizer, weight gradient, seeds, sensitivity.

    python -m benchmarks.ablations [--quick] [--out FILE] [--workers 2] [--data FOLDER]

plans.py lists the runs. Rows that FILE already has are not measured again. `python
scripts/write_results.py` writes the page and its figures.
"""

from functools import partial

from benchmarks import matrix, series
from benchmarks.ablations import plans
from benchmarks.ablations.runs import measure_run

QUICK = {"epochs": 1, "finetune_epochs": 1}


def main() -> None:
    """Measure the dense networks first, so that each one is trained once, then the ablations."""
    options = matrix.parse_options(__doc__, (plans.CELL,))
    if not options.cells:
        return
    about = {"command": "python -m benchmarks.ablations --out benchmarks/results/ablations.json"}
    dense_runs, runs = list(plans.iter_dense_runs()), plans.list_runs()
    if options.quick:
        dense_runs = dense_runs[:1]
        runs = [{**plans.make_paper_plan(), **QUICK}, {**plans.make_budget_plan(), **QUICK}]
    measure = partial(measure_run, folders=options.folders, cache=options.cache)
    for selection in (dense_runs, runs):
        series.run_plans(selection, measure, options.out, about, options.workers)


if __name__ == "__main__":
    main()
