"""Notes about a run, for the user before training and for a reader of the report."""

from __future__ import annotations

from ltp_pipeline.graph.layer_weights import BLOCK_SIZE, get_block_axes
from ltp_pipeline.stages.prepare import label_check
from ltp_pipeline.stages.prepare.trials import NEAR_CHANCE
from ltp_pipeline.stages.train.context import DEFAULT_MIN_EPOCHS, DEFAULT_MIN_STEPS, RunContext
from ltp_pipeline.system import distributed
from ltp_pipeline.system.arrays import StateDict
from ltp_pipeline.system.text import pluralize, quote_name
from ltp_pipeline.tasks.supervised import SupervisedTask

MIN_STEPS = 100  # of threshold learning; fewer get a warning
MAX_NAMED_LAYERS = 10  # layers without blocks that a note names


def print_notes(context: RunContext, state: StateDict, value: float) -> None:
    """Print all notes before training; `value` is the original's metric on the validation split."""
    notes = [
        *context.network.notes,
        *context.data.notes,
        *describe_metric(context),
        *describe_budget(context),
        *describe_loss(context),
        *describe_optimizer(context),
        *describe_blocks(context),
        *describe_epochs(context),
        *warn_of_weak_result(context, value),
    ]
    if distributed.is_main_process():
        notes += label_check.suggest_changes(context, state, value)
    for note in notes:
        context.run_directory.progress.say(f"Note: {note}")


def list_report_notes(context: RunContext, value: float) -> list[str]:
    """Return the notes for the report; `value` is the original's metric on the validation split."""
    return [
        *describe_metric(context),
        *describe_budget(context),
        *describe_optimizer(context),
        *describe_blocks(context),
        *warn_of_weak_result(context, value),
    ]


def warn_of_weak_result(context: RunContext, value: float) -> list[str]:
    """Return notes about an original near chance and about epochs that are set too low."""
    notes = []
    metric = context.task.metric
    chance = context.task.chance_level(context.data.val)
    if chance is not None and value < chance + NEAR_CHANCE * (1 - chance):
        notes.append(
            f"the original has only {metric.name} {metric.format_value(value)} on the validation "
            "split: check scale, mean, std and layout in [data]"
        )
    num_steps = context.epochs * context.steps_per_epoch
    if context.settings.train.epochs is not None and num_steps < MIN_STEPS:
        default = sum(context.default_epochs) * context.steps_per_epoch
        notes.append(
            f"{pluralize(context.epochs, 'epoch')} as set are only {pluralize(num_steps, 'step')} "
            "of threshold learning, which costs accuracy; by default, this run has "
            f"{pluralize(default, 'step')} with fine-tuning"
        )
    return notes


def describe_epochs(context: RunContext) -> list[str]:
    """Return a note about the numbers of epochs if the user left them open."""
    if context.settings.train.epochs is not None:
        return []
    reason = ""
    if DEFAULT_MIN_EPOCHS * context.steps_per_epoch < DEFAULT_MIN_STEPS:
        reason = f", because {len(context.data.train):,} samples make few steps"
    return [
        f"thresholds are learned for {context.epochs} epochs, and the pruned network is fine-tuned "
        f"for {context.finetune_epochs}, of {pluralize(context.steps_per_epoch, 'step')} each"
        f"{reason}; --epochs and --finetune-epochs set other numbers"
    ]


def describe_loss(context: RunContext) -> list[str]:
    """Return a note about distillation if the loss also has labels."""
    task = context.task
    if not isinstance(task, SupervisedTask) or not task.is_distilled:
        return []
    return [
        f"the distillation loss has a weight of {task.distillation_weight:.0%} and the loss on "
        "labels the rest; --distillation-weight sets another weight"
    ]


def describe_budget(context: RunContext) -> list[str]:
    """Return a note about the default budget if it is a fraction of the original's metric."""
    budget = context.resolved.accuracy_budget
    metric = context.task.metric
    if budget is None or metric.is_fraction:
        return []
    return [
        f"the budget is a drop of {metric.format_drop(budget)}, 1 % of the original's "
        f"{metric.name} on the validation split; --accuracy-budget sets another"
    ]


def describe_optimizer(context: RunContext) -> list[str]:
    """Return a note about the optimizer if it is not SGD."""
    optimizer = context.optimizer
    if optimizer.optimizer == "sgd":
        return []
    warmup = ""
    if optimizer.warmup_fraction:
        warmup = f", reached after a warmup of {optimizer.warmup_fraction:.0%} of the steps"
    return [
        f"AdamW trains the weights with a learning rate of {optimizer.lr:g}{warmup}; "
        "--set train.optimizer=sgd selects SGD, the default without layer norms and attention"
    ]


def describe_blocks(context: RunContext) -> list[str]:
    """Return a note about the layers that are pruned in blocks, if the settings ask for blocks."""
    block = context.settings.method.block
    if block is None:
        return []
    blocks = get_block_axes(context.network.layer_weights, block)
    layers = context.network.prunable_weights
    others = [quote_name(layer.name) for layer in layers if layer.name not in blocks]
    num_layers = len(blocks) + len(others)
    note = f"{len(blocks)} of {num_layers} layer weights are pruned in {block} blocks"
    if not others:
        return [note]
    names = ", ".join(others[:MAX_NAMED_LAYERS])
    if len(others) > MAX_NAMED_LAYERS:
        names += f" and {len(others) - MAX_NAMED_LAYERS} more"
    return [
        f"{note}; unstructured are {names}: their output channels, or those of a group, are not a "
        f"multiple of {BLOCK_SIZE}, or no Conv, Gemm or MatMul reads them as they are stored"
    ]


def describe_metric(context: RunContext) -> list[str]:
    """Return notes about the metric and the unit of budgets, unless it is top-1 accuracy."""
    task = context.task
    metric = task.metric
    if metric.is_accuracy:
        return []
    if not task.is_relative:
        return [f"the metric is {metric.described}; budgets, drops and limits are in its unit"]
    kinds = ", ".join(f"{output.name!r} as {output.kind}" for output in task.outputs)
    note = f"without labels the network is distilled from the original, {kinds}; the metric is"
    if metric.name == "agreement":
        return [
            f"{note} agreement, the fraction of samples with the original's class: a budget of "
            "0.01 is 1 % of the samples, not a percentage point of accuracy"
        ]
    notes = [
        f"{note} R² with the original's outputs as targets: a budget of 0.01 is 1 % of their "
        "variance, not a percentage point of accuracy"
    ]
    unclear = [o.name for o in task.outputs if o.may_be_scores and o.kind == "values"]
    if unclear and context.settings.train.distill_outputs_as == "auto":
        names = ", ".join(map(repr, unclear))
        notes.append(
            f"{names} may be values or class scores, which have the same shape; for class scores, "
            'set train.distill_outputs_as = "logits", which compares their largest score'
        )
    return notes
