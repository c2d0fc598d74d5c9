"""Learn a pruning threshold for every layer while training the network; Learned Threshold Pruning."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from ltp_pipeline.errors import InputError, TrainingFailed
from ltp_pipeline.graph.layer_weights import block_axes, normalised
from ltp_pipeline.results.records import ThresholdLearningResult
from ltp_pipeline.run_directory.run_directory import RunDirectory
from ltp_pipeline.settings.schema import Settings
from ltp_pipeline.stages.import_model.network import Network
from ltp_pipeline.stages.learn_thresholds import trail
from ltp_pipeline.stages.learn_thresholds.blocks import weight_sizes
from ltp_pipeline.stages.learn_thresholds.budget_mode import SolvedLambdaPruning
from ltp_pipeline.stages.learn_thresholds.fixed_masks import FixedMaskPruning
from ltp_pipeline.stages.learn_thresholds.functional import WeightGradient
from ltp_pipeline.stages.learn_thresholds.masks import min_kept_counts, target_nonzeros
from ltp_pipeline.stages.learn_thresholds.method import PruningMethod
from ltp_pipeline.stages.learn_thresholds.paper_mode import FixedLambdaPruning
from ltp_pipeline.stages.learn_thresholds.phase import ThresholdLearningPhase
from ltp_pipeline.stages.learn_thresholds.schedule import PruningSchedule
from ltp_pipeline.stages.prune import count_nonzeros
from ltp_pipeline.stages.train.job import RunContext
from ltp_pipeline.stages.train.loop import train
from ltp_pipeline.stages.train.optimizer import choose_optimizer
from ltp_pipeline.system.arrays import StateDict

MAX_SEARCH_COMPRESSION = (
    100.0  # compression at which a search for the sparsest network within an accuracy budget ends
)


def run(context: RunContext, state: StateDict, original: float) -> ThresholdLearningResult:
    """Train weights and thresholds together; the trail holds every network met on the way.

    `original` is the validation accuracy to begin with, by which a budget that is out of reach is told early.
    """
    kernels = context.network.kernels
    before = sum(k.elements for k in kernels) / sum(count_nonzeros(context.network, state).values())
    budget = context.settings.budget.accuracy_budget
    least = None if budget is None else context.task.metric.worst_allowed(original, budget)

    def begin(live: Mapping[str, Tensor]) -> ThresholdLearningPhase:
        return ThresholdLearningPhase(
            live,
            context,
            make_pruning_method(context.network, live, context.settings, context.strength),
            least,
        )

    train(context, dict(state), begin, context.epochs, after=context.finetune_epochs)
    entries = trail.read_entries(context.workspace)
    if all(e.compression <= before for e in entries):
        raise TrainingFailed(
            "nothing was pruned: no weight fell below its threshold",
            "raise method.lambda or method.threshold_lr_ratio, or give a target instead",
        )
    context.workspace.keep(learned=True)
    return ThresholdLearningResult(tuple(entries))


def load_trail(workspace: RunDirectory) -> ThresholdLearningResult:
    """What an earlier run learned."""
    entries = trail.read_entries(workspace)
    if not workspace.manifest.learned or not entries:
        raise InputError(
            f"{workspace.root} has not finished learning", "go on with `ltp-pipeline run` first"
        )
    return ThresholdLearningResult(tuple(entries))


def make_pruning_method(
    network: Network, tensors: Mapping[str, Tensor], settings: Settings, strength: float = 1.0
) -> PruningMethod:
    """Paper mode or budget mode, for a target of this strength; refuses one that cannot be met, before any training."""
    method = settings.method
    live = {k.name: tensors[k.name] for k in network.prunable}
    present, axes = count_nonzeros(network, tensors), block_axes(network.kernels, method.block)
    here = {name: int(r.count_nonzero()) for name, r in weight_sizes(live, axes).items()}
    lowest = min_kept_counts(network.prunable, here, method, axes)
    if method.lambda_ is not None:
        _check_clamp_optimizer(network, settings)
        return FixedLambdaPruning(live, lowest, method.lambda_, method, settings.train.momentum)
    others = sum(present[k.name] for k in network.kernels if not k.prunable)
    most = sum(k.elements for k in network.kernels) / (others + sum(lowest.values()))
    wanted = settings.budget.wanted_compression
    count = target_nonzeros(
        network.kernels, present, lowest, wanted or min(MAX_SEARCH_COMPRESSION, most)
    )
    if wanted and strength == 0:
        return FixedMaskPruning(live, lowest, count, axes)
    total, first = sum(w.numel() for w in live.values()), sum(here.values())  # zeros stay zeros
    schedule = (
        PruningSchedule.to_target(total, first, count, strength)
        if wanted
        else PruningSchedule(total, first, count)
    )
    return SolvedLambdaPruning(
        live, lowest, schedule, live.keys() - _scale_free_weights(network), axes
    )


def _check_clamp_optimizer(network: Network, settings: Settings) -> None:
    """Refuse (17) with AdamW: its steps do not follow the size of the gradient, which is what (17) limits."""
    is_clamped = WeightGradient(settings.method.weight_gradient) is WeightGradient.CLAMPED
    if is_clamped and choose_optimizer(settings.train, network.file.model) == "adamw":
        raise InputError(
            'method.weight_gradient = "20" limits the steps of SGD, and the optimizer is AdamW',
            'set train.optimizer to "sgd", or method.weight_gradient to "4" or "10"',
        )


def _scale_free_weights(network: Network) -> set[str]:
    """Kernels with a norm behind them, in the file or restored."""
    return {norm.kernel for norm in network.norms} | normalised(
        network.file.model.graph, network.prunable
    )
