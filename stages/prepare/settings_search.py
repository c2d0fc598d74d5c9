"""Find settings of data and task under which the original works, for `init` to suggest them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, product
from typing import Any

import numpy as np

from ltp_pipeline.data.generated import describe_inputs
from ltp_pipeline.data.matching import UnusedColumnError
from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.model_file import ModelFile
from ltp_pipeline.results.schema_parts import InputRecipe
from ltp_pipeline.settings.load import merge_tables
from ltp_pipeline.settings.schema import DataSettings, Settings, TaskSettings
from ltp_pipeline.stages.measure.session import PROBE_SAMPLES, Session
from ltp_pipeline.stages.prepare.trials import (
    MAX_BYTE,
    InputChanges,
    Trial,
    reorder_classes,
    select_best,
)
from ltp_pipeline.tasks.custom import CustomTask
from ltp_pipeline.tasks.custom_data import open_model_data
from ltp_pipeline.tasks.custom_task import CustomTaskAdapter
from ltp_pipeline.tasks.distillation import DistillationTask
from ltp_pipeline.tasks.infer import infer_task
from ltp_pipeline.tasks.positions import ClassMapTask
from ltp_pipeline.tasks.protocol import ComputeOutputs, Task

INSPECTED_SAMPLES = 64  # samples that show whether values are whole numbers
MIN_BRIGHT_BYTE = 200  # bytes with such a maximum are pixels of the full range
MAX_TRIALS = 32  # combinations of layouts, or of scales, with several inputs of images
IGNORED_LABELS = (255, -1)  # labels that often mark positions without a class


@dataclass(frozen=True)
class SearchResult:
    """Settings under which the original works best.

    Attributes:
        trial: The original with these settings.
        unscaled_value: Metric without scales; None if no scale was tried.
        scaled_trials: The best trial with a scale for each input of pixels that has none.
        other_outputs: Metrics of further outputs that fit the labels.
        reordered: The trial with classes in another order, if that is clearly better.
    """

    trial: Trial
    unscaled_value: float | None = None
    scaled_trials: Mapping[str, Trial] = field(default_factory=dict)
    other_outputs: Mapping[str, float | None] = field(default_factory=dict)
    reordered: Trial | None = None


class TrialError(InputError):
    """An error while settings are tried, with the number of steps that succeeded before."""

    def __init__(self, error: InputError, num_steps: int) -> None:
        super().__init__(error.message, error.hint)
        self.error = error
        self.num_steps = num_steps


def search_settings(file: ModelFile, session: Session, settings: Settings) -> SearchResult:
    """Return the settings of data and task under which the original is best.

    Settings of the user are kept.

    Args:
        file: The model.
        session: The model in onnxruntime.
        settings: Settings of the user.

    Raises:
        InputError: No settings work. The error is that of the trial that came furthest.
    """
    search = _SettingsSearch(file, session, settings)
    results: list[SearchResult] = []
    errors: list[TrialError] = []
    for layouts in search.iter_layouts():
        try:
            results.append(search.try_layouts(layouts))
        except TrialError as error:
            errors.append(error)
    if not results:
        raise max(errors, key=lambda error: error.num_steps).error from None
    return _select_result(results)


def evaluate_custom_task(
    file: ModelFile, session: Session, custom: CustomTask, settings: Settings
) -> SearchResult:
    """Return the original evaluated by the user's own task, whose loss is called as a check."""
    import torch

    data = open_model_data(file, settings.data, 0, custom_task=custom)
    shapes = session.infer_output_shapes(data.test)
    distillation, data = infer_task(data, file.model.graph, shapes, PROBE_SAMPLES, settings.task)
    assert isinstance(distillation, DistillationTask)  # noqa: S101 - the data have no labels
    task = CustomTaskAdapter(custom, distillation).without_interval
    batch = data.train.read_first(PROBE_SAMPLES)
    outputs = _make_compute(session, task)(batch.inputs)
    task.check_functions([torch.from_numpy(output) for output in outputs], batch)
    trial = Trial(data, task, settings.task, data.val, {})
    return SearchResult(trial.evaluate(partial(_make_compute, session)))


