"""The baselines: global magnitude pruning in one shot, and gradual magnitude pruning.

In one shot, the smallest weights of the whole network are pruned at once, and the rest is trained.
Gradual pruning follows a schedule over the first two thirds of all epochs, and fine-tunes with
fixed masks in the last third. Both have the same layer weights, blocks, number of nonzeros, total
epochs, batches and loss as LTP. Further points of the curve differ only in the number of nonzeros.
If LTP prunes in blocks, one further point is unstructured. If the budget counts a cost, such as
multiply-adds, this is equal instead of the nonzeros, and weights are compared by w² / cost. With
baseline.score = "lamp", LAMP scores take the place of w².
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from torch import Tensor

from ltp_pipeline.graph.layer_weights import BLOCK_SIZE, find_output_layers, get_block_axes
from ltp_pipeline.results.schema import GRADUAL_METHOD, LTP_METHOD, MAGNITUDE_METHOD
from ltp_pipeline.run_directory.names import GRADUAL
from ltp_pipeline.settings.schema import BaselineScore, BaselineSettings
from ltp_pipeline.stages import finetune
from ltp_pipeline.stages.finetune import MaskedTrainingPhase
from ltp_pipeline.stages.import_model.network import Network
from ltp_pipeline.stages.learn_thresholds.blocks import NO_BLOCKS, BlockAxes, weight_sizes
from ltp_pipeline.stages.learn_thresholds.gradual_magnitude import GradualMagnitudePruning
from ltp_pipeline.stages.learn_thresholds.masks import keep_exactly, min_kept_counts
from ltp_pipeline.stages.learn_thresholds.phase import PruningPhase
from ltp_pipeline.stages.learn_thresholds.schedule import PruningSchedule
from ltp_pipeline.stages.learn_thresholds.scores import score_thresholds
from ltp_pipeline.stages.multiply_adds import count_cost
from ltp_pipeline.stages.prune import apply_masks, count_nonzeros, nonzero_masks
from ltp_pipeline.stages.train.context import PrunedNetwork, RunContext
from ltp_pipeline.stages.train.evaluate import evaluate_metric
from ltp_pipeline.stages.train.loop import train
from ltp_pipeline.stages.train.phase import TrialPhase
from ltp_pipeline.stages.train.statistics import refresh_statistics
from ltp_pipeline.system.arrays import StateDict

# Names of the baseline's trainings in progress and logs: its first point, further points of the
# curve, the unstructured point of a run in blocks, and gradual magnitude pruning with its
# fine-tuning.
FIRST = "baseline"
LATER = "curve"
UNSTRUCTURED = "single"
GRADUAL_TUNING = f"{GRADUAL}-finetune"
GRADUAL_FRACTION = 2 / 3  # fraction of all epochs in which gradual pruning follows its schedule


def point_key(point: int | str, settings: BaselineSettings) -> str:
    """Return the name of a point's checkpoint, log lines and saved weights.

    Args:
        point: Number of the point, counted from 1, or UNSTRUCTURED or GRADUAL.
        settings: The [baseline] section.
    """
    parts = [GRADUAL if point == GRADUAL else FIRST]
    if settings.score != "magnitude":
        parts.append(settings.score)
    if settings.exclude_classifier:
        parts.append("spared")
    if point not in (1, GRADUAL):
        parts.append(str(point))
    return "-".join(parts)


def name_trainings(settings: BaselineSettings) -> dict[str, str]:
    """Return the names under which learning rates of trainings are kept, by method."""
    return {
        LTP_METHOD: LTP_METHOD,
        MAGNITUDE_METHOD: point_key(1, settings),
        GRADUAL_METHOD: point_key(GRADUAL, settings),
    }


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
    masks = global_magnitude_masks(
        context.network,
        original,
        budget,
        excluded,
        axes,
        context.costs,
        context.settings.baseline.score,
    )
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


def run_gradual(
    context: RunContext,
    original: StateDict,
    budget: int,
    epochs: int,
    key: str = GRADUAL,
    excluded: Collection[str] = (),
    axes: BlockAxes = NO_BLOCKS,
) -> PrunedNetwork:
    """Prune the original gradually while it is trained, and fine-tune it with fixed masks.

    The arguments are those of `run`.
    """
    learning = round(epochs * GRADUAL_FRACTION)
    methods = []

    def begin(tensors: Mapping[str, Tensor]) -> PruningPhase:
        methods.append(_make_gradual_pruning(context, tensors, budget, excluded, axes))
        return PruningPhase(tensors, context, methods[0], GRADUAL, key)

    trained = train(context, dict(original), begin, learning, after=epochs - learning)
    pruned_weights = methods[0].pruned_weights(1.0)
    state = {**trained, **{name: w.detach() for name, w in pruned_weights.items()}}
    masks = nonzero_masks(context.network, state)
    state = refresh_statistics(context, apply_masks(state, masks))
    count = sum(count_nonzeros(context.network, state).values())
    pruned = PrunedNetwork(state, masks, count, {"prune": learning, "finetune": 0})
    tuning_key = f"{key}-finetune"
    return finetune.run(context, pruned, epochs - learning, GRADUAL_TUNING, tuning_key, learning)


def train_gradual_trial(
    context: RunContext,
    original: StateDict,
    budget: int,
    epochs: int,
    name: str,
    excluded: Collection[str] = (),
    axes: BlockAxes = NO_BLOCKS,
) -> StateDict:
    """Prune gradually in a trial of the learning rate, and return the hard-pruned network.

    The arguments are those of `run`, with the context of the trial and its name in progress.
    """
    methods = []

    def begin(tensors: Mapping[str, Tensor]) -> TrialPhase:
        methods.append(_make_gradual_pruning(context, tensors, budget, excluded, axes))
        return TrialPhase(PruningPhase(tensors, context, methods[0], GRADUAL, GRADUAL), name)

    trained = train(context, dict(original), begin, epochs)
    return {**trained, **methods[0].pruned_weights(1.0)}


def _make_gradual_pruning(
    context: RunContext,
    tensors: Mapping[str, Tensor],
    budget: int,
    excluded: Collection[str],
    axes: BlockAxes,
) -> GradualMagnitudePruning:
    """Return gradual magnitude pruning of all prunable layers; the arguments are those of `run`."""
    network = context.network
    costs = context.costs
    layer_weights = {layer.name: tensors[layer.name] for layer in network.prunable_weights}
    sizes = weight_sizes(layer_weights, axes)
    nonzeros = {name: int(r.count_nonzero()) for name, r in sizes.items()}
    lowest = min_kept_counts(network.prunable_weights, nonzeros, context.settings.method, axes)
    lowest.update({name: nonzeros[name] for name in lowest.keys() & set(excluded)})
    remaining = budget - _count_fixed_cost(network, tensors, costs)
    if costs is not None:  # the method expects the layers that it prunes, in this order
        costs = {name: costs[name] for name in layer_weights}
    total = count_cost({name: w.numel() for name, w in layer_weights.items()}, costs)
    present = max(count_cost(nonzeros, costs), remaining)
    schedule = PruningSchedule(total, present, remaining)
    score = context.settings.baseline.score
    return GradualMagnitudePruning(layer_weights, lowest, schedule, axes, costs, score)


def planned_epochs(context: RunContext, epochs: int) -> dict[str, int]:
    """Return the epochs of the trainings that are certain to come, by their names.

    Args:
        context: The run.
        epochs: Number of epochs of each training.
    """
    planned = {FIRST: epochs}
    if block_axes_of(context):
        planned[UNSTRUCTURED] = epochs
    if context.settings.baseline.mode == "gradual":
        planned[GRADUAL] = round(epochs * GRADUAL_FRACTION)
        planned[GRADUAL_TUNING] = epochs - planned[GRADUAL]
    return planned


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
    score: BaselineScore = "magnitude",
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
        score: The score by which weights are compared; "lamp" replaces w² by LAMP scores.
    """
    weights = {layer.name: state[layer.name] for layer in network.prunable_weights}
    sizes = weight_sizes(weights, axes)
    lowest = dict.fromkeys(sizes, 0)
    for name in lowest.keys() & set(excluded):
        lowest[name] = int(sizes[name].count_nonzero())
    prunable_costs = None if costs is None else {name: costs[name] for name in sizes}
    remaining = budget - _count_fixed_cost(network, state, costs)
    thresholds = score_thresholds(score, sizes, lowest, remaining, prunable_costs)
    return keep_exactly(sizes, thresholds, lowest, remaining, axes, prunable_costs)


def _count_fixed_cost(
    network: Network, state: Mapping[str, Tensor], costs: Mapping[str, int] | None
) -> int:
    """Return the cost of the nonzeros of layers that are not prunable."""
    prunable = {layer.name for layer in network.prunable_weights}
    counts = count_nonzeros(network, state)
    fixed = {name: count for name, count in counts.items() if name not in prunable}
    return count_cost(fixed, costs)


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
