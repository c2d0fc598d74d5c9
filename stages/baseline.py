"""The baseline: global magnitude pruning, one shot, followed by training.

The smallest weights of the whole network are pruned at once, and the rest is trained. The baseline
has the same layer weights, blocks, number of nonzeros, total epochs, batches and loss as LTP.
Further points of its curve differ only in the number of nonzeros. If LTP prunes in blocks, one
further point is unstructured. If the budget counts multiply-adds, these are equal instead of the
nonzeros, and weights are compared by w² / multiply-adds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from ltp_pipeline.graph.layer_weights import BLOCK_SIZE, find_output_layers, get_block_axes
from ltp_pipeline.stages import finetune
from ltp_pipeline.stages.finetune import MaskedTrainingPhase
from ltp_pipeline.stages.import_model.network import Network
from ltp_pipeline.stages.learn_thresholds.blocks import NO_BLOCKS, BlockAxes, weight_sizes
from ltp_pipeline.stages.learn_thresholds.masks import keep_exactly
from ltp_pipeline.stages.multiply_adds import count_cost
from ltp_pipeline.stages.prune import apply_masks, count_nonzeros
from ltp_pipeline.stages.train.context import PrunedNetwork, RunContext
from ltp_pipeline.stages.train.evaluate import evaluate_metric
from ltp_pipeline.stages.train.loop import train
from ltp_pipeline.stages.train.phase import TrialPhase
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
    budget: int,
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
        budget: Cost of the weights to keep in all layers together.
        epochs: Number of epochs.
        name: Name of the training in progress and logs.
        key: Name of its checkpoint.
        excluded: Layers that are not pruned here although LTP prunes them.
        axes: Layers pruned in blocks.

    Returns:
        The trained network.
    """
    pruned = prune_in_one_shot(context, original, budget, excluded, axes)
    return finetune.run(context, pruned, epochs, name, key)


def prune_in_one_shot(
    context: RunContext,
    original: StateDict,
    budget: int,
    excluded: Collection[str] = (),
    axes: BlockAxes = NO_BLOCKS,
) -> PrunedNetwork:
    """Return the original without its smallest weights, not trained; arguments as for `run`."""
    masks = global_magnitude_masks(context.network, original, budget, excluded, axes, context.costs)
    state = refresh_statistics(context, apply_masks(original, masks))
    count = sum(count_nonzeros(context.network, state).values())
    return PrunedNetwork(state, masks, count, {"prune": 0, "finetune": 0})


def train_trial(context: RunContext, pruned: PrunedNetwork, epochs: int, name: str) -> StateDict:
    """Train a pruned network in a trial of the learning rate, and return its tensors.

    Args:
        context: The context of the trial.
        pruned: The network, which stays as it is.
        epochs: Number of epochs.
        name: Name of the trial in progress.
    """

    def begin(tensors: Mapping[str, Tensor]) -> TrialPhase:
        phase = MaskedTrainingPhase(tensors, context, pruned.masks, FIRST, FIRST)
        return TrialPhase(phase, name)

    return train(context, dict(pruned.state), begin, epochs)


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


def probe_accuracy(context: RunContext, original: StateDict, budget: int) -> float:
    """Return the validation accuracy of the original, pruned in one shot and not trained."""
    masks = global_magnitude_masks(
        context.network, original, budget, axes=block_axes_of(context), costs=context.costs
    )
    state = refresh_statistics(context, apply_masks(original, masks))
    return evaluate_metric(context, state, context.data.val)


def global_magnitude_masks(
    network: Network,
    state: StateDict,
    budget: int,
    excluded: Collection[str] = (),
    axes: BlockAxes = NO_BLOCKS,
    costs: Mapping[str, int] | None = None,
) -> dict[str, Tensor]:
    """Return masks of the weights that are largest in size over all prunable layers together.

    With costs, these are the largest in w² / cost.

    Args:
        network: The network.
        state: Its tensors.
        budget: Cost of the weights to keep in all layers, also those excluded from pruning.
        excluded: Prunable layers that keep all of their weights.
        axes: Layers pruned in blocks.
        costs: Cost of one weight of each layer; None if the budget counts weights.
    """
    weights = {layer.name: state[layer.name] for layer in network.prunable_weights}
    sizes = weight_sizes(weights, axes)
    counts = count_nonzeros(network, state)
    fixed = {name: count for name, count in counts.items() if name not in weights}
    lowest = dict.fromkeys(sizes, 0)
    for name in lowest.keys() & set(excluded):
        lowest[name] = int(sizes[name].count_nonzero())
    thresholds = {name: torch.tensor(float(costs[name] if costs else 1)) for name in sizes}
    prunable_costs = None if costs is None else {name: costs[name] for name in sizes}
    remaining = budget - count_cost(fixed, costs)
    return keep_exactly(sizes, thresholds, lowest, remaining, axes, prunable_costs)


def find_classifier(context: RunContext) -> set[str]:
    """Return the names of the prunable layers that compute the evaluated outputs."""
    graph = context.network.file.model.graph
    outputs = [output.name for output in context.task.outputs]
    return find_output_layers(graph, outputs, context.network.prunable_weights)


def min_cost(
    network: Network,
    state: StateDict,
    excluded: Collection[str] = (),
    axes: BlockAxes = NO_BLOCKS,
    costs: Mapping[str, int] | None = None,
) -> int:
    """Return the cost of all weights if every pruned layer kept one weight, or one block.

    Without costs, it is the number of nonzeros.
    """
    counts = count_nonzeros(network, state)
    for layer in network.prunable_weights:
        if layer.name not in excluded:
            counts[layer.name] = BLOCK_SIZE if layer.name in axes else 1
    return count_cost(counts, costs)
