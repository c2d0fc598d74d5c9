"""Labels beside an output: what is known of both, and how their shapes go together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ltp_pipeline.data.dataset import TARGET
from ltp_pipeline.tasks.labels import is_one_hot
from ltp_pipeline.tasks.outputs import SIGMOID

if TYPE_CHECKING:
    from onnx import ValueInfoProto

    from ltp_pipeline.data.dataset import DatasetSplits
    from ltp_pipeline.settings.schema import TaskKind
    from ltp_pipeline.system.arrays import Array


class OutputSpec(NamedTuple):
    """An output that could be meant: its shape without the samples, and the kind of node that makes it."""

    position: int
    name: str
    shape: tuple[int, ...]
    maker: str
    open_axes: frozenset[int] = frozenset()  # whose size the graph leaves open: no classes


def open_axes(output: ValueInfoProto) -> frozenset[int]:
    """The axes of an output whose size the graph leaves open."""
    dims = output.type.tensor_type.shape.dim
    return frozenset(axis for axis, dim in enumerate(dims) if not dim.HasField("dim_value"))


class LabelSpec(NamedTuple):
    """What is known of the labels: the shape of a sample's, without axes of size 1, and whether they are whole.

    Of one-hot labels it is the shape of the class numbers that they mean, and `hot` the axis that they lose.
    """

    shape: tuple[int | None, ...]
    is_whole: bool
    data: DatasetSplits
    hot: int | None = None

    @classmethod
    def of(cls, data: DatasetSplits) -> LabelSpec:
        """Of a data set with labels."""
        samples = data.train.targets[TARGET]
        shape = tuple(n for n in samples.shape if n != 1)
        whole = samples.dtype.kind in "biu"
        if shape and not whole:
            some = data.train.inspected_targets
            whole = bool((some == np.rint(some)).all())
        return cls(shape, whole, data)

    @property
    def some(self) -> Array:
        """Some of the labels."""
        return self.data.train.inspected_targets

    @property
    def one_hot(self) -> int | None:
        """The axis of one-hot labels as they are stored, with that of the samples and all of size 1."""
        return None if self.hot is None else self.stored(self.hot)

    def stored(self, axis: int) -> int:
        """Where labels as they are stored have an axis of their shape; samples are axis 0 of both."""
        return [i for i, n in enumerate((None, *self.data.train.targets[TARGET].shape)) if n != 1][
            axis
        ]


def class_numbers(target: LabelSpec, output: OutputSpec, kind: TaskKind | None) -> LabelSpec:
    """One-hot labels of the shape of an output as class numbers; all others as they are.

    Beside Sigmoids they are labels of which each is there or not, unless the settings speak of classes.
    """
    asked = kind in ("classification", "segmentation") or (
        kind is None and output.maker not in SIGMOID
    )
    shape, axes = target.shape, len(target.shape)
    if not asked or not shape or shape != tuple(n for n in output.shape if n != 1):
        return target
    if (kind == "segmentation" and axes < 3) or (
        kind == "classification" and axes > 2
    ):  # then the classes have too few axes
        return target
    for axis in (axes, 1) if axes <= 2 else (1, axes):
        if is_one_hot(target.some, target.stored(axis)):
            return target._replace(
                shape=(*shape[: axis - 1], *shape[axis:]), is_whole=True, hot=axis
            )
    return target


def values(output: OutputSpec) -> int:
    """How many numbers it has a sample."""
    return int(np.prod(output.shape, dtype=np.int64))


def same_size(target: LabelSpec, output: OutputSpec) -> bool:
    """Whether there is a number in the output for each in the labels."""
    return None not in target.shape and values(output) == int(
        np.prod([n or 1 for n in target.shape])
    )


def class_axis(target: LabelSpec, output: OutputSpec) -> int | None:
    """Where an output has classes beside the axes of the labels; tokens have them last, images first.

    Labels of uneven length fit any axis: the classes are not on one that the graph leaves open, or that has the length
    to which sequences are filled up.
    """
    if len(output.shape) != len(target.shape) + 1:
        return None
    axes: tuple[int, ...] = (
        (len(output.shape), 1) if len(target.shape) == 1 else (1, len(output.shape))
    )
    if None in target.shape:
        widths = {
            source.samples.shape[0]
            for source in target.data.train.inputs.values()
            if source.samples.shape
        }
        axes = tuple(axis for axis in axes if axis not in output.open_axes) or axes[:1]
        axes = tuple(sorted(axes, key=lambda axis: output.shape[axis - 1] in widths))
    for axis in axes:
        positions = (*output.shape[: axis - 1], *output.shape[axis:])
        if (
            _alike(target.shape, positions)
            and output.shape[axis - 1] >= 2
            and target.hot in (None, axis)
        ):
            return axis
    return None


def is_single(target: LabelSpec, output: OutputSpec) -> bool:
    """Whether an output has one number where the labels have one, and no axis beside but one of size 1."""
    shape = output.shape
    shapes = [
        shape,
        *([shape[1:]] if shape[:1] == (1,) else []),
        *([shape[:-1]] if shape[-1:] == (1,) else []),
    ]
    return any(_alike(target.shape, found) for found in shapes)


def _alike(labels: Sequence[int | None], found: Sequence[int]) -> bool:
    return len(labels) == len(found) and all(
        n is None or n == m for n, m in zip(labels, found, strict=True)
    )


def is_zero_or_one(target: LabelSpec) -> bool:
    """Whether the labels are 0 or 1, as far as they were looked at."""
    return bool(((target.some == 0) | (target.some == 1)).all())


def is_mask(target: LabelSpec, output: OutputSpec) -> bool:
    """Whether an output may be the score of class 1 beside class 0, for each pixel."""
    return is_single(target, output) and is_zero_or_one(target)


def is_class_map(target: LabelSpec, output: OutputSpec) -> bool:
    """Whether an output may score classes at each position that has a label."""
    return class_axis(target, output) is not None or is_single(target, output)
