"""Learned Threshold Pruning: learn a pruning threshold for every layer while training the network.

- functional.py: the equations, as pure functions of tensors
- budget_mode.py, paper_mode.py, fixed_masks.py: the pruning methods; method.py is their protocol
- schedule.py: number of kept weights and gate widths over the phase
- masks.py, blocks.py: from thresholds to masks of an exact size, weight by weight or in blocks
- phase.py: what the phase does in each training step
- trail.py: the networks met on the way, each written as a file
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor

from ltp_pipeline.errors import InputError, TrainingFailed
from ltp_pipeline.graph.layer_weights import find_normalized_weights, get_block_axes
from ltp_pipeline.run_directory.run_directory import RunDirectory
from ltp_pipeline.settings.schema import Settings
from ltp_pipeline.stages.import_model.network import Network
from ltp_pipeline.stages.learn_thresholds import trail
from ltp_pipeline.stages.learn_thresholds.blocks import weight_sizes
from ltp_pipeline.stages.learn_thresholds.budget_mode import SolvedLambdaPruning
from ltp_pipeline.stages.learn_thresholds.fixed_masks import FixedMaskPruning
from ltp_pipeline.stages.learn_thresholds.functional import WeightGradient
from ltp_pipeline.stages.learn_thresholds.masks import (
    min_kept_counts,
    target_cost,
    target_count,
)
from ltp_pipeline.stages.learn_thresholds.method import PruningMethod
from ltp_pipeline.stages.learn_thresholds.paper_mode import FixedLambdaPruning
from ltp_pipeline.stages.learn_thresholds.phase import ThresholdLearningPhase
from ltp_pipeline.stages.learn_thresholds.schedule import PruningSchedule
from ltp_pipeline.stages.learn_thresholds.trail import ThresholdLearningResult
from ltp_pipeline.stages.prune import count_nonzeros
from ltp_pipeline.stages.train.context import RunContext
from ltp_pipeline.stages.train.loop import train
from ltp_pipeline.stages.train.optimizer import choose_optimizer
from ltp_pipeline.stages.train.phase import TrialPhase
from ltp_pipeline.stages.weight_costs import WeightCosts
from ltp_pipeline.system.arrays import StateDict

# The compression at which a search for the sparsest network within an accuracy budget ends.
MAX_SEARCH_COMPRESSION = 100.0


def run(context: RunContext, state: StateDict, original: float) -> ThresholdLearningResult:
    """Train weights and thresholds together.

    Args:
        context: The run.
        state: Tensors to begin with; they are copied.
        original: Validation accuracy of the original. With an accuracy budget, it tells early
            whether the budget is out of reach.

    Returns:
        The trail: every network met on the way.

    Raises:
        TrainingFailed: Training diverged, or nothing was pruned.
    """
    network = context.network
    elements = sum(layer.elements for layer in network.layer_weights)
    compression_before = elements / sum(count_nonzeros(network, state).values())
    budget = context.accuracy_budget
    worst_accuracy = None
    if budget is not None:
        worst_accuracy = context.task.metric.find_worst_allowed(original, budget)

    def begin(tensors: Mapping[str, Tensor]) -> ThresholdLearningPhase:
        method = make_pruning_method(
            network,
            tensors,
            context.settings,
            context.resolved.aggressiveness,
            context.weight_costs,
        )
        return ThresholdLearningPhase(tensors, context, method, worst_accuracy)

    train(context, dict(state), begin, context.epochs, after=context.finetune_epochs)
    entries = trail.read_entries(context.run_directory)
    if all(entry.compression <= compression_before for entry in entries):
        raise TrainingFailed(
            "nothing was pruned: no weight fell below its threshold",
            "raise method.lambda or method.threshold_lr_ratio, or set a target instead",
        )
    context.run_directory.update_manifest(learned=True)
    return ThresholdLearningResult(tuple(entries))


def train_trial(context: RunContext, state: StateDict, epochs: int, name: str) -> StateDict:
    """Train weights and thresholds in a trial, which ends at the target of the run.

    Args:
        context: The context of the trial.
        state: Tensors to begin with; they are copied.
        epochs: Number of epochs.
        name: Name of the trial in progress.

    Returns:
        The tensors of the hard-pruned network.
    """
    phases: list[ThresholdLearningPhase] = []
    weight_costs = context.weight_costs
    if weight_costs is not None:  # only the masks of the run are measured
        weight_costs = replace(weight_costs, meet_target=None)

    def begin(tensors: Mapping[str, Tensor]) -> TrialPhase:
        method = make_pruning_method(
            context.network,
            tensors,
            context.settings,
            context.resolved.aggressiveness,
            weight_costs,
        )
        phases.append(ThresholdLearningPhase(tensors, context, method))
        return TrialPhase(phases[0], name)

    trained = train(context, dict(state), begin, epochs)
    return {**trained, **phases[0].method.pruned_weights(1.0)}


def load_trail(run_directory: RunDirectory) -> ThresholdLearningResult:
    """Return what an earlier run learned.

    Raises:
        InputError: The run has not finished learning.
    """
    entries = trail.read_entries(run_directory)
    if not run_directory.manifest.learned or not entries:
        raise InputError(
            f"the run in {run_directory.root} has not finished learning thresholds",
            "resume it with `ltp-pipeline run` first",
        )
    return ThresholdLearningResult(tuple(entries))


def make_pruning_method(
    network: Network,
    tensors: Mapping[str, Tensor],
    settings: Settings,
    aggressiveness: float = 1.0,
    weight_costs: WeightCosts | None = None,
) -> PruningMethod:
    """Return the pruning method that the settings ask for.

    Args:
        network: The network.
        tensors: The tensors being trained.
        settings: The settings; method.lambda selects paper mode.
        aggressiveness: m of (R5). A target with m = 0 is pruned in one shot, with fixed masks.
        weight_costs: What a weight of each layer costs; None if the budget counts weights.

    Raises:
        InputError: The target cannot be met, or settings contradict each other.
    """
    method = settings.method
    layer_weights = {layer.name: tensors[layer.name] for layer in network.prunable_weights}
    axes = get_block_axes(network.layer_weights, method.block)
    nonzeros = count_nonzeros(network, tensors)
    sizes = weight_sizes(layer_weights, axes)
    prunable_nonzeros = {name: int(r.count_nonzero()) for name, r in sizes.items()}
    lowest = min_kept_counts(network.prunable_weights, prunable_nonzeros, method, axes)
    if method.lambda_ is not None:
        _check_clamp_optimizer(network, settings)
        momentum = settings.train.momentum
        return FixedLambdaPruning(layer_weights, lowest, method.lambda_, method, momentum)
    costs = None
    meet_target = None
    has_target = weight_costs is not None or settings.budget.requested_compression is not None
    if weight_costs is None:
        compression = settings.budget.requested_compression or min(
            MAX_SEARCH_COMPRESSION, _max_compression(network, nonzeros, lowest)
        )
        budget = target_count(network.layer_weights, nonzeros, lowest, compression)
    else:
        budget = target_cost(network.layer_weights, nonzeros, lowest, weight_costs)
        # The methods expect the layers that they prune, in this order.
        costs = {name: weight_costs.per_weight[name] for name in layer_weights}
        meet_target = weight_costs.meet_target
    if has_target and aggressiveness == 0:
        return FixedMaskPruning(layer_weights, lowest, budget, axes, costs)
    cost_of = costs or dict.fromkeys(layer_weights, 1)
    total = sum(cost_of[name] * w.numel() for name, w in layer_weights.items())
    # Zeros of the original stay zero.
    present = sum(cost_of[name] * count for name, count in prunable_nonzeros.items())
    if has_target:
        schedule = PruningSchedule.to_target(total, present, budget, aggressiveness)
    else:
        schedule = PruningSchedule(total, present, budget)
    scaled = layer_weights.keys() - _scale_free_weights(network)
    return SolvedLambdaPruning(
        layer_weights, lowest, schedule, scaled, axes, costs, meet_target=meet_target
    )


def _max_compression(
    network: Network, nonzeros: Mapping[str, int], lowest: Mapping[str, int]
) -> float:
    """Return the compression ratio at which every prunable layer keeps its `lowest` weights."""
    elements = sum(layer.elements for layer in network.layer_weights)
    excluded = sum(nonzeros[layer.name] for layer in network.layer_weights if not layer.is_prunable)
    return elements / (excluded + sum(lowest.values()))


def _check_clamp_optimizer(network: Network, settings: Settings) -> None:
    """Raise InputError if eq. (17) is used with AdamW.

    Eq. (17) limits the size of a gradient, and the steps of AdamW do not follow that size.
    """
    is_clamped = WeightGradient(settings.method.weight_gradient) is WeightGradient.CLAMPED
    if is_clamped and choose_optimizer(settings.train, network.file.model) == "adamw":
        raise InputError(
            'method.weight_gradient = "clamped" needs SGD, and the optimizer is AdamW',
            'set train.optimizer to "sgd", or method.weight_gradient to "approximate" or "exact"',
        )


def _scale_free_weights(network: Network) -> set[str]:
    """Return the layer weights with a normalization layer behind them, in the file or restored."""
    graph = network.file.model.graph
    return {norm.layer_weight for norm in network.restored_norms} | find_normalized_weights(
        graph, network.prunable_weights
    )
