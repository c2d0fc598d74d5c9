"""Evaluate the original with other settings, and select those that make it clearly better.

`run` looks for settings that explain a bad accuracy of the original; `init` for those to suggest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ltp_pipeline.data.dataset import TARGET, DatasetSplits, Layout, Samples, Split, SplitInput
from ltp_pipeline.data.recipes import decide_recipe
from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.settings.schema import DataSettings, TaskSettings
from ltp_pipeline.settings.write import format_value
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.tasks.classification import ClassificationTask
from ltp_pipeline.tasks.evaluator import BATCH, Evaluator
from ltp_pipeline.tasks.protocol import ComputeOutputs, Task

# Returns what computes the outputs that a task evaluates.
MakeCompute = Callable[[Task], ComputeOutputs]
# Settings of inputs by their names, as in [data.inputs].
InputChanges = Mapping[str, Mapping[str, Any]]

MAX_SAMPLES = 512  # validation samples on which the original is tried
CONFIDENCE = 0.99  # confidence level that a trial is better than another
MIN_IMPROVEMENT = 0.15  # of the distance to a perfect metric, for a trial that is clearly better
MIN_GAIN_OF_CHANGE = 0.05  # of the metric, for a trial with more changes than another
NEAR_CHANCE = 0.1  # of the distance from chance to a perfect metric; less is near chance
MAX_NAMED_CLASSES = 20  # classes whose numbers are listed in a hint
MAX_BYTE = 255


@dataclass(frozen=True)
class Trial:
    """The original, evaluated on validation samples with one choice of settings.

    Attributes:
        data: The data set.
        task: The task.
        task_settings: `[task]` of this choice.
        split: The validation split, prepared as in this choice.
        inputs: Settings of inputs that this choice changes.
        changes: What differs from the settings of the user, such as "scale = 1/255".
        hints: Commands to the user that make these changes.
        value: The metric; None before the evaluation, or if it compares with the original.
        statistics: Statistics of the samples.
        predictions: Predicted class of each sample, if samples have one class each.
    """

    data: DatasetSplits
    task: Task
    task_settings: TaskSettings
    split: Split
    inputs: InputChanges
    changes: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    value: float | None = None
    statistics: Array | None = None
    predictions: Array | None = None

    @property
    def rows(self) -> Array:
        """Numbers of the samples that are evaluated, within the split; equal in all trials."""
        order = np.random.default_rng(0).permutation(len(self.split))
        return np.sort(order[:MAX_SAMPLES])

    @property
    def num_samples(self) -> int:
        """Number of samples that are evaluated."""
        return len(self.rows)

    @property
    def is_near_chance(self) -> bool:
        """Whether the metric is hardly better than that of a constant prediction."""
        chance = self.task.chance_level(self.split)
        if chance is None or self.value is None:
            return False
        return not self.value >= chance + NEAR_CHANCE * (1 - chance)

    def evaluate(self, make_compute: MakeCompute) -> Trial:
        """Return the trial with metric, statistics and predictions."""
        if self.task.is_relative:
            return self
        compute = make_compute(self.task)
        predictions: list[Array] = []
        has_classes = isinstance(self.task, ClassificationTask) and not self.task.is_single

        def compute_and_predict(inputs: Mapping[str, Array]) -> Sequence[Array]:
            outputs = compute(inputs)
            if has_classes:
                scores = outputs[0].reshape(len(outputs[0]), -1)
                predictions.append(np.where(np.isnan(scores), -np.inf, scores).argmax(1))
            return outputs

        evaluator = Evaluator(self.task)
        result, statistics = evaluator(compute_and_predict, self.split, self.rows)
        return replace(
            self,
            value=result.value,
            statistics=statistics,
            predictions=np.concatenate(predictions) if has_classes else None,
        )

    def is_clearly_better_than(self, other: Trial) -> bool:
        """Return True if the metric is significantly and much better than the other and chance."""
        if self.value is None or other.value is None or type(self.task) is not type(other.task):
            return False
        if not math.isfinite(self.value):
            return False
        if not math.isfinite(other.value):
            return not self.is_near_chance
        chance = self.task.chance_level(self.split)
        reference = other.value if chance is None else max(other.value, chance)
        if self.value - reference < MIN_IMPROVEMENT * (1 - reference):
            return False
        has_more_changes = len(self.changes) > len(other.changes)
        if has_more_changes and self.value - other.value < MIN_GAIN_OF_CHANGE:
            return False
        assert self.statistics is not None  # noqa: S101 - there is a value
        assert other.statistics is not None  # noqa: S101 - there is a value
        if self.statistics.shape != other.statistics.shape:
            return True  # outputs with different numbers of classes cannot be compared by sample
        interval = self.task.compute_drop_interval(other.statistics, self.statistics, CONFIDENCE)
        return interval is not None and interval[1] < 0

    def with_preparation(
        self,
        sources: Mapping[str, SplitInput],
        inputs: InputChanges,
        change: str = "",
        hint: str = "",
    ) -> Trial:
        """Return a trial, to be evaluated, that prepares the samples of some inputs differently.

        Args:
            sources: Samples and preprocessing of these inputs.
            inputs: Settings of inputs that have this effect.
            change: The change in words.
            hint: A command to the user that makes the change.
        """
        split = self.split
        all_sources = {**split.inputs, **sources}
        names = dict.fromkeys([*self.inputs, *inputs])
        return replace(
            self,
            split=Split(split.name, all_sources, split.targets, split.rows, split.num_workers),
            inputs={n: {**self.inputs.get(n, {}), **inputs.get(n, {})} for n in names},
            changes=(*self.changes, change) if change else self.changes,
            hints=(*self.hints, hint) if hint else self.hints,
        )

    def with_scales(self, scales: Mapping[str, float]) -> Trial:
        """Return a trial, to be evaluated, that multiplies the samples of inputs by scales."""
        sources = {}
        inputs = {}
        for name, scale in scales.items():
            sources[name] = _replace_scale(self.split.inputs[name], scale)
            inputs[name] = {"scale": scale}
        return self.with_preparation(sources, inputs)


def select_best(trials: Sequence[Trial]) -> Trial:
    """Return the first trial, or a later one that is clearly better than all before it."""
    best, *others = trials
    for trial in others:
        if trial.is_clearly_better_than(best):
            best = trial
    return best


def iter_preparations(
    trial: Trial, settings: DataSettings, model_input: TensorInfo
) -> Iterator[Trial]:
    """Yield trials, to be evaluated, that prepare the samples of the only input differently."""
    name = model_input.name
    source = trial.split.inputs[name]
    samples, recipe = source.samples, source.recipe
    if np.dtype(recipe.type).kind == "f":
        largest = float(np.max(samples.take(trial.split.rows[:BATCH])))
        factors = [1 / MAX_BYTE, float(MAX_BYTE), 1 / largest if largest > 1 else float(MAX_BYTE)]
        for factor in dict.fromkeys(factors):
            scale = (recipe.scale or 1.0) * factor
            hint = f"set scale = {scale!r} in [data]"
            if math.isclose(scale, 1, rel_tol=1e-6):
                hint = "remove scale from [data]"
            scaled = {name: _replace_scale(source, scale)}
            change = f"scale = {_format_scale(scale)}"
            yield trial.with_preparation(scaled, {name: {"scale": scale}}, change, hint)
    if len(samples.shape) != 3:
        return
    layout: Layout = "NCHW" if recipe.channels_to_front else "NHWC"
    if recipe.image is None:  # the layout of decoded images is known
        try:
            transposed = decide_recipe(
                "samples", samples.shape, layout, settings.for_input(name), model_input
            )
        except InputError:
            pass
        else:
            change = f'layout = "{layout}"'
            inputs = {name: {"layout": layout}}
            sources = {name: source._replace(recipe=transposed)}
            yield trial.with_preparation(sources, inputs, change, f"set {change} in [data]")
    axis = 3 if recipe.channels_to_front else 1
    if samples.shape[axis - 1] == 3:
        hint = (
            "store the color channels in reverse order (BGR instead of RGB), or reverse the input "
            "channels of the model's first layer"
        )
        sources = {name: source._replace(samples=ReversedSamples(samples, axis))}
        yield trial.with_preparation(sources, {}, "the color channels in reverse order", hint)


def reorder_classes(trial: Trial, settings: DataSettings) -> Trial | None:
    """Return the trial with classes numbered in the order that fits its predictions best.

    The order for one half of the samples is chosen by the other half, because with many classes
    chance alone finds an order that fits the samples it was chosen by.

    Args:
        trial: An evaluated trial.
        settings: `[data]` of the settings.

    Returns:
        An evaluated trial; None if samples do not have one class each.
    """
    if trial.predictions is None or len(trial.predictions) < 2:
        return None
    assert isinstance(trial.task, ClassificationTask)  # noqa: S101 - it has predictions
    num_classes = trial.task.num_classes
    labels = trial.split.targets[TARGET].take(trial.split.rows[trial.rows]).reshape(-1)
    halves = (np.arange(len(labels)) % 2 == 0, np.arange(len(labels)) % 2 == 1)
    is_correct = np.zeros(len(labels), bool)
    for chosen_by, tested in (halves, halves[::-1]):
        order = match_classes(labels[chosen_by], trial.predictions[chosen_by], num_classes)
        is_correct[tested] = trial.predictions[tested] == order[labels[tested]]
    order = match_classes(labels, trial.predictions, num_classes)
    statistics = np.stack([is_correct, is_correct], axis=1)
    return replace(
        trial,
        value=float(is_correct.mean()),
        statistics=statistics,
        predictions=None,
        changes=(*trial.changes, "the classes numbered in another order"),
        hints=(*trial.hints, _suggest_class_numbers(trial.data, settings, order)),
    )


def match_classes(labels: Array, predictions: Array, num_classes: int) -> Array:
    """Return for each label the predicted class that occurs with it most often, no class twice.

    A label that does not occur keeps its number if that is still free.
    """
    pairs, counts = np.unique(labels * num_classes + predictions, return_counts=True)
    order = np.full(num_classes, -1, np.int64)
    is_taken = np.zeros(num_classes, bool)
    for pair in pairs[np.argsort(-counts, kind="stable")]:
        label, predicted = divmod(int(pair), num_classes)
        if order[label] < 0 and not is_taken[predicted]:
            order[label] = predicted
            is_taken[predicted] = True
    for unseen in np.flatnonzero(order < 0):
        order[unseen] = np.flatnonzero(~is_taken)[0] if is_taken[unseen] else unseen
        is_taken[order[unseen]] = True
    return order


def _suggest_class_numbers(data: DatasetSplits, settings: DataSettings, order: Array) -> str:
    """Return the hint for classes that the model numbers in another order."""
    names = data.class_names or [str(number) for number in range(data.num_classes or 0)]
    numbers = settings.classes or {name: number for number, name in enumerate(names)}
    if not numbers:  # labels are one-hot
        return "store one-hot labels in the order of the model's classes"
    if len(numbers) > MAX_NAMED_CLASSES:
        return "number the classes as the model does: set classes = { NAME = NUMBER } in [data]"
    renumbered = {}
    for name, number in numbers.items():
        renumbered[name] = int(order[number]) if number < len(order) else number
    return f"set classes = {format_value(renumbered)} in [data]"


class ReversedSamples:
    """Samples with reversed color channels."""

    def __init__(self, samples: Samples, axis: int) -> None:
        self._samples = samples
        self._axis = axis
        self.shape = samples.shape
        self.dtype = samples.dtype

    def __len__(self) -> int:
        return len(self._samples)

    def take(self, indices: Array) -> Array:
        """Read these samples and reverse their channels."""
        return np.flip(self._samples.take(indices), self._axis).copy()


def _replace_scale(source: SplitInput, scale: float) -> SplitInput:
    """Return an input whose samples are multiplied by a scale."""
    return source._replace(recipe=source.recipe.model_copy(update={"scale": scale}))


def _format_scale(scale: float) -> str:
    """Return a scale for a message, such as 1/255."""
    divisor = round(1 / scale) if scale < 1 else 1
    is_fraction = divisor > 1 and math.isclose(1 / scale, divisor, abs_tol=1e-6)
    return f"1/{divisor}" if is_fraction else f"{scale:.6g}"
