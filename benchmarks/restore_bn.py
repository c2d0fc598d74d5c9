"""Compare pruning with and without restored BatchNormalization.

    python -m benchmarks.restore_bn [--quick] [--out FILE] [--workers 2] [--data FOLDER]

The network is the small ResNet of benchmarks/matrix.py, trained on Fashion-MNIST. `ltp-pipeline
run` prunes three forms of its file. In the first two, BatchNormalization is folded into
convolutions, as most exporters do; it is restored for training in the second one. The third file
still has its normalization layers. A network without normalization needs a lower learning rate, so
the first form has three of them. Rows that FILE already has are not measured again.
"""

import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, helper, numpy_helper
from torch import Tensor

from benchmarks import datasets, matrix, series
from benchmarks.contexts import final_numbers, learn_entry, prepared
from ltp_pipeline.errors import TrainingFailed
from ltp_pipeline.settings.schema import Settings
from ltp_pipeline.stages import select_entry
from ltp_pipeline.stages.learn_thresholds import make_pruning_method
from ltp_pipeline.stages.learn_thresholds.phase import ThresholdLearningPhase
from ltp_pipeline.stages.train.context import RunContext
from ltp_pipeline.stages.train.evaluate import evaluate_metric

CELL = "resnet"
# Learning rates by form of the file.
FORMS = {"folded": (0.03, 0.01, 0.003), "restored": (0.03,), "never folded": (0.03,)}
COMPRESSIONS = (10, 20)
EPOCHS = {"epochs": 8, "finetune_epochs": 4}
EPSILON = 1e-5  # default of BatchNormalization in ONNX


def main() -> None:
    """Measure all forms."""
    options = matrix.parse_options(__doc__, (CELL,))
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
    measure = partial(measure_plan, folders=options.folders, cache=options.cache)
    series.run_plans(plans, measure, options.out, about, options.workers)


def measure_plan(plan: series.Plan, folders: Mapping[str, Path], cache: Path) -> dict[str, Any]:
    """Prune a form of the file and return its accuracies, or the reason why training failed."""
    cell = matrix.CELLS[CELL]
    model = onnx.load(matrix.load_dense(CELL, plan["seed"], folders, cache))
    settings = {
        "data": datasets.data_settings(cell.source, cell.pruned_with, folders, cache),
        "train": {key: plan[key] for key in ("epochs", "finetune_epochs", "lr", "seed")},
        "budget": {"target_compression": plan["compression"]},
        "model": {"restore_bn": plan["form"] != "folded"},
    }
    with tempfile.TemporaryDirectory() as scratch:
        source = model if plan["form"] == "never folded" else fold_norms(model)
        context, state = prepared(source, Settings.model_validate(settings), Path(scratch))
        original = {"original": evaluate_metric(context, state, context.data.test)}
        try:
            entry = learn_entry(context, state, partial(begin_phase, context))
            state = select_entry.finish_entry(context, entry).state
        except TrainingFailed as error:
            return {**original, "test": None, "failed": str(error)}
        return {**original, **final_numbers(context, state)}


def begin_phase(context: RunContext, tensors: Mapping[str, Tensor]) -> ThresholdLearningPhase:
    """Return the phase that learns thresholds as `ltp-pipeline run` does."""
    method = make_pruning_method(
        context.network, tensors, context.settings, context.resolved.aggressiveness
    )
    return ThresholdLearningPhase(tensors, context, method)


def fold_norms(model: ModelProto) -> ModelProto:
    """Return a copy with every BatchNormalization folded into the Conv before it."""
    copy = ModelProto()
    copy.CopyFrom(model)
    tensors = {t.name: numpy_helper.to_array(t) for t in copy.graph.initializer}
    convs = {n.output[0]: n for n in copy.graph.node if n.op_type == "Conv"}
    nodes = []
    for node in copy.graph.node:
        conv = convs.get(node.input[0]) if node.op_type == "BatchNormalization" else None
        if conv is None:
            nodes.append(node)
            continue
        scale, bias, mean, variance = (tensors.pop(name) for name in node.input[1:])
        epsilon = next((a.f for a in node.attribute if a.name == "epsilon"), EPSILON)
        factor = scale / np.sqrt(variance + epsilon)
        weight = tensors[conv.input[1]]
        tensors[conv.input[1]] = weight * factor.reshape(-1, *[1] * (weight.ndim - 1))
        tensors[node.input[2]] = bias - mean * factor
        conv.input.append(node.input[2])
        conv.output[0] = node.output[0]
    initializers = [
        numpy_helper.from_array(value.astype(np.float32), name) for name, value in tensors.items()
    ]
    graph = helper.make_graph(
        nodes, copy.graph.name, copy.graph.input, copy.graph.output, initializers
    )
    copy.graph.CopyFrom(graph)
    return copy


if __name__ == "__main__":
    main()
