"""The original on some samples: as they are stored, and in other ways where it is clearly better so."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, product
from typing import TYPE_CHECKING, Any

import numpy as np

from ltp_pipeline.config import DataSettings, TaskSettings
from ltp_pipeline.data import open_for, recipe
from ltp_pipeline.errors import InputError
from ltp_pipeline.stages.validate import TWO, Session
from ltp_pipeline.tasks import Imitation, find_task
from ltp_pipeline.tasks.evaluator import Evaluator
from ltp_pipeline.tasks.own import Own

if TYPE_CHECKING:
    from pathlib import Path

    from ltp_pipeline.data import Data
    from ltp_pipeline.data.recipe import Recipe
    from ltp_pipeline.own_task import OwnTask
    from ltp_pipeline.records import Array, ModelFile
    from ltp_pipeline.task import Task

    Choice = Mapping[str, Mapping[str, Any]]  # settings of inputs, by their names

SAMPLES = 512  # on which the original is tried
LOOKED_AT = 64  # samples by which numbers are told to be whole
CONFIDENCE = 0.99  # that another way is better
LEAST = 0.15  # of the way to all right, that another way must go
BYTE = 255
BRIGHT = 200  # the largest value from which on bytes are taken for pixels of the whole range
MOST_TRIED = 32  # ways, with several inputs of pixels


@dataclass(frozen=True)
class Trial:
    """The original on some samples, with the settings that made them its inputs."""

    settings: DataSettings
    data: Data
    task: Task
    samples: int
    chosen: Choice  # what is said of inputs
    value: float | None = None  # None where there is nothing to measure it by
    evidence: Array | None = None
    as_stored: float | None = None  # the value without what is chosen

    @cached_property
    def recipes(self) -> Mapping[str, Recipe]:
        """What the samples of each input are like."""
        return recipe.of_data(self.data)

    @property
    def is_hardly_better_than_a_guess(self) -> bool:
        """Whether the samples may be prepared wrongly."""
        guess = self.task.guess(self.data.val)
        return guess is not None and self.value is not None and not self.value >= guess + 0.1 * (1 - guess)

    def is_clearly_better_than(self, other: Trial) -> bool:
        """Whether it goes much of the way from the other to all right, beyond chance, and beats a guess."""
        if self.value is None or other.value is None or not math.isfinite(self.value):
            return False
        if not math.isfinite(other.value):
            return True
        if self.value - other.value < LEAST * (1 - other.value) or self.is_hardly_better_than_a_guess:
            return False
        assert self.evidence is not None  # noqa: S101 - there is a value
        assert other.evidence is not None  # noqa: S101 - there is a value
        interval = self.task.interval(other.evidence, self.evidence, CONFIDENCE)
        return interval is not None and interval[1] < 0


def of_data(file: ModelFile, session: Session, path: Path) -> Trial:
    """The original on the user's data, with the layout and the scale of each input that they suggest."""
    found: list[Trial] = []
    refused: list[InputError] = []
    for layouts in _layouts(file):
        try:
            found.append(_scaled(file, session, _tried(file, session, path, layouts)))
        except InputError as error:
            refused.append(error)
    if not found:
        raise refused[0]
    return _best(found)


def of_task(file: ModelFile, session: Session, own: OwnTask, settings: DataSettings) -> Trial:
    """The original by the user's own task; their loss is called too, so that errors in it are found."""
    import torch

    data = open_for(file, settings, 0, own=own)
    near = find_task(data, file.model.graph, session.shapes(data.test), TWO, TaskSettings())
    assert isinstance(near, Imitation)  # noqa: S101 - such data have no labels that we know
    task = Own(own, near).quick
    batch = data.train.first(TWO)
    session.positions = [output.position for output in task.outputs]
    task.check([torch.from_numpy(y) for y in session.outputs(batch.inputs)], batch)
    return _measured(session, Trial(settings, data, task, min(SAMPLES, len(data.val)), {}))


def _layouts(file: ModelFile) -> Iterator[Choice]:
    """Each input of images with channels first and, as far as they are not too many, with channels last."""
    images = [info.name for info in file.inputs if len(info.shape or ()) == 4]
    for turned in islice(product((False, True), repeat=len(images)), MOST_TRIED):
        yield {name: {"layout": "NHWC"} for name, is_turned in zip(images, turned, strict=True) if is_turned}


def _scaled(file: ModelFile, session: Session, plain: Trial) -> Trial:
    """The same samples with a scale for inputs of pixels, where the original is clearly better or bytes suggest it."""
    pixels = {name: kept for name, kept in plain.recipes.items() if _are_pixels(plain.data, name, kept)}
    path = plain.settings.path
    assert path is not None  # noqa: S101 - the data were opened
    if plain.value is None:  # there is nothing to tell which is right
        pixels = {name: kept for name, kept in pixels.items() if kept.dtype == np.uint8 and kept.high >= BRIGHT}
        scales = dict.fromkeys(pixels, 1 / BYTE)
        return _tried(file, session, path, _with(plain.chosen, scales)) if scales else plain
    candidates = [dict.fromkeys([None, 1 / BYTE, 1 / kept.high]) for kept in pixels.values()]
    ways = sorted(product(*candidates), key=lambda way: sum(scale is not None for scale in way))[:MOST_TRIED]
    chosen = [{n: s for n, s in zip(pixels, way, strict=True) if s is not None} for way in ways]
    trials = [_tried(file, session, path, _with(plain.chosen, scales)) for scales in chosen if scales]
    return replace(_best([plain, *trials]), as_stored=plain.value)


def _are_pixels(data: Data, name: str, kept: Recipe) -> bool:
    """Whether they are whole numbers, for an input of fractions."""
    if kept.mask_of is not None or kept.prepare.dtype.kind != "f" or kept.low < 0 or kept.high <= 1:
        return False
    if kept.dtype.kind in "iu":
        return len(kept.shape) > 1 or kept.dtype == np.uint8
    samples = data.test.inputs[name].samples
    some = samples.take(data.test.rows[:LOOKED_AT])
    return len(kept.shape) > 1 and bool((some == np.rint(some)).all())


def _with(chosen: Choice, scales: Mapping[str, float]) -> Choice:
    names = dict.fromkeys([*chosen, *scales])
    return {n: {**chosen.get(n, {}), **({"scale": scales[n]} if n in scales else {})} for n in names}


def _tried(file: ModelFile, session: Session, path: Path, chosen: Choice) -> Trial:
    """With several inputs, what is said of one stands under its name."""
    said = {"inputs": chosen} if len(file.inputs) > 1 else dict(next(iter(chosen.values()), {}))
    settings = DataSettings.model_validate({"path": path, **said})
    data = open_for(file, settings, 0)
    task = find_task(data, file.model.graph, session.shapes(data.test), TWO, TaskSettings())
    session.positions = [output.position for output in task.outputs]
    return _measured(session, Trial(settings, data, task, min(SAMPLES, len(data.val)), chosen))


def _measured(session: Session, trial: Trial) -> Trial:
    if trial.task.is_relative:
        return trial
    accuracy, evidence = Evaluator(trial.task)(session.outputs, trial.data.val, np.arange(trial.samples))
    return replace(trial, value=accuracy.value, evidence=evidence)


def _best(trials: list[Trial]) -> Trial:
    """The first, unless another is clearly better."""
    best, *others = trials
    for other in others:
        best = other if other.is_clearly_better_than(best) else best
    return best
