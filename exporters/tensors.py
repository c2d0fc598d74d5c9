"""Tensors inside a ModelProto: where they live, what they hold, and copies of a model that do not copy what changes."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
from google.protobuf.message import Message  # type: ignore[import-untyped]
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from ltp_pipeline.errors import ExportFailed, InputError

Array = np.ndarray[Any, Any]

FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)
AGAIN = "get the file again from where it came from"
LARGEST = 2**31 - 1  # bytes: what one protobuf field can hold, so no honest tensor decodes to more
_DATA = frozenset(
    ["raw_data", "float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data", "data_location"]
)


def graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """A graph and every graph nested in its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from graphs(attribute.g)
            for nested in attribute.graphs:
                yield from graphs(nested)


def is_constant(node: NodeProto) -> bool:
    """Whether a node holds a tensor as its attribute `value`."""
    return (
        node.op_type == "Constant"
        and node.domain in ("", "ai.onnx")
        and len(node.output) == 1
        and any(a.name == "value" and a.HasField("t") for a in node.attribute)
    )


def constant_tensor(node: NodeProto) -> TensorProto:
    """The tensor of a node for which `is_constant` holds."""
    tensor: TensorProto = next(a.t for a in node.attribute if a.name == "value")
    return tensor


def stored(graph: GraphProto) -> dict[str, TensorProto]:
    """The tensors stored plainly in one graph, by the name its nodes know them under."""
    found = {tensor.name: tensor for tensor in graph.initializer}
    found.update((node.output[0], constant_tensor(node)) for node in graph.node if is_constant(node))
    return found


def every_tensor(model: ModelProto, sparse: bool = True) -> Iterator[TensorProto]:
    """Every tensor of a model, wherever it is written: graphs, attributes, functions and (if asked) sparse parts."""
    training = [g for info in model.training_info for g in (info.initialization, info.algorithm)]
    for graph in (nested for top in (model.graph, *training) for nested in graphs(top)):
        yield from graph.initializer
        for part in graph.sparse_initializer if sparse else ():
            yield from (part.values, part.indices)
        yield from _attribute_tensors(graph.node)
    for function in model.functions:
        yield from _attribute_tensors(function.node)
        for attribute in (a for node in function.node for a in node.attribute if a.HasField("g")):
            for graph in graphs(attribute.g):
                yield from graph.initializer
                yield from _attribute_tensors(graph.node)


def _attribute_tensors(nodes: Collection[NodeProto]) -> Iterator[TensorProto]:
    for attribute in (a for node in nodes for a in node.attribute):
        if attribute.HasField("t"):
            yield attribute.t
        if attribute.HasField("sparse_tensor"):
            yield from (attribute.sparse_tensor.values, attribute.sparse_tensor.indices)
        yield from attribute.tensors


def byte_size(tensor: TensorProto) -> int:
    """The bytes that a tensor's values take by its dims and type, whatever it holds; impossible dims are refused."""
    elements = 1
    for n in tensor.dims:
        elements *= n
    try:
        width = dtype_of(tensor).itemsize
    except KeyError:
        raise InputError(f"tensor '{tensor.name}' has an unknown type {tensor.data_type}", AGAIN) from None
    size = (elements + 1) // 2 if tensor.data_type in (TensorProto.UINT4, TensorProto.INT4) else elements * width
    if min(tensor.dims, default=1) < 0 or size > LARGEST:
        raise InputError(f"tensor '{tensor.name}' has impossible dims {list(tensor.dims)}", AGAIN)
    return int(size)


def to_array(tensor: TensorProto, name: str = "") -> Array:
    """The values of a tensor; content that does not fit its own dims or type is bad input."""
    name = name or tensor.name
    if tensor.data_location == TensorProto.EXTERNAL:
        raise InputError(f"the values of tensor '{name}' are in another file", "load the model from its file")
    try:
        if tensor.HasField("raw_data") and tensor.data_type in FLOATS:
            return np.frombuffer(tensor.raw_data, dtype_of(tensor).newbyteorder("<")).reshape(tuple(tensor.dims))
        array: Array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError, MemoryError) as error:
        raise InputError(f"tensor '{name}' is corrupt: {error}", AGAIN) from None
    return array


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


def dtype_of(tensor: TensorProto) -> np.dtype[Any]:
    """The numpy type of a tensor's values."""
    return np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))


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


def copy_fields(source: Message, target: Message, skip: Collection[str]) -> None:
    """Copy the fields of a message except some."""
    # ListFields would also fetch, and so copy, what is to be skipped.
    for name in (field.name for field in source.DESCRIPTOR.fields if field.name not in skip):
        value = getattr(source, name)
        if hasattr(value, "extend"):
            getattr(target, name).extend(value)
        elif source.HasField(name):
            if isinstance(value, Message):
                getattr(target, name).CopyFrom(value)
            else:
                setattr(target, name, value)


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


def drop_inputs(graph: GraphProto, names: Collection[str]) -> None:
    """Take graph inputs away by name."""
    kept: list[ValueInfoProto] = [value for value in graph.input if value.name not in names]
    if len(kept) < len(graph.input):
        del graph.input[:]
        graph.input.extend(kept)


def raise_ir_version(model: ModelProto, version: int) -> None:
    """Raise a model's IR version if it is lower.

    Below 4, every initializer is a graph input of the same name and a constant all the same; from 4 on, such an input
    makes it a default that the caller may override. So those inputs go, and the weights stay the constants they were.
    """
    if model.ir_version < 4 <= version:
        drop_inputs(model.graph, {tensor.name for tensor in model.graph.initializer})
    model.ir_version = max(model.ir_version, version)
