"""What a user should know before hours of training, and what a reader of the report should know of it."""

from __future__ import annotations

from ltp_pipeline.graph.layer_weights import BLOCK_SIZE, get_block_axes
from ltp_pipeline.stages.prepare import explain
from ltp_pipeline.stages.train.job import DEFAULT_MIN_EPOCHS, DEFAULT_MIN_STEPS, RunContext
from ltp_pipeline.system import distributed
from ltp_pipeline.system.arrays import StateDict
from ltp_pipeline.system.text import pluralize, quote_name
from ltp_pipeline.tasks.classification import TOP1
from ltp_pipeline.tasks.supervised import SupervisedTask

MIN_STEPS = 100
MAX_NAMED_LAYERS = 10  # kernels


def print_notes(job: RunContext, state: StateDict, original: float) -> None:
    """Say it on the console; `original` is the accuracy on the validation split."""
    chosen = (
        *describe_budget(job),
        *describe_loss(job),
        *describe_optimizer(job),
        *describe_blocks(job),
        *describe_epochs(job),
    )
    about = (
        *describe_metric(job),
        *chosen,
        *warn_of_weak_result(job, original),
    )
    hints = explain.hints(job, state, original) if distributed.is_main_process() else ()
    for note in (*job.network.notes, *job.data.notes, *about, *hints):
        job.workspace.progress.say(f"Note: {note}")


def warn_of_weak_result(job: RunContext, original: float) -> list[str]:
    """What speaks against the outcome: an original that hardly beats naming the commonest class, or few steps."""
    notes = []
    guess = job.task.chance_level(job.data.val)
    if guess is not None and original < guess + 0.1 * (1 - guess):
        said = f"the original is right on only {original:.1%} of the validation split"
        metric = job.task.metric
        if metric is not TOP1:
            said = f"the original has only {metric.name} {metric.shown(original)} on the validation split"
        notes.append(f"{said}: check scale, mean, std and layout in [data]")
    steps = job.epochs * job.steps_per_epoch
    if steps < MIN_STEPS:
        said = f"thresholds are learned in only {pluralize(steps, 'step')}"
        notes.append(f"{said}: more epochs or smaller batches would lose less")
    return notes


def describe_epochs(job: RunContext) -> list[str]:
    """How long training takes, where nothing was said of it."""
    if job.settings.train.epochs is not None:
        return []
    epochs, steps = (job.epochs, job.finetune_epochs), pluralize(job.steps_per_epoch, "step")
    more = DEFAULT_MIN_EPOCHS * job.steps_per_epoch < DEFAULT_MIN_STEPS
    few = f", because {len(job.data.train):,} samples make few steps" if more else ""
    return [
        f"thresholds are learned for {epochs[0]} and the result is fine-tuned for {epochs[1]} epochs of {steps}"
        f"{few}; --epochs and --finetune-epochs set other numbers"
    ]


def describe_loss(job: RunContext) -> list[str]:
    """How much is learned from the original, beside labels."""
    if not isinstance(job.task, SupervisedTask) or not job.task.is_distilled:
        return []
    share = job.task.distillation_weight
    return [
        f"{share:.0%} of the loss is learned from the original, the rest from labels; --distillation-weight sets another share"
    ]


def describe_budget(job: RunContext) -> list[str]:
    """The largest drop where none was asked for and it follows from the original."""
    found, metric = job.resolved.accuracy_budget, job.task.metric
    if found is None or metric.is_fraction:
        return []
    said = f"the budget is a drop of {metric.shown_drop(found)}, 1 % of the original's {metric.name} on the validation"
    return [f"{said} split; --accuracy-budget sets another"]


def describe_optimizer(job: RunContext) -> list[str]:
    """What moves the weights, where it is not SGD."""
    found = job.optimizer
    if found.optimizer == "sgd":
        return []
    rises = (
        f", which rises over the first {found.warmup_fraction:.0%} of the steps"
        if found.warmup_fraction
        else ""
    )
    return [
        f"AdamW trains the weights, with a learning rate of {found.lr:g}{rises}; "
        "--set train.optimizer=sgd takes SGD, which is usual without layer norms and attention"
    ]


def describe_blocks(job: RunContext) -> list[str]:
    """Which kernels are pruned in blocks and which keep single weights, where blocks were asked for."""
    if job.settings.method.block is None:
        return []
    blocks = get_block_axes(job.network.layer_weights, job.settings.method.block)
    single = [quote_name(k.name) for k in job.network.prunable_weights if k.name not in blocks]
    said = f"{len(blocks)} of {len(blocks) + len(single)} kernels are pruned in {job.settings.method.block} blocks"
    if not single:
        return [said]
    more = f" and {len(single) - MAX_NAMED_LAYERS} more" if len(single) > MAX_NAMED_LAYERS else ""
    return [
        f"{said}; single weights in {', '.join(single[:MAX_NAMED_LAYERS])}{more}: their output channels, or those of a "
        f"group, are no multiple of {BLOCK_SIZE}, or no Conv, Gemm or MatMul reads them as they are stored"
    ]


def describe_metric(job: RunContext) -> list[str]:
    """What is judged, and in which unit a budget is, where it is not the share of right answers."""
    task, metric = job.task, job.task.metric
    if metric.counts_right_answers:
        return []
    if not task.is_relative:
        return [f"the metric is {metric.described}; budgets, drops and limits are in its unit"]
    read = ", ".join(f"{output.name!r} as {output.kind}" for output in task.outputs)
    learned = f"without labels the original is learned from, {read}"
    if metric.name == "agreement":
        return [
            f"{learned}; the metric is agreement, the share of samples with the original's class: a budget of 0.01 is "
            "1 % of the samples, not a point of accuracy"
        ]
    notes = [
        f"{learned}; the metric is explained, the share of the variance of the original's outputs that is met: a "
        "budget of 0.01 is 1 % of that variance, not a point of accuracy"
    ]
    maybe = [
        output.name for output in task.outputs if output.may_be_scores and output.kind == "values"
    ]
    if maybe and job.settings.train.distill_outputs_as == "auto":
        names = ", ".join(map(repr, maybe))
        notes.append(
            f"{names} may be values or class scores, which the shape does not tell; if class scores, write "
            'train.distill_outputs_as = "logits" (--set train.distill_outputs_as=logits): then the largest score is what counts'
        )
    return notes
