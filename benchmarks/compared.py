"""Methods that the defaults are compared with: as many epochs, the same batches and loss, trained in torch."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.competitors import CommonThreshold, GradualMagnitude
from benchmarks.contexts import final_numbers, finish, learn, prepared
from ltp_pipeline.settings.schema import Settings
from ltp_pipeline.stages import baseline
from ltp_pipeline.stages.learn_thresholds import make_pruning_method
from ltp_pipeline.stages.learn_thresholds.budget_mode import SolvedLambdaPruning
from ltp_pipeline.stages.learn_thresholds.method import PruningMethod
from ltp_pipeline.stages.learn_thresholds.phase import ThresholdLearningPhase
from ltp_pipeline.stages.train.context import RunContext
from ltp_pipeline.system.arrays import StateDict

METHODS = ("classifier-spared", "gradual", "common-threshold")


def pruned_by(method: str, model: Path, settings: Settings, folder: Path) -> dict[str, Any]:
    """Prune a network by one of METHODS; accuracies after fine-tuning."""
    context, state = prepared(model, settings, folder)
    if method == "classifier-spared":
        return _classifier_spared(context, state)
    if method == "gradual":  # prunes for two thirds of the time, whatever the target
        context = replace(context, resolved=replace(context.resolved, aggressiveness=1.0))
    entry = learn(
        context,
        state,
        lambda live: ThresholdLearningPhase(live, context, _make(method, context, live)),
    )
    return {
        **final_numbers(context, finish(context, entry)),
        "epochs": {"prune": context.epochs, "finetune": context.finetune_epochs},
    }


def _classifier_spared(context: RunContext, state: StateDict) -> dict[str, Any]:
    """One-shot magnitude that leaves the classifier as it is; nothing where that takes up more than may be kept."""
    count, spared = _count(context), baseline.find_classifier(context)
    if baseline.min_nonzeros(context.network, state, spared) > count:
        return {"test": None, "val": None}
    plain = baseline.run(
        context, state, count, context.epochs + context.finetune_epochs, excluded=spared
    )
    return final_numbers(context, plain.state)


def _count(context: RunContext) -> int:
    """Nonzeros that the target leaves."""
    wanted = context.settings.budget.requested_compression
    assert wanted is not None  # noqa: S101 - every cell has a target
    return int(sum(k.elements for k in context.network.layer_weights) / wanted)


def _make(method: str, context: RunContext, live: StateDict) -> PruningMethod:
    if method == "gradual":
        return GradualMagnitude(
            {k.name: live[k.name] for k in context.network.prunable_weights}, _count(context)
        )
    made = make_pruning_method(
        context.network, live, context.settings, context.resolved.aggressiveness
    )
    if isinstance(
        made, SolvedLambdaPruning
    ):  # not where masks are held: there are no thresholds to learn
        return CommonThreshold(
            made.layer_weights, made.lowest, made.schedule, made.scaled, made.axes
        )
    return made
