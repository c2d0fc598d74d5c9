"""Check before training that the original fits the labels, and find what would make it fit.

A network whose labels or inputs are wrong would be trained for another task.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ltp_pipeline.data.generated import describe_masks
from ltp_pipeline.errors import InputError
from ltp_pipeline.results.intervals import wilson_interval
from ltp_pipeline.stages.prepare.trials import (
    Trial,
    iter_preparations,
    reorder_classes,
    select_best,
)
from ltp_pipeline.stages.train.context import RunContext, to_device
from ltp_pipeline.system import distributed
from ltp_pipeline.system.arrays import StateDict
from ltp_pipeline.tasks.classification import ClassificationTask
from ltp_pipeline.tasks.infer import infer_task
from ltp_pipeline.tasks.protocol import ComputeOutputs, Task

CONFIDENCE = 0.95  # one-sided confidence level that the original is better than chance
GOOD_FRACTION = 0.75  # of the distance from chance to a perfect metric; above, nothing is tried
NUM_SHAPE_SAMPLES = 2  # samples that show whether an output has a row for each
CHECKS = (
    "check scale, mean, std, layout and classes in [data], the order of the color channels, and "
    "output in [task]"
)


def describe_original(context: RunContext, value: float, chance: float) -> str:
    """Return a line about the original's metric on the validation split, next to chance."""
    metric = context.task.metric
    return (
        f"The original has {metric.name} {metric.format_value(value)} on the "
        f"{len(context.data.val)} validation samples; a constant prediction has "
        f"{metric.format_value(chance)}"
    )


def is_at_chance(context: RunContext, value: float, chance: float) -> bool:
    """Return True if the original is not significantly better than a constant prediction."""
    if isinstance(context.task, ClassificationTask):
        return not exceeds_chance(value, len(context.data.val), chance)
    return value <= chance


def exceeds_chance(accuracy: float, num_samples: int, chance: float) -> bool:
    """Return True if an accuracy is 1 or its one-sided Wilson interval lies above chance."""
    return accuracy >= 1 or wilson_interval(accuracy, num_samples, 2 * CONFIDENCE - 1)[0] > chance


def check_labels(context: RunContext, state: StateDict, value: float, chance: float) -> None:
    """Raise InputError if the original is not better than a constant prediction.

    All ranks stop; only rank 0 looks for the cause and prints it. `value` and `chance` are metrics
    on the validation split.
    """
    if context.settings.train.skip_label_check or not is_at_chance(context, value, chance):
        return
    metric = context.task.metric
    message = (
        f"the original has {metric.name} {metric.format_value(value)} on the "
        f"{len(context.data.val)} validation samples, not better than a constant prediction with "
        f"{metric.format_value(chance)}: the labels or the preprocessing do not fit the model"
    )
    hints: tuple[str, ...] = (CHECKS,)
    better = _find_better_trial(context, state) if distributed.is_main_process() else None
    if better is not None:
        message += f"; {_describe_trial(better)}"
        hints = better.hints
    distributed.stop_together()
    further_hints = (*describe_masks(context.data), "to train anyway, pass --skip-label-check")
    raise InputError(message, "; ".join((*hints, *further_hints)))


def suggest_changes(context: RunContext, state: StateDict, value: float) -> list[str]:
    """Return a note about settings under which a mediocre original would be far better."""
    if context.settings.train.skip_label_check or not isinstance(context.task, ClassificationTask):
        return []
    chance = context.task.chance_level(context.data.val)
    if value >= chance + GOOD_FRACTION * (1 - chance):
        return []
    better = _find_better_trial(context, state)
    if better is None:
        return []
    return [f"{_describe_trial(better)}; if that is what you mean, {'; '.join(better.hints)}"]


def _describe_trial(trial: Trial) -> str:
    """Return how good the original is after the changes of a trial."""
    assert trial.value is not None  # noqa: S101 - only evaluated trials are selected
    value = trial.task.metric.format_value(trial.value)
    changes = " and ".join(trial.changes)
    return f"with {changes} it would have {value} on {trial.num_samples} samples"


def _find_better_trial(context: RunContext, state: StateDict) -> Trial | None:
    """Return the trial with the simplest changes that make the original clearly better."""
    data = context.data
    settings = context.settings.data
    initial = Trial(data, context.task, context.settings.task, data.val, {})
    candidates = [initial]
    if len(data.val.inputs) == 1:
        (model_input,) = context.network.file.inputs
        candidates += iter_preparations(initial, settings, model_input)
    trials = []
    for candidate in (*candidates, *_iter_output_trials(context, state, initial)):
        trial = candidate.evaluate(partial(_make_compute, context, state))
        reordered = reorder_classes(trial, settings)
        trials += [trial] if reordered is None else [trial, reordered]
    best = select_best(trials)
    return None if best is trials[0] else best


def _make_compute(context: RunContext, state: StateDict, task: Task) -> ComputeOutputs:
    """Return what computes the outputs of a task in torch."""
    return partial(replace(context, task=task).compute_outputs, state)


def _iter_output_trials(context: RunContext, state: StateDict, initial: Trial) -> Iterator[Trial]:
    """Yield a trial, to be evaluated, for each further output that fits the labels."""
    graph = context.network.file.model.graph
    evaluated = {output.name for output in context.task.outputs}
    names = [output.name for output in graph.output if output.name not in evaluated]
    if not names:
        return
    batch = context.data.train.read(np.arange(NUM_SHAPE_SAMPLES))
    with torch.inference_mode():
        outputs = context.network.forward(to_device(batch.inputs, context.device), state)
    shapes = get_float_shapes(outputs)
    for name in names:
        task_settings = context.settings.task.model_copy(update={"output": name})
        try:
            task, data = infer_task(context.data, graph, shapes, NUM_SHAPE_SAMPLES, task_settings)
        except InputError:
            continue
        change = f'output = "{name}"'
        yield replace(
            initial,
            task=task,
            data=data,
            task_settings=task_settings,
            changes=(change,),
            hints=(f"set {change} in [task]",),
        )


def get_float_shapes(outputs: Sequence[Any]) -> list[tuple[int, ...] | None]:
    """Return the shapes of outputs; None for an output that is no tensor of floating point."""
    shapes: list[tuple[int, ...] | None] = []
    for output in outputs:
        is_float = isinstance(output, Tensor) and output.is_floating_point()
        shapes.append(tuple(output.shape) if is_float else None)
    return shapes
