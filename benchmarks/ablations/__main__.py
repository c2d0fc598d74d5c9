"""The paper's ablations on Fashion-MNIST: regulariser, weight gradient, error bars, sensitivity.

    python -m benchmarks.ablations [--quick] [--out FILE] [--workers 2] [--data FOLDER]

plans.py has the runs. Rows that FILE has already are not measured again. `python
scripts/write_results.py` makes page and figures.
"""

from functools import partial

from benchmarks import matrix, series
from benchmarks.ablations import plans
from benchmarks.ablations.runs import measure

QUICK = {"epochs": 1, "finetune_epochs": 1}


def main() -> None:
    """Measure the dense networks first, so that no two processes train the same one, and then the ablations."""
    options = matrix.parse(__doc__, (plans.CELL,))
    if not options.cells:
        return
    about = {"command": "python -m benchmarks.ablations --out benchmarks/results/ablations.json"}
    starts, runs = list(plans.starts()), plans.every()
    if options.quick:
        starts, runs = starts[:1], [{**plan, **QUICK} for plan in (plans.paper(), plans.budget())]
    for wanted in (starts, runs):
        at_work = partial(measure, folders=options.folders, cache=options.cache)
        series.run(wanted, at_work, options.out, about, options.workers)


if __name__ == "__main__":
    main()
