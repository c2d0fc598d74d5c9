"""Choose by rule what the user left open: budget, distillation weight and aggressiveness.

docs/explanation/method.md states the rules (R5) and (R7) and how they were chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ltp_pipeline.errors import InputError
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.results.schema import LTP_METHOD
from ltp_pipeline.run_directory.run_directory import RunDirectory
from ltp_pipeline.stages import baseline
from ltp_pipeline.stages.learn_thresholds.schedule import (
    STRONG_COMPRESSION,
    aggressiveness_of_retention,
)
from ltp_pipeline.stages.prepare import augmentation, label_check, latency_costs
from ltp_pipeline.stages.train.context import ResolvedDefaults, RunContext
from ltp_pipeline.system import distributed
from ltp_pipeline.system.arrays import StateDict
from ltp_pipeline.tasks.classification import TOP1
from ltp_pipeline.tasks.supervised import SupervisedTask

DISTILLATION_WEIGHT = 0.5  # weight of the distillation loss if (R7) asks for distillation
MAX_DISTILLED_ACCURACY = 0.95  # a more accurate original says little more than the labels
NOT_MEASURED = -1.0  # what rank 0 broadcasts if the manifest has no value yet


def resolve_defaults(context: RunContext, original: StateDict, accuracy: float) -> RunContext:
    """Return the context with the values that rules choose for settings left open.

    All ranks measure together. The run directory keeps the values, so a resumed run uses those
    that it began with.

    Args:
        context: The run before any training.
        original: Weights of the original model.
        accuracy: Metric of the original on the validation split.
    """
    resolved = ResolvedDefaults(
        accuracy_budget=_resolve_budget(context, accuracy),
        distillation_weight=_measure_once(
            context, "distillation_weight", lambda: _choose_distillation_weight(context, accuracy)
        ),
    )
    context = augmentation.apply_augmentation(context, original)
    context = _apply_defaults(context, original, resolved)
    context = latency_costs.resolve_costs(context, original)
    aggressiveness = _measure_once(
        context, "aggressiveness", lambda: _choose_aggressiveness(context, original, accuracy)
    )
    return replace(context, resolved=replace(resolved, aggressiveness=aggressiveness))


def load_defaults(context: RunContext, original: StateDict, run: RunDirectory) -> RunContext:
    """Return the context with the values that rules chose for a run which has begun.

    `context` finishes an entry of that run's trail.
    """
    measured = run.manifest.rules
    learned = run.manifest.learning_rates.get(LTP_METHOD)
    resolved = ResolvedDefaults(
        accuracy_budget=run.manifest.default_budget,
        distillation_weight=measured.get("distillation_weight", 0.0),
        aggressiveness=measured.get("aggressiveness", 1.0),
        lr=None if learned is None else learned.lr,
    )
    chosen = run.manifest.augmentation
    if chosen is not None:
        context = augmentation.with_moves(context, chosen.moves)
    context = _apply_defaults(context, original, resolved)
    return latency_costs.resolve_costs(context, original, run)


def check_default_budget(context: RunContext, accuracy: float) -> None:
    """Raise InputError if the default budget is 0 because the original's metric is 0.

    All ranks stop; only rank 0 prints the error.
    """
    metric = context.task.metric
    if context.settings.has_default_budget and metric.default_budget(accuracy) == 0:
        distributed.stop_together()
        raise InputError(
            f"the default budget is a fraction of the original's {metric.name}, which is "
            f"{metric.format_value(accuracy)} on the validation split",
            "set the largest drop that is allowed: --accuracy-budget",
        )


def _apply_defaults(
    context: RunContext, original: StateDict, resolved: ResolvedDefaults
) -> RunContext:
    """Return the context with resolved values and, if labels are distilled, with the teacher."""
    context = replace(context, resolved=resolved)
    if not isinstance(context.task, SupervisedTask):
        return context
    task = replace(
        context.task,
        distillation_weight=resolved.distillation_weight,
        label_smoothing=context.settings.train.label_smoothing,
    )
    teacher = original if task.is_distilled else context.teacher
    return replace(context, task=task, teacher=teacher)


def _measure_once(context: RunContext, name: str, measure: Callable[[], float]) -> float:
    """Return a value from the manifest; if it has none, measure it and keep it there."""
    measured = context.run_directory.manifest.rules
    value = _broadcast_saved(measured.get(name))
    if value is None:
        value = measure()
        context.run_directory.update_manifest(rules={**measured, name: value})
    return value


def _resolve_budget(context: RunContext, accuracy: float) -> float | None:
    """Return the default budget, from the manifest if it has one; None for a budget of the user."""
    if not context.settings.has_default_budget:
        return None
    budget = _broadcast_saved(context.run_directory.manifest.default_budget)
    if budget is None:
        budget = context.task.metric.default_budget(accuracy)
    context.run_directory.update_manifest(default_budget=budget)
    return budget


def _broadcast_saved(saved: float | None) -> float | None:
    """Return a value of rank 0, which alone reads the manifest; None if it has no value."""
    value = distributed.broadcast_from_main(NOT_MEASURED if saved is None else saved)
    return None if value < 0 else value


def _choose_distillation_weight(context: RunContext, accuracy: float) -> float:
    """Return the weight of the distillation loss by (R7)."""
    task = context.task
    asked = context.settings.train.distillation_weight
    if not isinstance(task, SupervisedTask):
        return float(task.is_distilled)
    if asked is not None:
        return asked
    # The paper's procedure has no distillation, and (R7) was measured on top-1 accuracies only.
    if context.settings.method.lambda_ is not None or task.metric is not TOP1:
        return 0.0
    chance = task.chance_level(context.data.val)
    if chance is None or label_check.is_at_chance(context, accuracy, chance):
        return 0.0
    return DISTILLATION_WEIGHT if accuracy < MAX_DISTILLED_ACCURACY else 0.0


def _choose_aggressiveness(context: RunContext, original: StateDict, accuracy: float) -> float:
    """Return m by (R5): 1 with distillation, else by the accuracy after pruning in one shot."""
    target = context.requested_reduction
    if context.task.is_distilled or target is None or target >= STRONG_COMPRESSION:
        return 1.0
    if context.weight_costs is None:
        elements = sum(layer.elements for layer in context.network.layer_weights)
        budget = int(elements / target)
    else:
        budget = context.weight_costs.budget
    probed = baseline.probe_accuracy(context, original, budget)
    chance = context.task.chance_level(context.data.val)
    if chance is not None and label_check.is_at_chance(context, accuracy, chance):
        return aggressiveness_of_retention(0.0)
    retention = _compute_retention(context.task.metric, probed, accuracy, chance or 0.0)
    return aggressiveness_of_retention(retention)


def _compute_retention(metric: Metric, probed: float, original: float, chance: float) -> float:
    """Return q of (R5), the fraction of the original's quality that is left after pruning.

    For a metric of which less is better, it is the inverse of the metric's growth. `probed` is its
    value after pruning in one shot.
    """
    if not metric.higher_is_better:
        return original / probed if probed > 0 else 0.0
    return (probed - chance) / (original - chance) if original > chance else 0.0
