"""Tensors stored in a model: where they are, which type and size they have, and their values."""

import math
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.edit import copy_fields
from ltp_pipeline.graph.nodes import get_subgraphs, is_standard, iter_graphs
from ltp_pipeline.system.arrays import Array

Weights = Mapping[str, Array]  # values of tensors by name

FLOAT_TYPES = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)
WEIGHT_TYPES = (*FLOAT_TYPES, TensorProto.INT8)  # types that layer weights in a file may have
# Types that torch has too
NUMBER_TYPES = frozenset(
    {
        *FLOAT_TYPES,
        *(TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64),
        *(TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64),
        *(TensorProto.BOOL, TensorProto.COMPLEX64, TensorProto.COMPLEX128),
    }
)
# Attributes whose integer names a type
TYPE_ATTRIBUTES = frozenset(
    {"to", "dtype", "output_datatype", "output_dtype", "stash_type", "softmax_precision"}
)
REFETCH_HINT = "get the file again from where it came from"
MAX_BYTES = 2**31 - 1  # what one protobuf field can hold, so no valid tensor decodes to more
MAX_DIMS = 64  # axes that numpy and torch can hold
# A larger tensor that is computed from a few numbers is an attack or a mistake.
MAX_CONSTANT_ELEMENTS = 1 << 28
# A score to which at most this is added counts for nothing after a Softmax.
MASKED_SCORE = -100.0
# Fields of a tensor that hold values or say where they are
DATA_FIELDS = frozenset(
    {
        *("raw_data", "float_data", "int32_data", "string_data", "int64_data"),
        *("double_data", "uint64_data", "data_location"),
    }
)
_COMPLEX_TYPES = (TensorProto.COMPLEX64, TensorProto.COMPLEX128)
_PACKED_BITS = {  # bits of an element, for types of which several elements share a byte
    value: 2 if name.endswith("2") else 4
    for name, value in TensorProto.DataType.items()
    if name in ("UINT4", "INT4", "FLOAT4E2M1", "UINT2", "INT2")
}


def get_type_name(data_type: int) -> str:
    """Return ONNX's name of a data type, for messages."""
    if data_type not in TensorProto.DataType.values():
        return f"type {data_type}"
    return str(TensorProto.DataType.Name(data_type))


def get_dtype(tensor: TensorProto) -> np.dtype[Any]:
    """Return the NumPy type of a tensor's values."""
    return _get_numpy_type(tensor.data_type)


@cache
def _get_numpy_type(data_type: int) -> np.dtype[Any]:
    return np.dtype(helper.tensor_dtype_to_np_dtype(data_type))


def count_elements(tensor: TensorProto) -> int:
    """Return the number of elements that a tensor's dims declare."""
    return math.prod(tensor.dims)


def get_byte_size(tensor: TensorProto) -> int:
    """Return the number of bytes of a tensor's values by its dims and type.

    Raises:
        InputError: If the type is unknown, or no tensor can have these dims.
    """
    try:
        width = get_dtype(tensor).itemsize
    except KeyError:
        message = f"tensor '{tensor.name}' has an unknown type {tensor.data_type}"
        raise InputError(message, REFETCH_HINT) from None
    if has_possible_dims(tensor):
        count = count_elements(tensor)
        bits = _PACKED_BITS.get(tensor.data_type)
        size = count * width if bits is None else -(-count * bits // 8)
        if size <= MAX_BYTES:
            return size
    raise InputError(
        f"tensor '{tensor.name}' has impossible dims {list(tensor.dims)}", REFETCH_HINT
    )


def has_possible_dims(tensor: TensorProto) -> bool:
    """Return True if a tensor has no negative and not too many dims.

    The number of elements may still be too large.
    """
    dims = tensor.dims
    return not dims or (len(dims) <= MAX_DIMS and min(dims) >= 0)


def has_all_values(tensor: TensorProto) -> bool:
    """Return True if a tensor holds as many values as its dims declare, in the field of its type.

    Raises:
        InputError: If the type is unknown, or no tensor can have these dims.
    """
    size = get_byte_size(tensor)
    if tensor.HasField("raw_data"):
        return tensor.data_type != TensorProto.STRING and len(tensor.raw_data) == size
    length = len(getattr(tensor, helper.tensor_dtype_to_field(tensor.data_type)))
    if tensor.data_type in _PACKED_BITS:
        return length >= size
    numbers_per_element = 2 if tensor.data_type in _COMPLEX_TYPES else 1
    return length == count_elements(tensor) * numbers_per_element


def to_array(tensor: TensorProto, name: str = "") -> Array:
    """Return the values of a tensor.

    Args:
        tensor: The tensor.
        name: Name for messages, if it is not the tensor's own.

    Raises:
        InputError: If the values are in another file, or contradict the tensor's dims or type.
    """
    name = name or tensor.name
    if tensor.data_location == TensorProto.EXTERNAL:
        message = f"the values of tensor '{name}' are in another file"
        raise InputError(message, "load the model from its file")
    try:
        if tensor.HasField("raw_data") and tensor.data_type in FLOAT_TYPES:
            dtype = get_dtype(tensor).newbyteorder("<")
            return np.frombuffer(tensor.raw_data, dtype).reshape(tuple(tensor.dims))
        array: Array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError, OverflowError, MemoryError) as error:
        raise InputError(f"tensor '{name}' is corrupt: {error}", REFETCH_HINT) from None
    return array


