"""Measure the validation accuracies by which the rules of the defaults were chosen.

    python -m benchmarks.choices [--quick] [--out FILE] [--workers 2] [--data FOLDER]

The cells are those of CHOSEN_ON in benchmarks/matrix.py. Each is trained with labels alone, and
with half the weight of the loss on distillation (R7). Masks are fixed (m = 0), or thresholds are
learned fully (m = 1) (R5), or the network is pruned in one shot by magnitude. AdamW's learning rate
is varied on a transformer that is not in the comparison of methods. The test split is not used.
Rows that FILE already has are not measured again.
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
DISTILLATION_WEIGHTS = (0.0, 0.5)  # weight of distillation in the loss
AGGRESSIVENESS = (None, 0.0, 1.0)  # m of (R5); None for one-shot magnitude
LEARNING_RATES = (3e-5, 1e-4, 3e-4, 1e-3)  # learning rates of AdamW
TRANSFORMER = "patches"
# Settings in [train] by the keys of a plan.
SETTINGS = {"seed": "seed", "distill": "distillation_weight", "lr": "lr"}


def main() -> None:
    """Measure the selected cells."""
    options = matrix.parse_options(__doc__, (*matrix.CHOSEN_ON, TRANSFORMER))
    plans = [
        {"cell": name, "compression": c, "seed": seed, "distill": weight, "strength": m}
        for name in options.cells
        if name != TRANSFORMER
        for c in matrix.CELLS[name].compressions
        for seed in SEEDS
        for weight in DISTILLATION_WEIGHTS
        for m in AGGRESSIVENESS
    ]
    if TRANSFORMER in options.cells:
        plans += [
            {"cell": TRANSFORMER, "compression": c, "seed": seed, "lr": lr}
            for c in matrix.CELLS[TRANSFORMER].compressions
            for seed in SEEDS
            for lr in LEARNING_RATES
        ]
    if options.quick:
        plans = plans[: len(AGGRESSIVENESS)]
    about = {"command": "python -m benchmarks.choices --out benchmarks/results/choices.json"}
    measure = partial(measure_plan, folders=options.folders, cache=options.cache)
    series.run_plans(plans, measure, options.out, about, options.workers)


def measure_plan(plan: series.Plan, folders: Mapping[str, Path], cache: Path) -> dict[str, Any]:
    """Prune a network and return its accuracy on the validation split."""
    cell = matrix.CELLS[plan["cell"]]
    model = matrix.load_dense(plan["cell"], plan["seed"], folders, cache)
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
            elements = sum(layer.elements for layer in context.network.layer_weights)
            count = int(elements / plan["compression"])
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
