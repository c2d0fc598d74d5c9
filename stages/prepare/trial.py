"""The original on some samples: as they are stored, and in other ways where it is clearly better so."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice, product
from typing import TYPE_CHECKING, Any

import numpy as np

from ltp_pipeline.data import recipe
from ltp_pipeline.data.matching import UnusedColumnError
from ltp_pipeline.errors import InputError
from ltp_pipeline.settings.load import merge_tables
from ltp_pipeline.settings.schema import DataSettings, Settings, TaskSettings
from ltp_pipeline.stages.measure.session import TWO, Session
from ltp_pipeline.tasks.custom_data import open_model_data
from ltp_pipeline.tasks.custom_task import CustomTaskAdapter
from ltp_pipeline.tasks.distillation import DistillationTask
from ltp_pipeline.tasks.evaluator import Evaluator
from ltp_pipeline.tasks.infer import infer_task
from ltp_pipeline.tasks.positions import ClassMapTask

if TYPE_CHECKING:
    from ltp_pipeline.data.dataset import DatasetSplits
    from ltp_pipeline.data.recipe import Recipe
    from ltp_pipeline.graph.model_file import ModelFile
    from ltp_pipeline.system.arrays import Array
    from ltp_pipeline.tasks.custom import CustomTask
    from ltp_pipeline.tasks.protocol import Task

    Choice = Mapping[str, Mapping[str, Any]]  # settings of inputs, by their names

SAMPLES = 512  # on which the original is tried
LOOKED_AT = 64  # samples by which numbers are told to be whole
CONFIDENCE = 0.99  # that another way is better
LEAST = 0.15  # of the way to all right, that another way must go
BYTE = 255
BRIGHT = 200  # the largest value from which on bytes are taken for pixels of the whole range
MOST_TRIED = 32  # ways, with several inputs of pixels
NO_CLASS = (255, -1)  # what often stands in the place of a class number where there is no label


@dataclass(frozen=True)
class Trial:
    """The original on some samples, with the settings that made them its inputs."""

    settings: DataSettings
    asked: TaskSettings
    data: DatasetSplits
    task: Task
    samples: int
    chosen: Choice  # what is said of inputs, beside what the user says
    value: float | None = None  # None where there is nothing to measure it by
    evidence: Array | None = None
    as_stored: float | None = None  # the value without scales
    unscaled: Mapping[str, Trial] = field(
        default_factory=dict
    )  # for pixels without a scale: the best trial with one
    others: Mapping[str, float | None] = field(
        default_factory=dict
    )  # the values of other outputs that fit

    @cached_property
    def recipes(self) -> Mapping[str, Recipe]:
        """What the samples of each input are like."""
        return recipe.describe_inputs(self.data)

    @property
    def is_hardly_better_than_a_guess(self) -> bool:
        """Whether the samples may be prepared wrongly."""
        guess = self.task.chance_level(self.data.val)
        return (
            guess is not None
            and self.value is not None
            and not self.value >= guess + 0.1 * (1 - guess)
        )

    def is_clearly_better_than(self, other: Trial) -> bool:
        """Whether it goes much of the way from the other to all right, beyond chance, and beats a guess."""
        if self.value is None or other.value is None or not math.isfinite(self.value):
            return False
        if type(self.task) is not type(other.task):
            return False  # their metrics differ
        if not math.isfinite(other.value):
            return True
        if (
            self.value - other.value < LEAST * (1 - other.value)
            or self.is_hardly_better_than_a_guess
        ):
            return False
        assert self.evidence is not None  # noqa: S101 - there is a value
        assert other.evidence is not None  # noqa: S101 - there is a value
        if self.evidence.shape != other.evidence.shape:
            return True  # two outputs with different classes, say: no sample can be compared
        interval = self.task.compute_drop_interval(other.evidence, self.evidence, CONFIDENCE)
        return interval is not None and interval[1] < 0


class TrialError(InputError):
    """An error of a trial, with how many steps went well before: opening data, running the model."""

    def __init__(self, error: InputError, steps: int) -> None:
        super().__init__(error.message, error.hint)
        self.error, self.steps = error, steps


@dataclass(frozen=True)
class Start:
    """What all trials have in common: the model, and what is known of its data and of its task."""

    file: ModelFile
    session: Session
    data: DataSettings
    task: TaskSettings

    def asking(self, **more: Any) -> Start:
        """The same with more said of the task."""
        return replace(self, task=self.task.model_copy(update=more))

    def leaves_open(self, name: str, key: str) -> bool:
        """Whether the user says nothing of this for an input."""
        own = self.data.inputs.get(name)
        return key not in self.data.model_fields_set and (
            own is None or key not in own.model_fields_set
        )

    def tried(self, chosen: Choice) -> Trial:
        """The original with these settings of inputs; with several inputs, what is said of one is under its name."""
        said = self.data.model_dump(exclude_unset=True)
        merge_tables(
            said,
            {"inputs": chosen} if len(self.file.inputs) > 1 else next(iter(chosen.values()), {}),
        )
        settings, steps = DataSettings.model_validate(said), 0
        try:
            data = open_model_data(self.file, settings, 0, self.task)
            steps += 1
            shapes = self.session.shapes(data.test)
            steps += 1
            task, data = infer_task(data, self.file.model.graph, shapes, TWO, self.task)
            self.session.positions = [output.position for output in task.outputs]
            trial = Trial(settings, self.task, data, task, min(SAMPLES, len(data.val)), chosen)
            return _measured(self.session, trial)
        except InputError as error:
            raise TrialError(error, steps) from None


def of_data(file: ModelFile, session: Session, given: Settings) -> Trial:
    """The original on the user's data, with the layout and the scale of each input that they suggest.

    Where no way can be tried, the error is that of the one that came furthest.
    """
    start = Start(file, session, given.data, given.task)
    found: list[Trial] = []
    refused: list[TrialError] = []
    for layouts in _layouts(start):
        try:
            found.append(_of_layouts(start, layouts))
        except TrialError as error:
            refused.append(error)
    if not found:
        raise max(refused, key=lambda error: error.steps).error from None
    return _best(found)


def of_task(file: ModelFile, session: Session, own: CustomTask, given: Settings) -> Trial:
    """The original by the user's own task; their loss is called too, so that errors in it are found."""
    import torch

    data = open_model_data(file, given.data, 0, own=own)
    near, data = infer_task(data, file.model.graph, session.shapes(data.test), TWO, given.task)
    assert isinstance(near, DistillationTask)  # noqa: S101 - such data have no labels that we know
    task = CustomTaskAdapter(own, near).without_interval
    batch = data.train.read_first(TWO)
    session.positions = [output.position for output in task.outputs]
    task.check_functions([torch.from_numpy(y) for y in session.outputs(batch.inputs)], batch)
    return _measured(
        session, Trial(given.data, given.task, data, task, min(SAMPLES, len(data.val)), {})
    )