def is_attention_mask(array: Array) -> bool:
    """Return True if an array hides scores.

    Such an array has infinities or NaN, or only zeros and one number far below the scores.
    """
    if array.size == 0:
        return False
    with np.errstate(invalid="ignore"):
        lowest = array.min()  # NaN if an element is NaN
        highest = array.max()
    if not (math.isfinite(lowest) and math.isfinite(highest)):
        return True
    if array.size == 1 or lowest > MASKED_SCORE:
        return False
    return bool(((array == 0) | (array == lowest)).all())


def get_constant_tensor(node: NodeProto) -> TensorProto | None:
    """Return the tensor that a Constant holds as its attribute `value`, None for other nodes."""
    if is_standard(node, "Constant") and len(node.output) == 1:
        for attribute in node.attribute:
            if attribute.name == "value" and attribute.HasField("t"):
                tensor: TensorProto = attribute.t
                return tensor
    return None


def collect_stored_tensors(graph: GraphProto) -> dict[str, TensorProto]:
    """Return the dense stored tensors of one graph, by the name that its nodes read them by."""
    return dict(iter_stored_tensors(graph))


def iter_stored_tensors(graph: GraphProto) -> Iterator[tuple[str, TensorProto]]:
    """Yield names and tensors of the initializers and Constant nodes of one graph.

    For very many tensors, the dictionary of `collect_stored_tensors` takes more memory than they
    do.
    """
    for tensor in graph.initializer:
        yield tensor.name, tensor
    for node in graph.node:
        constant = get_constant_tensor(node)
        if constant is not None:
            yield node.output[0], constant


def iter_tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Yield every tensor of a model: in graphs, attributes, functions and sparse initializers."""
    for _, tensor in iter_named_tensors(model, sparse=True):
        yield tensor


def iter_named_tensors(
    model: ModelProto, sparse: bool = False
) -> Iterator[tuple[str, TensorProto]]:
    """Yield every tensor of a model with its name, if wanted the parts of sparse tensors too.

    Yields:
        The name that nodes read the tensor by, or "" if it is not a dense stored tensor of a
        graph; and the tensor.
    """
    yield from iter_graph_tensors(model.graph, sparse)
    graphs: list[GraphProto] = []
    for info in model.training_info:
        graphs += (info.initialization, info.algorithm)
    for function in model.functions:
        for _, tensor in _iter_node_tensors(function.node):
            yield "", tensor
        for node in function.node:
            graphs += get_subgraphs(node)
    for graph in graphs:
        for _, tensor in iter_graph_tensors(graph, sparse):
            yield "", tensor


def iter_graph_tensors(
    graph: GraphProto, sparse: bool = False
) -> Iterator[tuple[str, TensorProto]]:
    """Yield the tensors of a graph and of those nested in it, as `iter_named_tensors` does."""
    for nested in iter_graphs(graph):
        for tensor in nested.initializer:
            yield tensor.name, tensor
        if sparse:
            for part in nested.sparse_initializer:
                yield "", part.values
                yield "", part.indices
        yield from _iter_node_tensors(nested.node)


def _iter_node_tensors(nodes: Collection[NodeProto]) -> Iterator[tuple[str, TensorProto]]:
    """Yield the tensors that nodes hold as attributes."""
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                name = ""
                if attribute.name == "value" and get_constant_tensor(node) is not None:
                    name = node.output[0]
                yield name, attribute.t
            if attribute.HasField("sparse_tensor"):
                yield "", attribute.sparse_tensor.values
                yield "", attribute.sparse_tensor.indices
            for tensor in attribute.tensors:
                yield "", tensor


def make_empty_tensor(
    name: str, data_type: int, dims: Collection[int], like: TensorProto | None = None
) -> TensorProto:
    """Return a new tensor without values; `like` is a tensor that passes on its doc string."""
    tensor = TensorProto(name=name, data_type=data_type, dims=dims)
    if like is not None:
        skip = DATA_FIELDS | {"name", "dims", "data_type", "segment", "external_data"}
        copy_fields(like, tensor, skip)
    return tensor


def make_tensor(name: str, data_type: int, array: Array) -> TensorProto:
    """Return a new tensor with the values of an array."""
    tensor = make_empty_tensor(name, data_type, array.shape)
    set_values(tensor, array.astype(get_dtype(tensor), copy=False))
    return tensor


def set_values(tensor: TensorProto, array: Array) -> None:
    """Replace the values of a tensor; the array has the tensor's type and shape."""
    clear_values(tensor)
    tensor.raw_data = to_little_endian(array).tobytes()


def clear_values(tensor: TensorProto) -> None:
    """Remove the values of a tensor; its name, type and dims stay."""
    for field in DATA_FIELDS:
        tensor.ClearField(field)


def to_little_endian(array: Array) -> Array:
    """Return an array in the byte order of files, contiguous in memory."""
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
