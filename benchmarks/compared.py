"""Prune with the methods that the defaults are compared with, in torch.

They train for as many epochs as the defaults, with the same batches and the same loss.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from benchmarks.competitors import CommonThreshold, GradualMagnitude
from benchmarks.contexts import final_numbers, finetune_entry, learn_entry, prepared
from ltp_pipeline.settings.schema import Settings
from ltp_pipeline.stages import baseline
from ltp_pipeline.stages.learn_thresholds import make_pruning_method
from ltp_pipeline.stages.learn_thresholds.budget_mode import SolvedLambdaPruning
from ltp_pipeline.stages.learn_thresholds.method import PruningMethod
from ltp_pipeline.stages.learn_thresholds.phase import ThresholdLearningPhase
from ltp_pipeline.stages.train.context import RunContext
from ltp_pipeline.system.arrays import StateDict

METHODS = ("classifier-spared", "gradual", "common-threshold")


def prune_with(method: str, model: Path, settings: Settings, folder: Path) -> dict[str, Any]:
    """Prune a network with one of METHODS and return its accuracies after fine-tuning."""
    context, state = prepared(model, settings, folder)
    if method == "classifier-spared":
        return _prune_without_classifier(context, state)
    if method == "gradual":  # prunes for two thirds of the epochs, whatever the target
        context = replace(context, resolved=replace(context.resolved, aggressiveness=1.0))
    entry = learn_entry(
        context,
        state,
        lambda tensors: ThresholdLearningPhase(
            tensors, context, _make_method(method, context, tensors)
        ),
    )
    return {
        **final_numbers(context, finetune_entry(context, entry)),
        "epochs": {"prune": context.epochs, "finetune": context.finetune_epochs},
    }


def _prune_without_classifier(context: RunContext, state: StateDict) -> dict[str, Any]:
    """Prune in one shot without the classifier; accuracies are None if this exceeds the target."""
    count = _target_count(context)
    classifier = baseline.find_classifier(context)
    if baseline.min_cost(context.network, state, classifier) > count:
        return {"test": None, "val": None}
    epochs = context.epochs + context.finetune_epochs
    pruned = baseline.run(context, state, count, epochs, excluded=classifier)
    return final_numbers(context, pruned.state)


def _target_count(context: RunContext) -> int:
    """Return the number of nonzero weights at the target."""
    compression = context.settings.budget.requested_compression
    assert compression is not None  # noqa: S101 - every cell has a target
    return int(sum(layer.elements for layer in context.network.layer_weights) / compression)


def _make_method(method: str, context: RunContext, tensors: Mapping[str, Tensor]) -> PruningMethod:
    """Return one of METHODS for a phase that trains these tensors."""
    if method == "gradual":
        weights = {layer.name: tensors[layer.name] for layer in context.network.prunable_weights}
        return GradualMagnitude(weights, _target_count(context))
    default = make_pruning_method(
        context.network, tensors, context.settings, context.resolved.aggressiveness
    )
    if isinstance(default, SolvedLambdaPruning):
        return CommonThreshold(
            default.layer_weights,
            default.lowest,
            default.schedule,
            default.scaled,
            default.axes,
        )
    return default  # masks are fixed, so there are no thresholds to learn
