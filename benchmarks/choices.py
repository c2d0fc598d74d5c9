"""What the rules of the defaults were chosen by: validation accuracy, on the cells that do not judge.

    python -m benchmarks.choices [--quick] [--out FILE] [--workers 2] [--data FOLDER]

Each cell of CHOSEN_ON in benchmarks/matrix.py, learned from labels alone and half from the original
(R7), with masks held (m = 0) and with thresholds learned fully (m = 1) (R5), beside one-shot
magnitude with the same loss; and AdamW's learning rate on a transformer that is in no table of
methods. The test split is not read. Rows that FILE has already are not measured again.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import datasets, matrix, series
from benchmarks.contexts import prepared
from ltp_pipeline.settings.schema import Settings
from ltp_pipeline.stages import baseline, learn_thresholds, select_entry
from ltp_pipeline.stages.train.evaluate import evaluate_metric

SEEDS = (0, 1)
SHARES = (0.0, 0.5)  # of the loss, learned from the original
STRENGTHS = (None, 0.0, 1.0)  # m; None: one-shot magnitude
RATES = (3e-5, 1e-4, 3e-4, 1e-3)  # of AdamW
TRANSFORMER = "patches"
SETTINGS = {
    "seed": "seed",
    "distill": "distillation_weight",
    "lr": "lr",
}  # keys of a plan under [train]


def main() -> None:
    """Measure the rows asked for."""
    options = matrix.parse(__doc__, (*matrix.CHOSEN_ON, TRANSFORMER))
    plans = [
        {"cell": name, "compression": c, "seed": seed, "distill": share, "strength": m}
        for name in options.cells
        if name != TRANSFORMER
        for c in matrix.CELLS[name].compressions
        for seed in SEEDS
        for share in SHARES
        for m in STRENGTHS
    ]
    if TRANSFORMER in options.cells:
        plans += [
            {"cell": TRANSFORMER, "compression": c, "seed": seed, "lr": lr}
            for c in matrix.CELLS[TRANSFORMER].compressions
            for seed in SEEDS
            for lr in RATES
        ]
    if options.quick:
        plans = plans[: len(STRENGTHS)]
    about = {"command": "python -m benchmarks.choices --out benchmarks/results/choices.json"}
    at_work = partial(measure, folders=options.folders, cache=options.cache)
    series.run(plans, at_work, options.out, about, options.workers)


def measure(plan: series.Plan, folders: Mapping[str, Path], cache: Path) -> dict[str, Any]:
    """Prune one network once; accuracies on the validation split."""
    cell = matrix.CELLS[plan["cell"]]
    model = matrix.dense(plan["cell"], plan["seed"], folders, cache)
    settings = {
        "data": datasets.data_settings(cell.source, cell.pruned_with, folders, cache),
        "budget": {"target_compression": plan["compression"]},
        "train": {name: plan[key] for key, name in SETTINGS.items() if key in plan},
    }
    with tempfile.TemporaryDirectory() as scratch:
        context, state = prepared(model, Settings.model_validate(settings), Path(scratch))
        original = evaluate_metric(context, state, context.data.val)
        aggressiveness = plan.get("strength", context.resolved.aggressiveness)
        if aggressiveness is None:
            count = int(
                sum(k.elements for k in context.network.layer_weights) / plan["compression"]
            )
            pruned = baseline.run(context, state, count, context.epochs + context.finetune_epochs)
        else:
            context = replace(
                context, resolved=replace(context.resolved, aggressiveness=aggressiveness)
            )
            pruned = select_entry.finish_entry(
                context, learn_thresholds.run(context, state, original).trail[-1]
            )
        return {
            "original": original,
            "val": evaluate_metric(context, pruned.state, context.data.val),
        }


if __name__ == "__main__":
    main()
