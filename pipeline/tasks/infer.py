"""Infer which task a model and its data are for, from shapes and values of labels and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ltp_pipeline.data.dataset import DatasetSplits
from ltp_pipeline.errors import InputError
from ltp_pipeline.settings.schema import DistillOutputs, TaskKind, TaskSettings
from ltp_pipeline.tasks.classification import ClassificationTask
from ltp_pipeline.tasks.distillation import DistillationTask
from ltp_pipeline.tasks.labels import (
    check_class_numbers,
    check_multi_hot,
    check_one_hot,
    convert_one_hot,
    is_one_hot,
)
from ltp_pipeline.tasks.multilabel import MultilabelTask
from ltp_pipeline.tasks.positions import PositionTask
from ltp_pipeline.tasks.protocol import Task, TaskOutput
from ltp_pipeline.tasks.regression import RegressionTask
from ltp_pipeline.tasks.segmentation import SegmentationTask
from ltp_pipeline.tasks.shapes import (
    SIGMOID,
    SOFTMAX,
    LabelSpec,
    OutputSpec,
    Shapes,
    detect_one_hot,
    find_class_axis,
    find_outputs,
    has_equal_size,
    has_score_shape,
    has_single_scores,
    is_binary_mask,
    is_class_map,
)
from ltp_pipeline.tasks.supervised import SupervisedTask

if TYPE_CHECKING:
    from onnx import GraphProto


def infer_task(
    data: DatasetSplits,
    graph: GraphProto,
    shapes: Shapes,
    num_samples: int,
    settings: TaskSettings,
    outputs_as: DistillOutputs = "auto",
) -> tuple[Task, DatasetSplits]:
    """Return the task that labels and outputs stand for, or distillation if there are no labels.

    Args:
        data: The data set.
        graph: The model.
        shapes: Shapes of all outputs for some samples.
        num_samples: Number of these samples.
        settings: `[task]` of the settings.
        outputs_as: `train.distill_outputs_as` of the settings.

    Returns:
        The task, and the data with one-hot labels converted to class numbers.

    Raises:
        InputError: No output or several outputs fit the labels, or labels are out of range.
    """
    if not data.has_labels or settings.kind == "distillation":
        task = DistillationTask.from_graph(graph, shapes, num_samples, outputs_as, settings.output)
        return task, data
    labels = LabelSpec.from_data(data)
    outputs = _select_outputs(graph, shapes, num_samples, settings)
    labels, output, kind = _match_output(labels, outputs, settings)
    if labels.one_hot_axis is not None:
        axis = labels.stored_axis(labels.one_hot_axis)
        check_one_hot(data, axis)
        data = convert_one_hot(data, axis)
        labels = labels._replace(data=data)
    return _make_task(labels, output, kind, settings), data


def _select_outputs(
    graph: GraphProto, shapes: Shapes, num_samples: int, settings: TaskSettings
) -> list[OutputSpec]:
    """Return the outputs with a row per sample, or only the one that the settings name."""
    outputs = find_outputs(graph, shapes, num_samples, settings.output)
    if outputs:
        return outputs
    names = ", ".join(repr(info.name) for info in graph.output)
    if settings.output is not None:
        raise InputError(
            f"[task] output = {settings.output!r} is not a floating-point output with a row per "
            "sample",
            f"set output in [task] to one of {names}",
        )
    raise InputError(
        f"no output of the model has a row for each of {num_samples} samples: {names}",
        "export the model so that axis 0 of its inputs and outputs counts the samples",
    )


def _match_output(
    labels: LabelSpec, outputs: Sequence[OutputSpec], settings: TaskSettings
) -> tuple[LabelSpec, OutputSpec, TaskKind]:
    """Return labels, output and kind of task of the first output that fits the labels.

    The output at position 0 wins over others. Several others that fit are an error.
    """
    matches = []
    for output in outputs:
        candidate = detect_one_hot(labels, output, settings.kind)
        kind = settings.kind or infer_task_kind(candidate, output)
        if kind is not None and _fits_kind(kind, candidate, output):
            matches.append((candidate, output, kind))
    if not matches:
        raise InputError(
            f"the labels have {_describe_labels(labels)}, and no output fits: "
            f"{_describe_outputs(outputs)}",
            _suggest_fix(labels, outputs, settings.kind),
        )
    if len(matches) > 1 and matches[0][1].position > 0:
        fitting = [output for _, output, _ in matches]
        raise InputError(
            f"several outputs fit the labels: {_describe_outputs(fitting)}",
            f'name the one that the labels belong to: output = "{fitting[0].name}" in [task]',
        )
    return matches[0]


def infer_task_kind(labels: LabelSpec, output: OutputSpec) -> TaskKind | None:
    """Return the kind of task that labels and an output stand for; None if that is unclear."""
    is_map = len(labels.shape) > 1
    if labels.shape == ():
        return _infer_number_kind(labels, output)
    if labels.is_whole and find_class_axis(labels, output) is not None:
        return "segmentation" if is_map else "classification"
    is_squashed = output.producer in SIGMOID
    if labels.is_whole and is_squashed and has_single_scores(labels, output):
        if is_map:
            return "segmentation"
        if None in labels.shape:
            return "classification"
    if not has_equal_size(labels, output):
        return None
    if is_map:
        return None if is_binary_mask(labels, output) else "regression"
    if labels.is_binary or (labels.is_whole and is_squashed):
        return "multilabel"
    return "regression"


def _infer_number_kind(labels: LabelSpec, output: OutputSpec) -> TaskKind | None:
    """Return the kind of task of labels that are one number per sample; None if unclear."""
    if labels.is_whole and has_score_shape(output.shape):
        return "classification"
    if output.size != 1:
        return None
    if not labels.is_whole:
        return "regression"
    if output.producer in SIGMOID:
        return "classification"
    # Labels 0 and 1 next to one unbounded output are numbers or classes: nothing tells which.
    num_classes = labels.data.num_classes
    return None if num_classes is not None and num_classes <= 2 else "regression"


def _fits_kind(kind: TaskKind, labels: LabelSpec, output: OutputSpec) -> bool:
    """Return True if labels and output have shapes that this kind of task can take."""
    num_axes = len(labels.shape)
    if kind == "multilabel":
        return num_axes == 1 and has_equal_size(labels, output)
    if kind == "regression":
        return has_equal_size(labels, output)
    if not labels.is_whole:
        return False
    if kind == "segmentation":
        return num_axes >= 2 and is_class_map(labels, output)
    if num_axes == 0:
        return has_score_shape(output.shape) or output.size == 1
    return num_axes == 1 and is_class_map(labels, output)


def _make_task(
    labels: LabelSpec, output: OutputSpec, kind: TaskKind, settings: TaskSettings
) -> SupervisedTask:
    """Return the task; raise InputError if the labels are out of its range."""
    task_output = TaskOutput(output.position, output.name, "values")
    if kind == "regression":
        target_std = float(labels.values.astype(np.float64).std())
        if not target_std > 0:
            raise InputError(
                "all targets are the same number",
                "pass targets that vary, or name their column: target in [task]",
            )
        return RegressionTask(task_output, target_std=target_std, error=settings.loss)
    if kind == "multilabel":
        check_multi_hot(labels.data)
        return MultilabelTask(task_output, is_probability=output.producer in SIGMOID)
    axis = 1 if output.size > 1 else None
    if labels.shape:
        axis = find_class_axis(labels, output)
    is_single = axis is None
    scores: dict[str, Any] = {
        "num_classes": 2 if axis is None else output.shape[axis - 1],
        "axis": axis or 1,
        "is_probability": output.producer in (SIGMOID if is_single else SOFTMAX),
        "is_single": is_single,
    }
    if not labels.shape:
        check_class_numbers(labels.data, scores["num_classes"])
        if not is_single:
            task_output = replace(task_output, kind="scores")
        return ClassificationTask(task_output, **scores)
    check_class_numbers(labels.data, scores["num_classes"], settings.ignore_index)
    task_class = SegmentationTask if kind == "segmentation" else PositionTask
    return task_class(task_output, **scores, ignore_index=settings.ignore_index)


def _describe_labels(labels: LabelSpec) -> str:
    """Return shape and type of a label for a message."""
    numbers = "whole number" if labels.is_whole else "number"
    if not labels.shape:
        return f"one {numbers} per sample"
    shape = "×".join("?" if size is None else str(size) for size in labels.shape)
    return f"{shape} {numbers}s per sample"


def _describe_outputs(outputs: Sequence[OutputSpec]) -> str:
    """Return names and shapes of outputs for a message."""
    shapes = ("×".join(map(str, output.shape)) or "()" for output in outputs)
    parts = [f"{o.name!r} has shape {s} per sample" for o, s in zip(outputs, shapes, strict=True)]
    return ", ".join(parts)


def _suggest_fix(labels: LabelSpec, outputs: Sequence[OutputSpec], kind: TaskKind | None) -> str:
    """Return the hint for labels that no output fits."""
    is_row = len(labels.shape) == 1 and labels.shape[0] is not None
    if is_row and is_one_hot(labels.values, -1):
        return (
            "store class numbers, argmax(axis=1) of these one-hot rows; or set "
            'kind = "multilabel" in [task]'
        )
    if kind is not None:
        return f'pass labels for kind = "{kind}", or set another kind in [task]'
    if not labels.shape and any(output.size == 1 for output in outputs):
        return 'set kind in [task]: "classification" or "regression"'
    if len(labels.shape) > 1 and any(is_binary_mask(labels, output) for output in outputs):
        return 'set kind in [task]: "segmentation" or "regression"'
    return (
        "pass the labels that the model was trained for, or set "
        'kind = "distillation" in [task] to train without labels'
    )
