"""Shapes and producers of outputs and labels, by which a task is inferred."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ltp_pipeline.data.dataset import TARGET, DatasetSplits
from ltp_pipeline.graph.nodes import VIEW_OPERATORS
from ltp_pipeline.graph.view import GraphView
from ltp_pipeline.settings.schema import TaskKind
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.tasks.labels import is_one_hot

if TYPE_CHECKING:
    from onnx import GraphProto

# Shapes of all outputs for some samples; None if an output is no tensor of floating point.
Shapes = Sequence[tuple[int, ...] | None]
# Only these operators show that an output scores classes: a vector of values has equal shape.
SCORE_PRODUCERS = ("Softmax", "LogSoftmax")
SOFTMAX = ("Softmax",)
SIGMOID = ("Sigmoid", "HardSigmoid")
# Outputs of these operators are no scores of competing classes, whatever their shape.
SQUASHING = ("Sigmoid", "Tanh", "HardSigmoid")


class OutputSpec(NamedTuple):
    """Shape and producer of an output that labels may belong to.

    Attributes:
        position: Position among the outputs of the graph.
        name: Name of the output.
        shape: Shape of one sample.
        producer: Operator that computes the output; empty if no node does.
        dynamic_axes: Axes whose size the graph leaves open; axis 0 counts the samples.
    """

    position: int
    name: str
    shape: tuple[int, ...]
    producer: str
    dynamic_axes: frozenset[int] = frozenset()

    @property
    def size(self) -> int:
        """Number of values in one sample."""
        return math.prod(self.shape)


class LabelSpec(NamedTuple):
    """Shape and values of the labels.

    Attributes:
        shape: Shape of one label without axes of size 1; None for an axis of uneven length. For
            one-hot labels it is the shape of the class numbers that they stand for.
        is_whole: True if the labels are whole numbers.
        data: The data set.
        one_hot_axis: Axis along which a 1 marks the class, counted without axes of size 1; axis 0
            counts the samples. None if the labels are not one-hot.
    """

    shape: tuple[int | None, ...]
    is_whole: bool
    data: DatasetSplits
    one_hot_axis: int | None = None

    @classmethod
    def from_data(cls, data: DatasetSplits) -> LabelSpec:
        """Return the specification of a data set's labels."""
        labels = data.train.targets[TARGET]
        shape = tuple(n for n in labels.shape if n != 1)
        is_whole = labels.dtype.kind in "biu"
        if shape and not is_whole:
            values = data.train.inspected_targets
            is_whole = bool((values == np.rint(values)).all())
        return cls(shape, is_whole, data)

    @property
    def values(self) -> Array:
        """Some of the training labels."""
        return self.data.train.inspected_targets

    @property
    def is_binary(self) -> bool:
        """Whether all of `values` are 0 or 1."""
        return bool(((self.values == 0) | (self.values == 1)).all())

    def stored_axis(self, axis: int) -> int:
        """Return where the stored labels have an axis of `shape`; axis 0 counts the samples."""
        sizes = (None, *self.data.train.targets[TARGET].shape)
        return [i for i, n in enumerate(sizes) if n != 1][axis]


def find_outputs(
    graph: GraphProto, shapes: Shapes, num_samples: int, only: str | None
) -> list[OutputSpec]:
    """Return the floating-point outputs with a row for each sample.

    Args:
        graph: The model.
        shapes: Shapes of all outputs for some samples; None if an output is no tensor of floating
            point.
        num_samples: Number of these samples.
        only: Name of the only output to consider; None for all.
    """
    nodes = GraphView(graph).producers
    outputs = []
    for position, (info, shape) in enumerate(zip(graph.output, shapes, strict=True)):
        if not shape or shape[0] != num_samples or only not in (None, info.name):
            continue
        node = nodes.get(info.name)
        while node is not None and node.op_type in VIEW_OPERATORS:
            node = nodes.get(node.input[0])
        producer = "" if node is None else node.op_type
        dims = enumerate(info.type.tensor_type.shape.dim)
        dynamic_axes = frozenset(axis for axis, dim in dims if not dim.HasField("dim_value"))
        outputs.append(OutputSpec(position, info.name, shape[1:], producer, dynamic_axes))
    return outputs


