"""Which task labels mean, told from their shape and type and from what the outputs look like."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ltp_pipeline.errors import InputError
from ltp_pipeline.task import TARGET, Output
from ltp_pipeline.tasks.classification import Classification
from ltp_pipeline.tasks.label_checks import check_classes, check_multi_hot, is_one_hot
from ltp_pipeline.tasks.multilabel import Multilabel
from ltp_pipeline.tasks.outputs import SIGMOID, SOFTMAX, is_score, makers
from ltp_pipeline.tasks.positions import ClassMap, Positions
from ltp_pipeline.tasks.regression import Regression
from ltp_pipeline.tasks.segmentation import Segmentation

if TYPE_CHECKING:
    from onnx import GraphProto, ValueInfoProto

    from ltp_pipeline.config import TaskKind, TaskSettings
    from ltp_pipeline.data import Data
    from ltp_pipeline.data.samples import Samples
    from ltp_pipeline.tasks.labelled import Labelled

SPREAD_SAMPLES = 10_000  # by which the spread of targets is told


class Candidate(NamedTuple):
    """An output that could be meant: its shape without the samples, and the kind of node that makes it."""

    position: int
    name: str
    shape: tuple[int, ...]
    maker: str
    open_axes: frozenset[int] = frozenset()  # whose size the graph leaves open: no classes


class Wanted(NamedTuple):
    """What is known of the labels: the shape of a sample's, without axes of size 1, and their type."""

    samples: Samples
    shape: tuple[int | None, ...]
    is_whole: bool
    data: Data

    @classmethod
    def of(cls, data: Data) -> Wanted:
        """Of a data set with labels."""
        samples = data.train.targets[TARGET]
        shape = tuple(n for n in samples.shape if n != 1)
        return cls(samples, shape, samples.dtype.kind in "biu", data)


def of_labels(
    data: Data,
    graph: GraphProto,
    shapes: Sequence[tuple[int, ...] | None],
    samples: int,
    settings: TaskSettings,
) -> Labelled:
    """The task of a model whose data have labels; an error where none can be told, or labels do not fit."""
    target = Wanted.of(data)
    made = makers(graph)
    outputs = [
        Candidate(i, graph.output[i].name, shape[1:], made[i], _open_axes(graph.output[i]))
        for i, shape in enumerate(shapes)
        if shape and shape[0] == samples and settings.output in (None, graph.output[i].name)
    ]
    names = ", ".join(repr(o.name) for o in graph.output)
    if settings.output is not None and not outputs:
        what = f"output {settings.output!r} is no output of numbers with a row per sample"
        raise InputError(what, f"name one under [task]: {names}")
    fitting = [
        (o, kind) for o in outputs for kind in [settings.kind or told(target, o)] if kind and FITS[kind](target, o)
    ]
    if not fitting:
        raise InputError(
            f"no output fits labels of {_words(target)}: {_shown(outputs) or names}",
            _remedy(target, outputs, settings.kind),
        )
    first = fitting[0]
    if first[0].position and len(fitting) > 1:
        listed = _shown([output for output, _ in fitting])
        raise InputError(f"several outputs fit the labels: {listed}", 'say which is meant: output = "…" under [task]')
    return MAKE[first[1]](target, first[0], settings)


def told(target: Wanted, output: Candidate) -> TaskKind | None:
    """What labels mean beside an output; None where they do not go together."""
    if target.shape == ():
        if target.is_whole and is_score((1, *output.shape), 1):
            return "classify"
        if _values(output) != 1:
            return None
        if not target.is_whole:
            return "regress"
        if target.data.classes is not None and target.data.classes <= 2:
            return "classify" if output.maker in SIGMOID else None  # a number or a class: nothing tells
        return "regress"
    if target.is_whole and _class_axis(target, output) is not None:
        return "classify" if len(target.shape) == 1 else "segment"
    if _same_size(target, output):
        return "multilabel" if _is_multi_hot(target) else "regress"
    return None


def _open_axes(output: ValueInfoProto) -> frozenset[int]:
    dims = output.type.tensor_type.shape.dim
    return frozenset(axis for axis, dim in enumerate(dims) if not dim.HasField("dim_value"))


def _values(output: Candidate) -> int:
    return int(np.prod(output.shape, dtype=np.int64))


def _same_size(target: Wanted, output: Candidate) -> bool:
    return None not in target.shape and _values(output) == int(np.prod([n or 1 for n in target.shape]))