def _select_result(results: Sequence[SearchResult]) -> SearchResult:
    """Return the result whose trial `select_best` selects."""
    best = select_best([result.trial for result in results])
    return next(result for result in results if result.trial is best)


def _make_compute(session: Session, task: Task) -> ComputeOutputs:
    """Return what computes the outputs of a task in onnxruntime."""
    session.positions = [output.position for output in task.outputs]
    return session.compute_outputs


class _SettingsSearch:
    """The search for settings of one model."""

    def __init__(self, file: ModelFile, session: Session, settings: Settings) -> None:
        self.file = file
        self.session = session
        self.make_compute = partial(_make_compute, session)
        self.data_settings = settings.data
        self.task_settings = settings.task

    def iter_layouts(self) -> Iterator[InputChanges]:
        """Yield layouts of inputs: all channels first, then combinations with channels last."""
        names = [info.name for info in self.file.inputs if len(info.shape or ()) == 4]
        names = [name for name in names if self._is_open(name, "layout")]
        for choice in islice(product((False, True), repeat=len(names)), MAX_TRIALS):
            chosen = zip(names, choice, strict=True)
            yield {name: {"layout": "NHWC"} for name, is_last in chosen if is_last}

    def try_layouts(self, layouts: InputChanges) -> SearchResult:
        """Return the best result with these layouts, over outputs and scales."""
        results = [self._try_scales(trial) for trial in self._try_outputs(layouts)]
        result = _select_result(results)
        best = result.trial
        others = [other.trial for other in results if other.trial is not best]
        if not all(best.is_clearly_better_than(other) for other in others):
            # Without a clear winner, raise an error if `run` would ask for the output.
            self._open_trial(layouts, best.task_settings.model_copy(update={"output": None}))
        reordered = reorder_classes(best, self.data_settings)
        is_better = reordered is not None and reordered.is_clearly_better_than(best)
        return SearchResult(
            best,
            result.unscaled_value,
            result.scaled_trials,
            {other.task.outputs[0].name: other.value for other in others},
            reordered if is_better else None,
        )

    def _is_open(self, name: str, key: str) -> bool:
        """Return True if the user left a setting of an input open."""
        own = self.data_settings.inputs.get(name)
        is_own = own is not None and key in own.model_fields_set
        return not is_own and key not in self.data_settings.model_fields_set

    def _try_outputs(self, layouts: InputChanges) -> list[Trial]:
        """Return a trial for each output that fits the labels, or one if the output is known."""
        names = [output.name for output in self.file.model.graph.output]
        trials: list[Trial] = []
        if len(names) > 1 and self.task_settings.output is None:
            for name in names:
                task_settings = self.task_settings.model_copy(update={"output": name})
                try:
                    trial = self._complete_trial(layouts, task_settings)
                except TrialError:
                    continue
                if trial.task.is_relative:  # without labels, all outputs are compared together
                    break
                trials.append(trial)
        return trials or [self._complete_trial(layouts, self.task_settings)]

    def _complete_trial(self, inputs: InputChanges, task_settings: TaskSettings) -> Trial:
        """Return a trial; if it fails, try with a target column or with an ignored label."""
        try:
            return self._open_trial(inputs, task_settings)
        except TrialError as failed:
            if isinstance(failed.error, UnusedColumnError):
                return self._try_target(inputs, task_settings, failed.error)
            return self._try_ignored_labels(inputs, task_settings, failed)

    def _try_target(
        self, inputs: InputChanges, task_settings: TaskSettings, failed: UnusedColumnError
    ) -> Trial:
        """Return a trial with the only column that no input takes as target."""
        if len(failed.names) != 1:
            raise TrialError(failed, 0)
        (name,) = failed.names
        try:
            return self._complete_trial(inputs, task_settings.model_copy(update={"target": name}))
        except TrialError as error:
            message = f"{error.message}; {name!r}, which no input takes, was read as labels"
            raise TrialError(InputError(message, error.hint), error.num_steps) from None

    def _try_ignored_labels(
        self, inputs: InputChanges, task_settings: TaskSettings, failed: TrialError
    ) -> Trial:
        """Return a trial that works with one label ignored, or raise the error from before."""
        labels = () if "ignore_index" in self.task_settings.model_fields_set else IGNORED_LABELS
        for label in labels:
            try:
                trial = self._open_trial(
                    inputs, task_settings.model_copy(update={"ignore_index": label})
                )
            except TrialError:
                continue
            # If only one class would be left, the label is the second class.
            if isinstance(trial.task, ClassMapTask):
                counts = trial.task.count_labels(trial.data.train)
                if np.count_nonzero(counts) > 1:
                    return trial
        raise failed

    def _open_trial(self, inputs: InputChanges, task_settings: TaskSettings) -> Trial:
        """Open the data with these settings and evaluate the original, or raise TrialError."""
        values = self.data_settings.model_dump(exclude_unset=True)
        # Settings of an only input stand directly in [data].
        changed: Mapping[str, Any] = next(iter(inputs.values()), {})
        merge_tables(values, {"inputs": inputs} if len(self.file.inputs) > 1 else changed)
        num_steps = 0
        try:
            data = open_model_data(self.file, DataSettings(**values), 0, task_settings)
            num_steps = 1
            shapes = self.session.infer_output_shapes(data.test)
            num_steps = 2
            task, data = infer_task(
                data, self.file.model.graph, shapes, PROBE_SAMPLES, task_settings
            )
            trial = Trial(data, task, task_settings, data.val, inputs)
            return trial.evaluate(self.make_compute)
        except InputError as error:
            raise TrialError(error, num_steps) from None

    def _try_scales(self, unscaled: Trial) -> SearchResult:
        """Return the trial with scales for inputs of pixels.

        Bytes of the full range are scaled to 1 unless the original is clearly better without.
        Other values are scaled if the original is clearly better with it.
        """
        maxima: dict[str, float] = {}
        bright: dict[str, float] = {}
        for name, recipe in describe_inputs(unscaled.data).items():
            stored = recipe.stored
            if stored is None or stored.range is None or not self._is_open(name, "scale"):
                continue
            if _is_pixels(unscaled, name, recipe):
                maxima[name] = stored.range[1]
                if stored.type == "uint8" and maxima[name] >= MIN_BRIGHT_BYTE:
                    bright[name] = 1 / MAX_BYTE
        usual = unscaled.with_scales(bright).evaluate(self.make_compute) if bright else unscaled
        if unscaled.value is None:  # without labels nothing tells which scale is right
            return SearchResult(usual)
        options = [dict.fromkeys([None, 1 / MAX_BYTE, 1 / high]) for high in maxima.values()]
        combinations = sorted(product(*options), key=lambda c: len(c) - c.count(None))
        trials = []
        for combination in combinations[:MAX_TRIALS]:
            chosen = zip(maxima, combination, strict=True)
            scales = {name: scale for name, scale in chosen if scale is not None}
            if scales:
                trials.append(unscaled.with_scales(scales).evaluate(self.make_compute))
        best = select_best([usual, unscaled, *trials])
        scaled_trials = {}
        for name in maxima:
            scaled = [trial for trial in trials if "scale" in trial.inputs.get(name, {})]
            if scaled and "scale" not in best.inputs.get(name, {}):
                scaled_trials[name] = max(scaled, key=lambda trial: trial.value or -math.inf)
        return SearchResult(best, unscaled.value, scaled_trials)


def _is_pixels(trial: Trial, name: str, recipe: InputRecipe) -> bool:
    """Return True if an input of floats is stored as non-negative whole numbers beyond 1."""
    stored = recipe.stored
    if stored is None or recipe.mask_of is not None or np.dtype(recipe.type).kind != "f":
        return False
    low, high = stored.range or (0, 0)
    if low < 0 or high <= 1:
        return False
    has_axes = len(stored.shape or ()) > 1
    if np.dtype(stored.type).kind in "iu":
        return has_axes or stored.type == "uint8"
    test = trial.data.test
    values = test.inputs[name].samples.take(test.rows[:INSPECTED_SAMPLES])
    return has_axes and bool((values == np.rint(values)).all())
