"""Whether the labels fit the original, and what would make them fit: asked before anything is trained.

A network whose labels mean something else, or whose inputs are prepared wrongly, would be retrained to another task.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ltp_pipeline.data import recipe
from ltp_pipeline.data.dataset import TARGET
from ltp_pipeline.data.images.broken import StandIns
from ltp_pipeline.data.preprocessing import Preparation, decide_preparation
from ltp_pipeline.errors import InputError
from ltp_pipeline.results.intervals import wilson
from ltp_pipeline.stages.train.job import to_device
from ltp_pipeline.system import distributed
from ltp_pipeline.tasks.classification import TOP1, ClassificationTask
from ltp_pipeline.tasks.evaluator import BATCH
from ltp_pipeline.tasks.infer import infer_task

if TYPE_CHECKING:
    from ltp_pipeline.data.dataset import DatasetSplits, Layout, Split
    from ltp_pipeline.graph.model_file import TensorInfo
    from ltp_pipeline.settings.schema import DataSettings, InputSettings
    from ltp_pipeline.stages.train.job import RunContext
    from ltp_pipeline.system.arrays import Array, StateDict

CONFIDENCE = 0.95  # one-sided, that the original beats guessing
SURE = 0.99  # that an explanation does; several are tried
SAMPLES = 512  # on which explanations are tried
LEAST = 0.15  # of the way from what is explained to all right, that an explanation must go
SIMPLER = 0.05  # by how much a second change must better the accuracy to be believed
GOOD = 0.75  # of the way from guessing to all right; from there on nothing is tried
MOST_NAMED = 20  # classes whose numbers are spelled out
PIXEL = 255
TWO = 2  # samples by which an output is told to have a row for each


class Variant(NamedTuple):
    """Another way to prepare stored samples, and the setting that would do it."""

    said: str
    remedy: str
    prepare: Callable[[Array], Array]


class Explanation(NamedTuple):
    """What would make the labels fit, with the accuracy it gives on so many samples."""

    said: str
    remedy: str
    accuracy: float
    samples: int
    changes: int


def said(job: RunContext, value: float, guess: float) -> str:
    """How good the original is, in a line."""
    metric, samples = job.task.metric, len(job.data.val)
    if metric is TOP1:
        told = f"The original is right on {value:.2%} of the {samples} validation samples"
        return f"{told}; naming the most frequent class, on {guess:.2%}"
    told = (
        f"The original has {metric.name} {metric.shown(value)} on the {samples} validation samples"
    )
    return f"{told}; without looking at the input, {metric.shown(guess)}"


def is_guess(job: RunContext, value: float, guess: float) -> bool:
    """Whether the original is not clearly better than an answer that does not look at the input."""
    if isinstance(job.task, ClassificationTask):
        return not beats(value, len(job.data.val), guess)
    return value <= guess


def beats(accuracy: float, samples: int, guess: float, confidence: float = CONFIDENCE) -> bool:
    """Whether the lower end of a one-sided interval (Wilson's) of an accuracy is above guessing; or all is right."""
    return accuracy >= 1 or wilson(accuracy, samples, 2 * confidence - 1)[0] > guess


def require(job: RunContext, state: StateDict, accuracy: float, guess: float) -> None:
    """Stop where the original is not clearly better than guessing; all processes do, and the leader says why."""
    if job.settings.train.skip_label_check or not is_guess(job, accuracy, guess):
        return
    samples, misfit = (
        len(job.data.val),
        "the labels or the preparation of samples do not fit the model",
    )
    if job.task.metric is TOP1:
        what = (
            f"the original is right on {accuracy:.1%} of the {samples} validation samples, no better than naming the "
            f"most frequent class ({guess:.1%}): {misfit}"
        )
        remedy = (
            "check scale, mean, std, layout and classes in [data], and the order of the colours"
        )
    else:
        name = job.task.metric.name
        value = f"{name} {job.task.metric.shown(accuracy)} on the {samples} validation samples"
        what = f"the original has {value}, no better than a guess: {misfit}"
        remedy = "check scale, mean, std and layout in [data], and what the targets mean"
    found = (
        explain(job, state, guess) if distributed.is_main_process() and _explainable(job) else None
    )
    if found is not None:
        what += f"; {found.said} it is right on {found.accuracy:.1%} of {found.samples}"
        remedy = found.remedy
    remedy = "; ".join([remedy, *recipe.describe_masks(job.data.val)])
    others = ", ".join(map(repr, _other_outputs(job, state)))
    if others:
        remedy += f"; or another output is meant: {others} ([task] output)"
    distributed.stop_together()
    raise InputError(what, f"{remedy}; to go on all the same, give --skip-label-check")


def _other_outputs(job: RunContext, state: StateDict) -> Iterator[str]:
    """Outputs that are not judged, and that the labels fit too."""
    graph, judged = job.network.file.model.graph, {output.name for output in job.task.outputs}
    others = [output.name for output in graph.output if output.name not in judged]
    if not others or not distributed.is_main_process():
        return
    batch = job.data.train.read_first(TWO)
    with torch.inference_mode():
        outputs = job.network.forward(to_device(batch.inputs, job.device), state)
    shapes = [
        tuple(y.shape) if isinstance(y, Tensor) and y.is_floating_point() else None for y in outputs
    ]
    for name in others:
        asked = job.settings.task.model_copy(update={"output": name})
        with suppress(InputError):
            infer_task(job.data, graph, shapes, len(batch), asked)
            yield name


def hints(job: RunContext, state: StateDict, accuracy: float) -> list[str]:
    """What would make a middling original far better: it is not stopped for, but told."""
    guess = job.task.chance_level(job.data.val)
    if guess is None or not _explainable(job) or job.settings.train.skip_label_check:
        return []
    if accuracy >= guess + GOOD * (1 - guess):
        return []
    found = explain(job, state, accuracy)
    if found is None:
        return []
    told = f"{found.said} the original would be right on {found.accuracy:.1%} of {found.samples} validation samples"
    return [f"{told}; if that is meant, {found.remedy}"]


def explain(job: RunContext, state: StateDict, accuracy: float) -> Explanation | None:
    """The simplest change that surely makes the original more accurate than this; None where none is known."""
    split, rng = job.data.val, np.random.default_rng(0)
    rows = rng.permutation(len(split))[:SAMPLES]
    assert isinstance(job.task, ClassificationTask)  # noqa: S101 - whoever asks has looked
    labels = split.targets[TARGET].take(split.rows[rows]).reshape(-1)
    found: list[Explanation] = []
    (info,) = job.network.file.inputs
    for variant in _variants(split, job.settings.data.for_input(info.name), info):
        scores = _scores(job, state, split, rows, variant.prepare)
        found += _readings(variant, scores, labels, _numbers(job.data, job.settings.data))
    found = [e for e in found if e.accuracy >= accuracy + LEAST * (1 - accuracy)]
    sure = [e for e in found if beats(e.accuracy, e.samples, accuracy, SURE)]
    return max(sure, key=lambda e: e.accuracy - SIMPLER * e.changes, default=None)


def _explainable(job: RunContext) -> bool:
    """Whether other ways to prepare samples can be tried: one input, and a class for each sample."""
    task = job.task
    return (
        isinstance(task, ClassificationTask)
        and not task.is_single
        and len(job.data.val.inputs) == 1
    )


def assign(labels: Array, answers: Array, classes: int) -> Array:
    """For each label the answer that goes with it most often, no answer twice; what was not seen keeps its number."""
    pairs, counts = np.unique(labels * classes + answers, return_counts=True)
    given = np.full(classes, -1, np.int64)
    taken = np.zeros(classes, bool)
    for pair in pairs[np.argsort(-counts, kind="stable")]:
        label, answer = divmod(int(pair), classes)
        if given[label] < 0 and not taken[answer]:
            given[label], taken[answer] = answer, True
    for unseen in np.flatnonzero(given < 0):
        given[unseen] = np.flatnonzero(~taken)[0] if taken[unseen] else unseen
        taken[given[unseen]] = True
    return given


def _variants(split: Split, settings: InputSettings, model_input: TensorInfo) -> Iterator[Variant]:
    samples, prepare, _ = split.inputs[model_input.name]
    yield Variant("", "", prepare)
    if not isinstance(prepare, Preparation):
        return
    stored = samples.shape
    if prepare.dtype.kind == "f":
        largest = float(np.max(samples.take(split.rows[:BATCH])))
        for factor in dict.fromkeys(
            [1 / PIXEL, float(PIXEL), 1 / largest if largest > 1 else float(PIXEL)]
        ):
            scale = (prepare.scale or 1.0) * factor
            remedy = (
                "remove scale from [data]"
                if abs(scale - 1) < 1e-6
                else f"set scale = {scale!r} in [data]"
            )
            yield Variant(f"with scale = {_ratio(scale)}", remedy, replace(prepare, scale=scale))
    if len(stored) != 3:
        return
    layout: Layout = "NCHW" if prepare.channels_to_front else "NHWC"
    if not isinstance(samples, StandIns):  # images have the layout that decoding gives them
        try:
            turned = decide_preparation("samples", stored, layout, settings, model_input)
        except InputError:
            turned = None
        if turned is not None:
            yield Variant(f'with layout = "{layout}"', f'set layout = "{layout}" in [data]', turned)
    axis = 3 if prepare.channels_to_front else 1
    if stored[axis - 1] == 3:
        remedy = "store the channels in reverse order (BGR for RGB), or reverse the input channels of the first layer"
        yield Variant(
            "with the colours in reverse order", remedy, lambda x: prepare(np.flip(x, axis).copy())
        )


def _readings(
    variant: Variant, scores: Array, labels: Array, numbers: Mapping[str, int]
) -> Iterator[Explanation]:
    """What a variant explains with the classes as they are, and with other numbers for them."""
    answers, classes = scores.argmax(1), scores.shape[1]
    changed = int(bool(variant.said))
    if changed:
        yield Explanation(
            variant.said, variant.remedy, float((answers == labels).mean()), len(labels), 1
        )
    half = len(labels) // 2
    if not half:
        return
    chosen = assign(labels[:half], answers[:half], classes)
    right = float(
        (answers[half:] == chosen[labels[half:]]).mean()
    )  # judged by samples that did not choose it
    said = (
        f"{variant.said or 'with'}{' and' if changed else ''} the classes numbered in another order"
    )
    remedy = _renumbering(numbers, assign(labels, answers, classes))
    remedy = f"{variant.remedy}; {remedy}" if changed else remedy
    yield Explanation(said, remedy, right, len(labels) - half, changed + 1)


def _renumbering(numbers: Mapping[str, int], given: Array) -> str:
    if not numbers:  # one-hot labels have places
        return "bring what the labels mark into the order of the model's classes"
    if len(numbers) > MOST_NAMED:
        return "number the classes as the model does: classes in [data], a table of name = number"
    table = ", ".join(
        f"{_key(name)} = {given[number] if number < len(given) else number}"
        for name, number in numbers.items()
    )
    return f"number the classes as the model does: classes = {{ {table} }} in [data]"


def _numbers(data: DatasetSplits, settings: DataSettings) -> Mapping[str, int]:
    """The number of each class as it is now."""
    names = data.class_names or [str(i) for i in range(data.num_classes or 0)]
    return settings.classes or {name: number for number, name in enumerate(names)}


def _scores(
    job: RunContext, state: StateDict, split: Split, rows: Array, prepare: Callable[[Array], Array]
) -> Array:
    ((name, source),) = split.inputs.items()
    parts = []
    for start in range(0, len(rows), BATCH):
        x = prepare(source.samples.take(split.rows[rows[start : start + BATCH]]))
        parts.append(job.compute_outputs(state, {name: x})[0].reshape(len(x), -1))
    scores = np.concatenate(parts)
    return np.where(np.isnan(scores), -np.inf, scores)


def _ratio(scale: float) -> str:
    return (
        f"1/{round(1 / scale)}"
        if scale < 1 and abs(1 / scale - round(1 / scale)) < 1e-6
        else f"{scale:.6g}"
    )


def _key(name: str) -> str:
    return name if re.fullmatch("[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)
