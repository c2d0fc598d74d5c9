"""The baseline: global magnitude pruning, one shot, followed by training.

The smallest weights of the whole network are pruned at once, and the rest is trained. The baseline
has the same layer weights, blocks, number of nonzeros, total epochs, batches and loss as LTP.
Further points of its curve differ only in the number of nonzeros. If LTP prunes in blocks, one
further point is unstructured.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from ltp_pipeline.graph.layer_weights import BLOCK_SIZE, find_output_layers, get_block_axes
from ltp_pipeline.stages import finetune
from ltp_pipeline.stages.import_model.network import Network
from ltp_pipeline.stages.learn_thresholds.blocks import NO_BLOCKS, BlockAxes, weight_sizes
from ltp_pipeline.stages.learn_thresholds.masks import keep_exactly
from ltp_pipeline.stages.prune import apply_masks, count_nonzeros
from ltp_pipeline.stages.train.context import PrunedNetwork, RunContext
from ltp_pipeline.stages.train.evaluate import evaluate_metric
from ltp_pipeline.stages.train.statistics import refresh_statistics
from ltp_pipeline.system.arrays import StateDict

# Names of the baseline's trainings in progress and logs: its first point, further points of the
# curve, and the unstructured point of a run in blocks.
FIRST = "baseline"
LATER = "curve"
UNSTRUCTURED = "single"


def point_key(point: int | str, excludes_classifier: bool) -> str:
    """Return the name of a point's checkpoint, log lines and saved weights.

    Args:
        point: Number of the point, counted from 1, or UNSTRUCTURED.
        excludes_classifier: Whether the classifier is excluded from pruning.
    """
    parts = [FIRST]
    if excludes_classifier:
        parts.append("spared")
    if point != 1:
        parts.append(str(point))
    return "-".join(parts)


def run(
    context: RunContext,
    original: StateDict,
    nonzeros: int,
    epochs: int,
    name: str = FIRST,
    key: str = FIRST,
    excluded: Collection[str] = (),
    axes: BlockAxes = NO_BLOCKS,
) -> PrunedNetwork:
    """Prune the original in one shot and train what remains.

    Args:
        context: The run.
        original: Tensors of the original network.
        nonzeros: Number of weights to keep in all layers together.
        epochs: Number of epochs.
        name: Name of the training in progress and logs.
        key: Name of its checkpoint.
        excluded: Layers that are not pruned here although LTP prunes them.
        axes: Layers pruned in blocks.

    Returns:
        The trained network.
    """
    masks = global_magnitude_masks(context.network, original, nonzeros, excluded, axes)
    state = refresh_statistics(context, apply_masks(original, masks))
    count = sum(count_nonzeros(context.network, state).values())
    pruned = PrunedNetwork(state, masks, count, {"prune": 0, "finetune": 0})
    return finetune.run(context, pruned, epochs, name, key)


def planned_epochs(context: RunContext, epochs: int) -> dict[str, int]:
    """Return the epochs of the trainings that are certain to come, by their names.

    Args:
        context: The run.
        epochs: Number of epochs of each training.
    """
    names = (FIRST, UNSTRUCTURED) if block_axes_of(context) else (FIRST,)
    return dict.fromkeys(names, epochs)


def block_axes_of(context: RunContext) -> BlockAxes:
    """Return the layers that the run prunes in blocks, with the axis of their output channels."""
    return get_block_axes(context.network.layer_weights, context.settings.method.block)


def probe_accuracy(context: RunContext, original: StateDict, nonzeros: int) -> float:
    """Return the validation accuracy of the original, pruned in one shot and not trained."""
    masks = global_magnitude_masks(context.network, original, nonzeros, axes=block_axes_of(context))
    state = refresh_statistics(context, apply_masks(original, masks))
    return evaluate_metric(context, state, context.data.val)


def global_magnitude_masks(
    network: Network,
    state: StateDict,
    nonzeros: int,
    excluded: Collection[str] = (),
    axes: BlockAxes = NO_BLOCKS,
) -> dict[str, Tensor]:
    """Return masks of the weights that are largest in size over all prunable layers together.

    Args:
        network: The network.
        state: Its tensors.
        nonzeros: Number of weights to keep in all layers, also those excluded from pruning.
        excluded: Prunable layers that keep all of their weights.
        axes: Layers pruned in blocks.
    """
    weights = {layer.name: state[layer.name] for layer in network.prunable_weights}
    sizes = weight_sizes(weights, axes)
    counts = count_nonzeros(network, state)
    fixed = sum(counts.values()) - sum(counts[name] for name in weights)
    lowest = dict.fromkeys(sizes, 0)
    for name in lowest.keys() & set(excluded):
        lowest[name] = int(sizes[name].count_nonzero())
    equal_thresholds = dict.fromkeys(sizes, torch.ones(()))
    return keep_exactly(sizes, equal_thresholds, lowest, nonzeros - fixed, axes)


def find_classifier(context: RunContext) -> set[str]:
    """Return the names of the prunable layers that compute the evaluated outputs."""
    graph = context.network.file.model.graph
    outputs = [output.name for output in context.task.outputs]
    return find_output_layers(graph, outputs, context.network.prunable_weights)


def min_nonzeros(
    network: Network,
    state: StateDict,
    excluded: Collection[str] = (),
    axes: BlockAxes = NO_BLOCKS,
) -> int:
    """Return the number of nonzeros if every pruned layer kept one weight, or one block."""
    counts = count_nonzeros(network, state)
    for layer in network.prunable_weights:
        if layer.name not in excluded:
            counts[layer.name] = BLOCK_SIZE if layer.name in axes else 1
    return sum(counts.values())