def _layouts(start: Start) -> Iterator[Choice]:
    """Each input of images with channels first and, as far as they are not too many, with channels last."""
    images = [info.name for info in start.file.inputs if len(info.shape or ()) == 4]
    images = [name for name in images if start.leaves_open(name, "layout")]
    for turned in islice(product((False, True), repeat=len(images)), MOST_TRIED):
        yield {
            name: {"layout": "NHWC"}
            for name, is_turned in zip(images, turned, strict=True)
            if is_turned
        }


def _of_layouts(start: Start, layouts: Choice) -> Trial:
    """With the output that is clearly best of those that fit the labels; the first, where nothing tells."""
    trials = [
        _scaled(replace(start, task=plain.asked), plain) for plain in _of_outputs(start, layouts)
    ]
    best = _best(trials)
    rivals = [trial for trial in trials if trial is not best]
    if not all(best.is_clearly_better_than(rival) for rival in rivals):
        replace(start, task=best.asked).asking(output=None).tried(
            layouts
        )  # an error where it must be said
    return replace(best, others={rival.task.outputs[0].name: rival.value for rival in rivals})


def _of_outputs(start: Start, layouts: Choice) -> list[Trial]:
    names = [output.name for output in start.file.model.graph.output]
    found: list[Trial] = []
    for name in names if len(names) > 1 and start.task.output is None else ():
        try:
            found.append(_completed(start.asking(output=name), layouts))
        except TrialError:
            continue
        if found[-1].task.is_relative:  # then all outputs are compared
            return [_completed(start, layouts)]
    return found or [_completed(start, layouts)]


