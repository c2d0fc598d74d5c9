"""Tensors stored in a model: where they are, what type and size they have, and their values."""

import math
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.nodes import every_graph, is_standard, subgraphs

Array = np.ndarray[Any, Any]

FLOAT_TYPES = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)
NUMBER_TYPES = frozenset(
    {
        *FLOAT_TYPES,
        *(TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64),
        *(TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64),
        *(TensorProto.BOOL, TensorProto.COMPLEX64, TensorProto.COMPLEX128),
    }
)  # those that torch has too
# Attributes whose integer is a type.
TYPE_ATTRIBUTES = frozenset({"to", "dtype", "output_datatype", "output_dtype", "stash_type", "softmax_precision"})
AGAIN = "get the file again from where it came from"
LARGEST = 2**31 - 1  # bytes: what one protobuf field can hold, so no honest tensor decodes to more
LARGEST_CONSTANT = 1 << 28  # elements; a larger tensor made out of a few numbers is an attack or a mistake


def type_name(data_type: int) -> str:
    """ONNX's name of a data type, for messages."""
    known = TensorProto.DataType.values()
    return str(TensorProto.DataType.Name(data_type)) if data_type in known else f"type {data_type}"


def dtype_of(tensor: TensorProto) -> np.dtype[Any]:
    """The numpy type of a tensor's values."""
    return np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))


def elements(tensor: TensorProto) -> int:
    """How many elements a tensor's dims say it has."""
    return math.prod(tensor.dims)


def byte_size(tensor: TensorProto) -> int:
    """The bytes that a tensor's values take by its dims and type, whatever it holds; impossible dims are refused."""
    try:
        width = dtype_of(tensor).itemsize
    except KeyError:
        raise InputError(f"tensor '{tensor.name}' has an unknown type {tensor.data_type}", AGAIN) from None
    count = elements(tensor)
    size = (count + 1) // 2 if tensor.data_type in (TensorProto.UINT4, TensorProto.INT4) else count * width
    if min(tensor.dims, default=1) < 0 or size > LARGEST:
        raise InputError(f"tensor '{tensor.name}' has impossible dims {list(tensor.dims)}", AGAIN)
    return int(size)


def to_array(tensor: TensorProto, name: str = "") -> Array:
    """The values of a tensor; content that does not fit its own dims or type is bad input."""
    name = name or tensor.name
    if tensor.data_location == TensorProto.EXTERNAL:
        raise InputError(f"the values of tensor '{name}' are in another file", "load the model from its file")
    try:
        if tensor.HasField("raw_data") and tensor.data_type in FLOAT_TYPES:
            return np.frombuffer(tensor.raw_data, dtype_of(tensor).newbyteorder("<")).reshape(tuple(tensor.dims))
        array: Array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError, MemoryError) as error:
        raise InputError(f"tensor '{name}' is corrupt: {error}", AGAIN) from None
    return array


def is_constant(node: NodeProto) -> bool:
    """Whether a node is a Constant that holds a tensor as its attribute `value`."""
    return (
        is_standard(node, "Constant")
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
    for graph in (nested for top in (model.graph, *training) for nested in every_graph(top)):
        yield from graph.initializer
        for part in graph.sparse_initializer if sparse else ():
            yield from (part.values, part.indices)
        yield from _attribute_tensors(graph.node)
    for function in model.functions:
        yield from _attribute_tensors(function.node)
        for nested in (g for node in function.node for top in subgraphs(node) for g in every_graph(top)):
            yield from nested.initializer
            yield from _attribute_tensors(nested.node)


def _attribute_tensors(nodes: Collection[NodeProto]) -> Iterator[TensorProto]:
    for found in (a for node in nodes for a in node.attribute):
        if found.HasField("t"):
            yield found.t
        if found.HasField("sparse_tensor"):
            yield from (found.sparse_tensor.values, found.sparse_tensor.indices)
        yield from found.tensors
