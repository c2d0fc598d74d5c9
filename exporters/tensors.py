"""Tensors inside a ModelProto: where they live, what they hold, and copies of a model that do not copy what changes."""

from collections.abc import Collection, Mapping

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto

from ltp_pipeline.errors import ExportFailed
from ltp_pipeline.graph.edit import copy_fields as copy_fields
from ltp_pipeline.graph.edit import drop_inputs as drop_inputs
from ltp_pipeline.graph.nodes import every_graph
from ltp_pipeline.graph.tensors import AGAIN as AGAIN
from ltp_pipeline.graph.tensors import FLOAT_TYPES
from ltp_pipeline.graph.tensors import LARGEST as LARGEST
from ltp_pipeline.graph.tensors import Array as Array
from ltp_pipeline.graph.tensors import byte_size as byte_size
from ltp_pipeline.graph.tensors import constant_tensor as constant_tensor
from ltp_pipeline.graph.tensors import dtype_of as dtype_of
from ltp_pipeline.graph.tensors import every_tensor as every_tensor
from ltp_pipeline.graph.tensors import is_constant as is_constant
from ltp_pipeline.graph.tensors import stored as stored
from ltp_pipeline.graph.tensors import to_array as to_array

FLOATS, graphs = FLOAT_TYPES, every_graph  # the exporters' names for them
_DATA = frozenset(
    ["raw_data", "float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data", "data_location"]
)


def fill(tensor: TensorProto, array: Array) -> None:
    """Replace a tensor's values, in its own dtype and dims."""
    if tuple(tensor.dims) != array.shape:
        raise ExportFailed(
            f"tensor '{tensor.name}' has shape {array.shape} but the file says {tuple(tensor.dims)}",
            "give the tensors of the model they are put back into",
        )
    for field in _DATA:
        tensor.ClearField(field)
    tensor.raw_data = little_endian(array.astype(dtype_of(tensor), copy=False)).tobytes()


def little_endian(array: Array) -> Array:
    """The same values as files have them, without gaps."""
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<"))


def store(tensor: TensorProto, data_type: int, array: Array) -> None:
    """Give an empty tensor its type, dims and values."""
    tensor.data_type = data_type
    tensor.dims.extend(array.shape)
    fill(tensor, array)


def make(name: str, data_type: int, array: Array, like: TensorProto | None = None) -> TensorProto:
    """A new tensor; `like` passes on the doc string."""
    tensor = named(name, like)
    store(tensor, data_type, array)
    return tensor


def named(name: str, like: TensorProto | None = None) -> TensorProto:
    """A new tensor without values."""
    tensor = TensorProto(name=name)
    if like is not None:
        copy_fields(like, tensor, skip=_DATA | {"name", "dims", "data_type", "segment", "external_data"})
    return tensor


def bits(array: Array) -> Array:
    """The bit patterns of a float array, as unsigned integers of the same width."""
    return np.ascontiguousarray(array).view(np.dtype(f"u{array.dtype.itemsize}")).reshape(array.shape)


def nonzero(array: Array) -> Array:
    """Ascending flat positions of what is not zero; -0.0 is zero, NaN is not."""
    flat = array.reshape(-1)
    if array.dtype.kind != "f" or array.dtype.itemsize < 4:  # of these numpy compares the bits faster, or only them
        flat = bits(flat) << (array.dtype.kind != "i")
    return np.flatnonzero(flat != 0)


def without_negative_zero(array: Array) -> Array:
    """The same values with -0.0 as 0.0; the array itself when there is none."""
    if not has_negative_zero(array):
        return array
    cleaned = array.copy()
    cleaned[cleaned == 0] = 0
    return cleaned


def has_negative_zero(array: Array) -> bool:
    """Whether there is a -0.0, whose bits, read as an integer, are the smallest integer there is."""
    integers = bits(array).view(np.dtype(f"i{array.dtype.itemsize}"))
    return bool(integers.size and integers.min() == np.iinfo(integers.dtype).min)


def copy_model(
    model: ModelProto, drop: Collection[str] = (), first: Collection[NodeProto] = (), empty: Collection[str] = ()
) -> ModelProto:
    """Copy a model without the tensors of these names (and the nodes that make them); `first` go before its nodes.

    The initializers in `empty` come without their values.
    """
    copy = ModelProto()
    copy_fields(model, copy, skip={"graph"})
    copy.graph.SetInParent()
    copy_fields(model.graph, copy.graph, skip={"node", "initializer", "sparse_initializer"})
    copy.graph.node.extend(first)
    for node in model.graph.node:
        if not any(output in drop for output in node.output):
            copy.graph.node.add().CopyFrom(node)
    for tensor in model.graph.initializer:
        if tensor.name in empty:
            copy_fields(tensor, copy.graph.initializer.add(), skip=_DATA)
        elif tensor.name not in drop:
            copy.graph.initializer.add().CopyFrom(tensor)
    for sparse in model.graph.sparse_initializer:
        if sparse.values.name not in drop:
            copy.graph.sparse_initializer.add().CopyFrom(sparse)
    return copy


def with_tensors(model: ModelProto, tensors: Mapping[str, Array]) -> ModelProto:
    """Copy a model with these tensors put back by name, wherever they live; all else is as it was."""
    copy = ModelProto()
    copy_fields(model, copy, skip={"graph"})
    copy.graph.SetInParent()
    copy_fields(model.graph, copy.graph, skip={"initializer"})
    missing = set(tensors)
    for tensor in model.graph.initializer:
        slot = copy.graph.initializer.add()
        if tensor.name in tensors:
            copy_fields(tensor, slot, skip=_DATA)
            fill(slot, tensors[tensor.name])
            missing.discard(tensor.name)
        else:
            slot.CopyFrom(tensor)
    if missing:
        places = {name: t for nested in graphs(copy.graph) for name, t in stored(nested).items() if name in missing}
        for name, tensor in places.items():
            fill(tensor, tensors[name])
        missing -= set(places)
    if missing:
        raise ExportFailed(
            f"the model has no plain tensor named '{min(missing)}'", "put tensors back into the model they came from"
        )
    return copy


def raise_ir_version(model: ModelProto, version: int) -> None:
    """Raise a model's IR version if it is lower.

    Below 4, every initializer is a graph input of the same name and a constant all the same; from 4 on, such an input
    makes it a default that the caller may override. So those inputs go, and the weights stay the constants they were.
    """
    if model.ir_version < 4 <= version:
        drop_inputs(model.graph, {tensor.name for tensor in model.graph.initializer})
    model.ir_version = max(model.ir_version, version)