def _completed(start: Start, chosen: Choice) -> Trial:
    """A trial with the target and the ignored label that the data suggest, where it cannot do without."""
    try:
        return start.tried(chosen)
    except TrialError as refused:
        if isinstance(refused.error, UnusedColumnError):
            return _with_target(start, chosen, refused, refused.error.names)
        return _with_ignored(start, chosen, refused)


def _with_target(
    start: Start, chosen: Choice, refused: TrialError, names: tuple[str, ...]
) -> Trial:
    """Where there are no labels, and one array that no input takes, these are they."""
    if len(names) != 1:
        raise refused
    try:
        return _completed(start.asking(target=names[0]), chosen)
    except TrialError as error:
        read = InputError(
            f"{error.message}; {names[0]!r}, which no input takes, was read as labels", error.hint
        )
        raise TrialError(read, error.steps) from None


def _with_ignored(start: Start, chosen: Choice, refused: TrialError) -> Trial:
    """Where all would be well but for one number that often marks what has no label."""
    for label in NO_CLASS if "ignore_index" not in start.task.model_fields_set else ():
        try:
            trial = start.asking(ignore_index=label).tried(chosen)
        except TrialError:
            continue
        if (
            isinstance(trial.task, ClassMapTask)
            and (trial.task.count_labels(trial.data.train) > 0).sum() > 1
        ):
            return trial
    raise refused


def _scaled(start: Start, plain: Trial) -> Trial:
    """The same samples with a scale for inputs of pixels, where the original is clearly better or bytes suggest it."""
    pixels = {
        name: kept for name, kept in plain.recipes.items() if _are_pixels(plain.data, name, kept)
    }
    pixels = {name: kept for name, kept in pixels.items() if start.leaves_open(name, "scale")}
    bright = [
        name for name, kept in pixels.items() if kept.dtype == np.uint8 and kept.high >= BRIGHT
    ]
    usual = start.tried(_with(plain.chosen, dict.fromkeys(bright, 1 / BYTE))) if bright else plain
    if plain.value is None:  # there is nothing to tell which is right
        return usual
    candidates = [dict.fromkeys([None, 1 / BYTE, 1 / kept.high]) for kept in pixels.values()]
    ways = sorted(product(*candidates), key=lambda way: sum(scale is not None for scale in way))[
        :MOST_TRIED
    ]
    chosen = [{n: s for n, s in zip(pixels, way, strict=True) if s is not None} for way in ways]
    trials = [start.tried(_with(plain.chosen, scales)) for scales in chosen if scales]
    best = _best([usual, plain, *trials])
    unscaled = [name for name in pixels if "scale" not in best.chosen.get(name, {})]
    rivals = {
        name: [trial for trial in trials if "scale" in trial.chosen.get(name, {})]
        for name in unscaled
    }
    rival = {
        name: max(found, key=lambda trial: trial.value or -math.inf)
        for name, found in rivals.items()
        if found
    }
    return replace(best, as_stored=plain.value, unscaled=rival)


def _are_pixels(data: DatasetSplits, name: str, kept: Recipe) -> bool:
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
    return {
        n: {**chosen.get(n, {}), **({"scale": scales[n]} if n in scales else {})} for n in names
    }


def _measured(session: Session, trial: Trial) -> Trial:
    if trial.task.is_relative:
        return trial
    accuracy, evidence = Evaluator(trial.task)(
        session.outputs, trial.data.val, np.arange(trial.samples)
    )
    return replace(trial, value=accuracy.value, evidence=evidence)


def _best(trials: list[Trial]) -> Trial:
    """The first, unless another is clearly better."""
    best, *others = trials
    for other in others:
        best = other if other.is_clearly_better_than(best) else best
    return best