def has_score_shape(shape: Sequence[int]) -> bool:
    """Return True if a sample of this shape can be scores of at least two classes."""
    return len(shape) >= 1 and shape[0] >= 2 and all(size == 1 for size in shape[1:])


def detect_one_hot(labels: LabelSpec, output: OutputSpec, kind: TaskKind | None) -> LabelSpec:
    """Return the labels as class numbers if they are one-hot and have the shape of the output.

    For an output of Sigmoids they are several labels of one sample, unless `kind` asks for classes.

    Args:
        labels: The labels as they are stored.
        output: The output that they may belong to.
        kind: `[task] kind`; None if it is not set.
    """
    shape = labels.shape
    num_axes = len(shape)
    asks_classes = kind in ("classification", "segmentation")
    if not asks_classes and (kind is not None or output.producer in SIGMOID):
        return labels
    if not shape or shape != tuple(n for n in output.shape if n != 1):
        return labels
    # Class numbers of images have at least two axes, those of sequences at most one.
    if (kind == "segmentation" and num_axes < 3) or (kind == "classification" and num_axes > 2):
        return labels
    for axis in (num_axes, 1) if num_axes <= 2 else (1, num_axes):
        if is_one_hot(labels.values, labels.stored_axis(axis)):
            numbers_shape = (*shape[: axis - 1], *shape[axis:])
            return labels._replace(shape=numbers_shape, is_whole=True, one_hot_axis=axis)
    return labels


def has_equal_size(labels: LabelSpec, output: OutputSpec) -> bool:
    """Return True if the output has one value for each value of a label."""
    sizes = [size for size in labels.shape if size is not None]
    return len(sizes) == len(labels.shape) and output.size == math.prod(sizes)


def find_class_axis(labels: LabelSpec, output: OutputSpec) -> int | None:
    """Return the axis of the output that scores classes, next to the axes of the labels.

    Returns:
        The axis, where axis 0 counts the samples; None if the shapes do not fit.
    """
    if len(output.shape) != len(labels.shape) + 1:
        return None
    for axis in _order_class_axes(labels, output):
        positions = (*output.shape[: axis - 1], *output.shape[axis:])
        is_possible = output.shape[axis - 1] >= 2 and labels.one_hot_axis in (None, axis)
        if is_possible and _matches_shape(labels.shape, positions):
            return axis
    return None


def _order_class_axes(labels: LabelSpec, output: OutputSpec) -> Sequence[int]:
    """Return the axes that may score classes, the most probable first.

    Tokens have their classes on the last axis, images on the first. Labels of uneven length match
    any size. Then classes are not on an axis of open size, and rather not on one that is as long
    as the padded sequences of an input.
    """
    last = len(output.shape)
    axes = (last, 1) if len(labels.shape) == 1 else (1, last)
    if None not in labels.shape:
        return axes
    sources = labels.data.train.inputs.values()
    widths = {source.samples.shape[0] for source in sources if source.samples.shape}
    fixed = [axis for axis in axes if axis not in output.dynamic_axes] or [axes[0]]
    return sorted(fixed, key=lambda axis: output.shape[axis - 1] in widths)


def has_single_scores(labels: LabelSpec, output: OutputSpec) -> bool:
    """Return True if the output has one value per label, and at most one more axis, of size 1."""
    return any(_matches_shape(labels.shape, shape) for shape in _iter_squeezed(output.shape))


def _iter_squeezed(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield the shape, and the shape without its first or its last axis if that has size 1."""
    yield shape
    if shape[:1] == (1,):
        yield shape[1:]
    if shape[-1:] == (1,):
        yield shape[:-1]


def _matches_shape(labels: Sequence[int | None], shape: Sequence[int]) -> bool:
    """Return True if shapes are equal; None matches every size."""
    if len(labels) != len(shape):
        return False
    return all(n is None or n == size for n, size in zip(labels, shape, strict=True))


def is_binary_mask(labels: LabelSpec, output: OutputSpec) -> bool:
    """Return True if the output may be the score of class 1 against class 0 for each pixel."""
    return has_single_scores(labels, output) and labels.is_binary


def is_class_map(labels: LabelSpec, output: OutputSpec) -> bool:
    """Return True if the output may score classes at each position of a label."""
    return find_class_axis(labels, output) is not None or has_single_scores(labels, output)
