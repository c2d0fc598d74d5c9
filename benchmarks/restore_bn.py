"""What training with restored BatchNormalization is worth, for a file from which it was folded away.

    python -m benchmarks.restore_bn [--quick] [--out FILE] [--workers 2] [--data FOLDER]

The small ResNet of benchmarks/matrix.py, trained on Fashion-MNIST, pruned as `ltp-pipeline run`
does in three forms: folded, as most exporters write it, with `model.restore_bn` off; folded, with
norms restored for training; and the file that still has its norms. A network without norms bears
less of a learning rate, so that one is given three. Rows that FILE has already are not measured
again.
"""

import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, helper, numpy_helper

from benchmarks import datasets, matrix, series
from benchmarks.contexts import final_numbers, learn, prepared
from ltp_pipeline.errors import TrainingFailed
from ltp_pipeline.settings.schema import Settings
from ltp_pipeline.stages import select_entry
from ltp_pipeline.stages.learn_thresholds import make_pruning_method
from ltp_pipeline.stages.learn_thresholds.phase import ThresholdLearningPhase
from ltp_pipeline.stages.train.evaluate import evaluate_metric

CELL = "resnet"
FORMS = {
    "folded": (0.03, 0.01, 0.003),
    "restored": (0.03,),
    "never folded": (0.03,),
}  # learning rates
COMPRESSIONS = (10, 20)
EPOCHS = {"epochs": 8, "finetune_epochs": 4}
EPSILON = 1e-5  # BatchNormalization's own default


def main() -> None:
    """Measure the rows asked for."""
    options = matrix.parse(__doc__, (CELL,))
    plans = [
        {"form": form, "lr": lr, "compression": compression, "seed": seed, **EPOCHS}
        for _ in options.cells
        for compression in COMPRESSIONS
        for form, rates in FORMS.items()
        for lr in rates
        for seed in options.seeds or matrix.CELLS[CELL].seeds
    ]
    if options.quick:
        quick = {"epochs": 1, "finetune_epochs": 1}
        plans = [
            {**plan, **quick}
            for plan in plans
            if plan["lr"] == 0.03 and plan["compression"] == 10 and plan["seed"] == 0
        ]
    about = {"command": "python -m benchmarks.restore_bn --out benchmarks/results/restore_bn.json"}
    series.run(
        plans,
        partial(measure, folders=options.folders, cache=options.cache),
        options.out,
        about,
        options.workers,
    )


def measure(plan: series.Plan, folders: Mapping[str, Path], cache: Path) -> dict[str, Any]:
    """Prune the network once in budget mode; accuracies after fine-tuning, or why there are none."""
    cell = matrix.CELLS[CELL]
    model = onnx.load(matrix.dense(CELL, plan["seed"], folders, cache))
    settings = {
        "data": datasets.data_settings(cell.source, cell.pruned_with, folders, cache),
        "train": {key: plan[key] for key in ("epochs", "finetune_epochs", "lr", "seed")},
        "budget": {"target_compression": plan["compression"]},
        "model": {"restore_bn": plan["form"] != "folded"},
    }
    with tempfile.TemporaryDirectory() as scratch:
        given = model if plan["form"] == "never folded" else folded(model)
        context, state = prepared(given, Settings.model_validate(settings), Path(scratch))
        original = {"original": evaluate_metric(context, state, context.data.test)}
        try:
            entry = learn(
                context,
                state,
                lambda live: ThresholdLearningPhase(
                    live,
                    context,
                    make_pruning_method(
                        context.network, live, context.settings, context.resolved.aggressiveness
                    ),
                ),
            )
            state = select_entry.finish_entry(context, entry).state
        except TrainingFailed as error:
            return {**original, "test": None, "failed": str(error)}
        return {**original, **final_numbers(context, state)}


def folded(model: ModelProto) -> ModelProto:
    """A copy with every BatchNormalization folded into the Conv before it, as most exporters do."""
    copy = ModelProto()
    copy.CopyFrom(model)
    tensors = {t.name: numpy_helper.to_array(t) for t in copy.graph.initializer}
    convs = {n.output[0]: n for n in copy.graph.node if n.op_type == "Conv"}
    kept = []
    for node in copy.graph.node:
        conv = convs.get(node.input[0]) if node.op_type == "BatchNormalization" else None
        if conv is None:
            kept.append(node)
            continue
        scale, bias, mean, variance = (tensors.pop(name) for name in node.input[1:])
        epsilon = next((a.f for a in node.attribute if a.name == "epsilon"), EPSILON)
        factor = scale / np.sqrt(variance + epsilon)
        kernel = tensors[conv.input[1]]
        tensors[conv.input[1]] = kernel * factor.reshape(-1, *[1] * (kernel.ndim - 1))
        tensors[node.input[2]] = bias - mean * factor
        conv.input.append(node.input[2])
        conv.output[0] = node.output[0]
    initializers = [
        numpy_helper.from_array(value.astype(np.float32), name) for name, value in tensors.items()
    ]
    graph = helper.make_graph(
        kept, copy.graph.name, copy.graph.input, copy.graph.output, initializers
    )
    copy.graph.CopyFrom(graph)
    return copy


if __name__ == "__main__":
    main()