def _class_axis(target: Wanted, output: Candidate) -> int | None:
    """Where an output has classes beside the axes of the labels; tokens have them last, images first.

    Labels of uneven length fit any axis: the classes are not on one that the graph leaves open, or that has the length
    to which sequences are filled up.
    """
    if len(output.shape) != len(target.shape) + 1:
        return None
    axes: tuple[int, ...] = (len(output.shape), 1) if len(target.shape) == 1 else (1, len(output.shape))
    if None in target.shape:
        widths = {source.samples.shape[0] for source in target.data.train.inputs.values() if source.samples.shape}
        axes = tuple(sorted(axes, key=lambda axis: axis in output.open_axes or output.shape[axis - 1] in widths))
    for axis in axes:
        positions = (*output.shape[: axis - 1], *output.shape[axis:])
        alike = all(n is None or n == m for n, m in zip(target.shape, positions, strict=True))
        if alike and output.shape[axis - 1] >= 2:
            return axis
    return None


def _is_multi_hot(target: Wanted) -> bool:
    if len(target.shape) != 1 or target.shape[0] is None:
        return False
    first = target.data.train.first(SPREAD_SAMPLES).targets[TARGET]
    return bool(((first == 0) | (first == 1)).all()) and not is_one_hot(first)


def _fits_classify(target: Wanted, output: Candidate) -> bool:
    if target.shape == ():
        return target.is_whole and (is_score((1, *output.shape), 1) or _values(output) == 1)
    return target.is_whole and len(target.shape) == 1 and _class_axis(target, output) is not None


def _fits_segment(target: Wanted, output: Candidate) -> bool:
    return target.is_whole and len(target.shape) >= 2 and _class_axis(target, output) is not None


FITS: dict[str, Callable[[Wanted, Candidate], bool]] = {
    "classify": _fits_classify,
    "multilabel": lambda target, output: len(target.shape) == 1 and _same_size(target, output),
    "regress": _same_size,
    "segment": _fits_segment,
}


def _classify(target: Wanted, output: Candidate, settings: TaskSettings) -> Labelled:
    if target.shape:
        return _class_map(Positions, target, output, settings)
    single = _values(output) == 1
    classes = 2 if single else output.shape[0]
    check_classes(target.data, classes)
    probability = output.maker in (SIGMOID if single else SOFTMAX)
    return Classification(_output(output, "scores"), classes=classes, is_probability=probability, is_single=single)


def _class_map(kind: type[ClassMap], target: Wanted, output: Candidate, settings: TaskSettings) -> ClassMap:
    axis = _class_axis(target, output)
    assert axis is not None  # noqa: S101 - whoever asks has looked
    classes = output.shape[axis - 1]
    check_classes(target.data, classes, settings.ignored_label)
    return kind(
        _output(output, "values"),
        classes=classes,
        axis=axis,
        is_probability=output.maker in SOFTMAX,
        ignored=settings.ignored_label,
    )


def _segment(target: Wanted, output: Candidate, settings: TaskSettings) -> Labelled:
    return _class_map(Segmentation, target, output, settings)


def _multilabel(target: Wanted, output: Candidate, settings: TaskSettings) -> Labelled:
    del settings
    check_multi_hot(target.data)
    return Multilabel(_output(output, "values"), is_probability=output.maker in SIGMOID)


def _regress(target: Wanted, output: Candidate, settings: TaskSettings) -> Labelled:
    first = target.data.train.first(SPREAD_SAMPLES).targets[TARGET].astype(np.float64)
    spread = float(first.std())
    if not spread > 0:
        raise InputError("all targets are the same number", "give targets that vary")
    return Regression(_output(output, "values"), spread=spread, kind=settings.error)


MAKE: dict[str, Callable[[Wanted, Candidate, TaskSettings], Labelled]] = {
    "classify": _classify,
    "multilabel": _multilabel,
    "regress": _regress,
    "segment": _segment,
}


def _output(found: Candidate, kind: str) -> Output:
    return Output(found.position, found.name, "scores" if kind == "scores" else "values")


def _words(target: Wanted) -> str:
    shape = "×".join("?" if n is None else str(n) for n in target.shape)
    kind = "whole numbers" if target.is_whole else "numbers"
    return f"{shape} {kind} a sample" if shape else f"one {kind.removesuffix('s')} a sample"


def _shown(outputs: Sequence[Candidate]) -> str:
    return ", ".join(f"{o.name!r} of shape {'×'.join(map(str, o.shape)) or '()'} a sample" for o in outputs)


def _remedy(target: Wanted, outputs: Sequence[Candidate], kind: str | None) -> str:
    if target.shape and len(target.shape) == 1 and is_one_hot(target.data.train.first(SPREAD_SAMPLES).targets[TARGET]):
        return 'give class numbers: argmax(axis=1) of these one-hot rows; or write kind = "multilabel" under [task]'
    if kind is not None:
        return f'give labels for kind = "{kind}" under [task], or another kind'
    if target.shape == () and any(_values(o) == 1 for o in outputs):
        return 'say what they mean: kind = "classify" or "regress" under [task]'
    return (
        'give labels that the model was trained for, or write kind = "imitate" under [task] to learn from the '
        "original's own outputs (docs/tasks.md)"
    )
