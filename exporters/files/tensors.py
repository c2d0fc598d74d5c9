"""What encodings do with tensors: finding what is not zero, and taking tensors out of a model."""

from collections.abc import Collection

import numpy as np
from onnx import ModelProto, NodeProto

from ltp_pipeline.graph.edit import drop_inputs, set_initializers, set_nodes
from ltp_pipeline.graph.model import OnnxModel, copy_proto
from ltp_pipeline.system.arrays import Array


def view_bits(array: Array) -> Array:
    """The bit patterns of a float array, as unsigned integers of the same width."""
    return (
        np.ascontiguousarray(array).view(np.dtype(f"u{array.dtype.itemsize}")).reshape(array.shape)
    )


def find_nonzero_positions(array: Array) -> Array:
    """Ascending flat positions of what is not zero; -0.0 is zero, NaN is not."""
    flat = array.reshape(-1)
    if (
        array.dtype.kind != "f" or array.dtype.itemsize < 4
    ):  # of these numpy compares the bits faster, or only them
        flat = view_bits(flat) << (array.dtype.kind != "i")
    return np.flatnonzero(flat != 0)


def replace_negative_zeros(array: Array) -> Array:
    """The same values with -0.0 as 0.0; the array itself when there is none."""
    if not has_negative_zeros(array):
        return array
    cleaned = array.copy()
    cleaned[cleaned == 0] = 0
    return cleaned


def has_negative_zeros(array: Array) -> bool:
    """Whether there is a -0.0, whose bits, read as an integer, are the smallest integer; integers have none."""
    if array.dtype.kind in "iu":
        return False
    integers = view_bits(array).view(np.dtype(f"i{array.dtype.itemsize}"))
    return bool(integers.size and integers.min() == np.iinfo(integers.dtype).min)


def remove_tensors(
    model: OnnxModel, names: Collection[str], first: Collection[NodeProto] = ()
) -> OnnxModel:
    """A copy without the tensors of these names and the nodes that make them; `first` go before its nodes."""
    proto = copy_proto(model.proto)
    graph = proto.graph
    set_nodes(
        graph, [*first, *(n for n in graph.node if not any(output in names for output in n.output))]
    )
    set_initializers(graph, [t for t in graph.initializer if t.name not in names])
    kept = [s for s in graph.sparse_initializer if s.values.name not in names]
    if len(kept) < len(graph.sparse_initializer):
        del graph.sparse_initializer[:]
        graph.sparse_initializer.extend(kept)
    return OnnxModel(
        proto,
        {name: array for name, array in model.weights.items() if name not in names},
        model.sparse,
    )


def raise_ir_version(model: ModelProto, version: int) -> None:
    """Raise a model's IR version if it is lower.

    Below 4, every initializer is a graph input of the same name and a constant all the same; from 4 on, such an input
    makes it a default that the caller may override. So those inputs go, and the weights stay the constants they were.
    """
    if model.ir_version < 4 <= version:
        drop_inputs(model.graph, {tensor.name for tensor in model.graph.initializer})
    model.ir_version = max(model.ir_version, version)
