"""Which task labels mean, told from their shape and type and from what the outputs look like."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ltp_pipeline.errors import InputError
from ltp_pipeline.tasks.classification import ClassificationTask
from ltp_pipeline.tasks.fitting import (
    LabelSpec,
    OutputSpec,
    class_axis,
    class_numbers,
    is_class_map,
    is_mask,
    is_single,
    is_zero_or_one,
    open_axes,
    same_size,
    values,
)
from ltp_pipeline.tasks.labels import check_classes, check_multi_hot, check_one_hot, is_one_hot
from ltp_pipeline.tasks.multilabel import MultilabelTask
from ltp_pipeline.tasks.outputs import SIGMOID, SOFTMAX, find_producers, has_score_shape
from ltp_pipeline.tasks.positions import ClassMapTask, PositionTask
from ltp_pipeline.tasks.protocol import TaskOutput
from ltp_pipeline.tasks.regression import RegressionTask
from ltp_pipeline.tasks.segmentation import SegmentationTask

if TYPE_CHECKING:
    from onnx import GraphProto

    from ltp_pipeline.data.dataset import DatasetSplits
    from ltp_pipeline.settings.schema import TaskKind, TaskSettings
    from ltp_pipeline.tasks.supervised import SupervisedTask


def of_labels(
    data: DatasetSplits,
    graph: GraphProto,
    shapes: Sequence[tuple[int, ...] | None],
    samples: int,
    settings: TaskSettings,
) -> SupervisedTask:
    """The task of a model whose data have labels; an error where none can be told, or labels do not fit."""
    target = LabelSpec.of(data)
    made = find_producers(graph)
    outputs = [
        OutputSpec(i, graph.output[i].name, shape[1:], made[i], open_axes(graph.output[i]))
        for i, shape in enumerate(shapes)
        if shape and shape[0] == samples and settings.output in (None, graph.output[i].name)
    ]
    names = ", ".join(repr(o.name) for o in graph.output)
    if settings.output is not None and not outputs:
        what = f"output {settings.output!r} is no output of numbers with a row per sample"
        raise InputError(what, f"name one under [task]: {names}")
    if not outputs:
        found = _shown(
            [
                OutputSpec(i, graph.output[i].name, shape, "")
                for i, shape in enumerate(shapes)
                if shape
            ]
        )
        raise InputError(
            f"no output has a row for each of {samples} samples: {found or names}",
            "samples must lie on the first axis of inputs and outputs; export the model so",
        )
    read = [(class_numbers(target, o, settings.kind), o) for o in outputs]
    fitting = [
        (t, o, kind)
        for t, o in read
        for kind in [settings.kind or infer_task_kind(t, o)]
        if kind and FITS[kind](t, o)
    ]
    if not fitting:
        raise InputError(
            f"no output fits labels of {_words(target)}: {_shown(outputs) or names}",
            _remedy(target, outputs, settings.kind),
        )
    labels, output, kind = fitting[0]
    if output.position and len(fitting) > 1:
        listed = _shown([o for _, o, _ in fitting])
        raise InputError(
            f"several outputs fit the labels: {listed}",
            'say which is meant: output = "…" under [task]',
        )
    return MAKE[kind](labels, output, settings)


def infer_task_kind(target: LabelSpec, output: OutputSpec) -> TaskKind | None:
    """What labels mean beside an output; None where they do not go together."""
    squashed = output.maker in SIGMOID
    if target.shape == ():
        if target.is_whole and has_score_shape((1, *output.shape), 1):
            return "classification"
        if values(output) != 1:
            return None
        if not target.is_whole:
            return "regression"
        if squashed:
            return "classification"
        is_either = target.data.num_classes is not None and target.data.num_classes <= 2
        return None if is_either else "regression"  # a number or a class: nothing tells
    of_maps = len(target.shape) > 1
    if target.is_whole and class_axis(target, output) is not None:
        return "segmentation" if of_maps else "classification"
    if (
        target.is_whole
        and squashed
        and (of_maps or None in target.shape)
        and is_single(target, output)
    ):
        return "segmentation" if of_maps else "classification"
    if not same_size(target, output):
        return None
    if of_maps:
        return None if is_mask(target, output) else "regression"
    return (
        "multilabel" if is_zero_or_one(target) or (target.is_whole and squashed) else "regression"
    )


def _fits_classify(target: LabelSpec, output: OutputSpec) -> bool:
    if target.shape == ():
        return target.is_whole and (has_score_shape((1, *output.shape), 1) or values(output) == 1)
    return target.is_whole and len(target.shape) == 1 and is_class_map(target, output)


def _fits_segment(target: LabelSpec, output: OutputSpec) -> bool:
    return target.is_whole and len(target.shape) >= 2 and is_class_map(target, output)


FITS: dict[str, Callable[[LabelSpec, OutputSpec], bool]] = {
    "classification": _fits_classify,
    "multilabel": lambda target, output: len(target.shape) == 1 and same_size(target, output),
    "regression": same_size,
    "segmentation": _fits_segment,
}


def _classify(target: LabelSpec, output: OutputSpec, settings: TaskSettings) -> SupervisedTask:
    if target.shape:
        return _class_map(PositionTask, target, output, settings)
    single = values(output) == 1
    classes = 2 if single else output.shape[0]
    if target.one_hot is None:
        check_classes(target.data, classes)
    else:
        check_one_hot(target.data, target.one_hot)
    return ClassificationTask(
        _output(output, "values" if single else "scores"),
        classes=classes,
        is_probability=output.maker in (SIGMOID if single else SOFTMAX),
        is_single=single,
        one_hot=target.one_hot,
    )


def _class_map(
    kind: type[ClassMapTask], target: LabelSpec, output: OutputSpec, settings: TaskSettings
) -> ClassMapTask:
    axis = class_axis(target, output)
    classes = 2 if axis is None else output.shape[axis - 1]
    if target.one_hot is None:
        check_classes(target.data, classes, settings.ignore_index)
    else:
        check_one_hot(target.data, target.one_hot)
    return kind(
        _output(output, "values"),
        classes=classes,
        axis=-1 if axis is None else axis,
        is_probability=output.maker in (SIGMOID if axis is None else SOFTMAX),
        is_single=axis is None,
        ignored=settings.ignore_index,
        one_hot=target.one_hot,
    )


def _segment(target: LabelSpec, output: OutputSpec, settings: TaskSettings) -> SupervisedTask:
    return _class_map(SegmentationTask, target, output, settings)


def _multilabel(target: LabelSpec, output: OutputSpec, settings: TaskSettings) -> SupervisedTask:
    del settings
    check_multi_hot(target.data)
    return MultilabelTask(_output(output, "values"), is_probability=output.maker in SIGMOID)


def _regress(target: LabelSpec, output: OutputSpec, settings: TaskSettings) -> SupervisedTask:
    spread = float(target.some.astype(np.float64).std())
    if not spread > 0:
        raise InputError("all targets are the same number", "give targets that vary")
    return RegressionTask(_output(output, "values"), spread=spread, kind=settings.loss)


MAKE: dict[str, Callable[[LabelSpec, OutputSpec, TaskSettings], SupervisedTask]] = {
    "classification": _classify,
    "multilabel": _multilabel,
    "regression": _regress,
    "segmentation": _segment,
}


def _output(found: OutputSpec, kind: str) -> TaskOutput:
    return TaskOutput(found.position, found.name, "scores" if kind == "scores" else "values")


def _words(target: LabelSpec) -> str:
    shape = "×".join("?" if n is None else str(n) for n in target.shape)
    kind = "whole numbers" if target.is_whole else "numbers"
    return f"{shape} {kind} a sample" if shape else f"one {kind.removesuffix('s')} a sample"


def _shown(outputs: Sequence[OutputSpec]) -> str:
    return ", ".join(
        f"{o.name!r} of shape {'×'.join(map(str, o.shape)) or '()'} a sample" for o in outputs
    )


def _remedy(target: LabelSpec, outputs: Sequence[OutputSpec], kind: str | None) -> str:
    if len(target.shape) == 1 and target.shape[0] is not None and is_one_hot(target.some, -1):
        return 'give class numbers: argmax(axis=1) of these one-hot rows; or write kind = "multilabel" under [task]'
    if kind is not None:
        return f'give labels for kind = "{kind}" under [task], or another kind'
    if target.shape == () and any(values(o) == 1 for o in outputs):
        return 'say what they mean: kind = "classification" or "regression" under [task]'
    if len(target.shape) > 1 and any(is_mask(target, o) for o in outputs):
        return 'say what they mean: kind = "segmentation" or "regression" under [task]'
    return (
        'give labels that the model was trained for, or write kind = "distillation" under [task] to learn from the '
        "original's own outputs (docs/tasks.md)"
    )
