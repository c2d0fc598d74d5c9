"""Find the value of a graph by whose size the uses of a layer weight in one sample are counted."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from onnx import ModelProto, ValueInfoProto

from ltp_pipeline.graph.infer_shapes import infer_shapes
from ltp_pipeline.graph.layer_weights import LayerWeight
from ltp_pipeline.graph.nodes import get_attribute
from ltp_pipeline.graph.readers import TensorReader, TensorReaders

_PRODUCTS = ("Gemm", "MatMul", "FusedGemm", "FusedMatMul")


class ObservedValue(NamedTuple):
    """A value by whose size the uses of a weight are counted.

    Attributes:
        name: Name of the value, an input or output of the layer.
        axes: Axes that it shares with the weight. A weight is used once at each position on the
            other axes.
        num_matrices: Number of matrices of a stacked weight. Each has its own positions.
    """

    name: str
    axes: tuple[int, ...]
    num_matrices: int = 1


ObservedValues = Mapping[str, Sequence[ObservedValue]]


def find_observed_values(layers: Iterable[LayerWeight], readers: TensorReaders) -> ObservedValues:
    """Return the values that tell how often each layer weight is used, by name of the weight."""
    return {
        layer.name: [
            _find_observed(use, layer.shape) for use in readers[layer.name] if use.is_weight
        ]
        for layer in layers
    }


def compute_uses(
    observed: ObservedValues, shapes: Mapping[str, Sequence[int]], samples: int
) -> dict[str, int]:
    """Return how often a weight of each layer is multiplied in one sample, at least once.

    Args:
        observed: The values that tell it, by name of the layer weight.
        shapes: Shapes of values in a batch, by name.
        samples: Number of samples in the batch.

    Returns:
        Uses by name of the layer weight. Weights with a value of unknown shape are left out.
    """
    counts: dict[str, int] = {}
    for name, values in observed.items():
        if not values or any(value.name not in shapes for value in values):
            continue
        positions = [_count_positions(shapes[value.name], value) for value in values]
        counts[name] = max(round(sum(positions) / samples), 1)
    return counts


def infer_uses(
    proto: ModelProto, layers: Sequence[LayerWeight], readers: TensorReaders
) -> dict[str, int]:
    """Return the uses of each layer weight in one sample, as far as onnx infers all sizes.

    Args:
        proto: The model, with the values of small tensors. Its shapes are changed in place.
        layers: Its layer weights.
        readers: Nodes by the tensors that they read.
    """
    stored = {tensor.name for tensor in proto.graph.initializer}
    inputs = [value for value in proto.graph.input if value.name not in stored]
    first_dims = [value.type.tensor_type.shape.dim[0] for value in inputs if _has_axes(value)]
    batch = max((dim.dim_value for dim in first_dims), default=0) or 1
    for dim in first_dims:
        dim.dim_value = dim.dim_value or batch
    del proto.graph.value_info[:]  # these may have a symbol for the size of the batch
    try:
        graph = infer_shapes(proto, data_prop=True).graph
    except Exception:  # noqa: BLE001 - the graph has a flaw that is reported elsewhere
        return {}
    shapes: dict[str, tuple[int, ...]] = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        dims = value.type.tensor_type.shape.dim
        sizes = tuple(dim.dim_value for dim in dims)
        if sizes and all(sizes):
            shapes[value.name] = sizes
    return compute_uses(find_observed_values(layers, readers), shapes, batch)


def _has_axes(value: ValueInfoProto) -> bool:
    """Return True if the shape of a value is declared and not that of a scalar."""
    return len(value.type.tensor_type.shape.dim) > 0


def _find_observed(use: TensorReader, weight_shape: Sequence[int]) -> ObservedValue:
    """Return the value that tells how often a node uses its weight."""
    node = use.node
    if node.op_type in ("Conv", "FusedConv"):
        return ObservedValue(node.output[0], (1,))
    if node.op_type == "ConvTranspose":
        return ObservedValue(node.input[0], (1,))
    if node.op_type in _PRODUCTS:
        axis = -1 if use.slot == 1 else -2
        return ObservedValue(node.output[0], (axis,), math.prod(weight_shape[:-2]))
    if node.op_type == "Einsum":
        return ObservedValue(node.input[1 - use.slot], _find_shared_axes(use))
    return ObservedValue(node.input[0], (-1,))  # recurrent layers and attention


def _find_shared_axes(use: TensorReader) -> tuple[int, ...]:
    """Return the axes of the other operand of an Einsum whose indices the weight has too."""
    equation = get_attribute(use.node, "equation", b"").decode().replace(" ", "")
    terms = equation.partition("->")[0].split(",")
    weight, other = terms[use.slot], terms[1 - use.slot]
    leading, _, trailing = other.partition("...")
    axes = [axis for axis, index in enumerate(leading) if index in weight]
    axes += [axis - len(trailing) for axis, index in enumerate(trailing) if index in weight]
    return tuple(axes)


def _count_positions(shape: Sequence[int], value: ObservedValue) -> float:
    """Return the number of positions of a value with this shape where a weight is used."""
    shared = 1
    for axis in value.axes:
        if -len(shape) <= axis < len(shape):  # a product with a vector lacks an axis
            shared *= shape[axis]
    return math.prod(shape) / max(shared, 1) / value.num_matrices
