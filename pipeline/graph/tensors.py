"""Tensors stored in a model: where they are, what type and size they have, and their values."""

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

Weights = Mapping[str, Array]  # by name

FLOAT_TYPES = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)
WEIGHT_TYPES = (*FLOAT_TYPES, TensorProto.INT8)  # those that kernels in a file may have
NUMBER_TYPES = frozenset(
    {
        *FLOAT_TYPES,
        *(TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64),
        *(TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64),
        *(TensorProto.BOOL, TensorProto.COMPLEX64, TensorProto.COMPLEX128),
    }
)  # those that torch has too
# Attributes whose integer is a type.
TYPE_ATTRIBUTES = frozenset(
    {"to", "dtype", "output_datatype", "output_dtype", "stash_type", "softmax_precision"}
)
REFETCH_HINT = "get the file again from where it came from"
MAX_BYTES = (
    2**31 - 1
)  # bytes: what one protobuf field can hold, so no honest tensor decodes to more
MAX_DIMS = 64  # what numpy and torch can hold
MAX_CONSTANT_ELEMENTS = (
    1 << 28
)  # elements; a larger tensor made out of a few numbers is an attack or a mistake
MASKED_SCORE = -100.0  # a score to which at most this is added counts for nothing after a softmax
_PACKED_BITS = {  # of types of which several elements share a byte
    value: 2 if name.endswith("2") else 4
    for name, value in TensorProto.DataType.items()
    if name in ("UINT4", "INT4", "FLOAT4E2M1", "UINT2", "INT2")
}
# Fields of a tensor that hold values, or say where they are.
DATA_FIELDS = frozenset(
    [
        "raw_data",
        "float_data",
        "int32_data",
        "string_data",
        "int64_data",
        "double_data",
        "uint64_data",
        "data_location",
    ]
)


def get_type_name(data_type: int) -> str:
    """ONNX's name of a data type, for messages."""
    known = TensorProto.DataType.values()
    return str(TensorProto.DataType.Name(data_type)) if data_type in known else f"type {data_type}"


def get_dtype(tensor: TensorProto) -> np.dtype[Any]:
    """The numpy type of a tensor's values."""
    return _dtype(tensor.data_type)


@cache
def _dtype(data_type: int) -> np.dtype[Any]:
    return np.dtype(helper.tensor_dtype_to_np_dtype(data_type))


def count_elements(tensor: TensorProto) -> int:
    """How many elements a tensor's dims say it has."""
    return math.prod(tensor.dims)


def get_byte_size(tensor: TensorProto) -> int:
    """The bytes that a tensor's values take by its dims and type, whatever it holds; impossible dims are refused."""
    try:
        width = get_dtype(tensor).itemsize
    except KeyError:
        raise InputError(
            f"tensor '{tensor.name}' has an unknown type {tensor.data_type}", REFETCH_HINT
        ) from None
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
    """Whether dims are none below zero and no more than there can be; the number of elements may still be too large."""
    dims = tensor.dims
    return not dims or (len(dims) <= MAX_DIMS and min(dims) >= 0)


def has_all_values(tensor: TensorProto) -> bool:
    """Whether a tensor that is not in another file has as many values as its dims say, in the field of its type."""
    size, count = get_byte_size(tensor), count_elements(tensor)
    if tensor.HasField("raw_data"):
        return tensor.data_type != TensorProto.STRING and len(tensor.raw_data) == size
    found = len(getattr(tensor, helper.tensor_dtype_to_field(tensor.data_type)))
    if tensor.data_type in _PACKED_BITS:
        return found >= size
    return found == count * (
        2 if tensor.data_type in (TensorProto.COMPLEX64, TensorProto.COMPLEX128) else 1
    )


def to_array(tensor: TensorProto, name: str = "") -> Array:
    """The values of a tensor; content that does not fit its own dims or type is bad input."""
    name = name or tensor.name
    if tensor.data_location == TensorProto.EXTERNAL:
        raise InputError(
            f"the values of tensor '{name}' are in another file", "load the model from its file"
        )
    try:
        if tensor.HasField("raw_data") and tensor.data_type in FLOAT_TYPES:
            return np.frombuffer(tensor.raw_data, get_dtype(tensor).newbyteorder("<")).reshape(
                tuple(tensor.dims)
            )
        array: Array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError, OverflowError, MemoryError) as error:
        raise InputError(f"tensor '{name}' is corrupt: {error}", REFETCH_HINT) from None
    return array


def is_attention_mask(array: Array) -> bool:
    """Whether an array hides scores: it has infinities or NaN, or nothing but zeros and one number far below them."""
    if array.size == 0:
        return False
    with np.errstate(invalid="ignore"):
        lowest, highest = array.min(), array.max()  # NaN where an element is
    if not (math.isfinite(lowest) and math.isfinite(highest)):
        return True
    return bool(
        array.size > 1 and lowest <= MASKED_SCORE and ((array == 0) | (array == lowest)).all()
    )


def has_constant_tensor(node: NodeProto) -> bool:
    """Whether a node is a Constant that holds a tensor as its attribute `value`."""
    return (
        is_standard(node, "Constant")
        and len(node.output) == 1
        and any(a.name == "value" and a.HasField("t") for a in node.attribute)
    )


def get_constant_tensor(node: NodeProto) -> TensorProto:
    """The tensor of a node for which `is_constant` holds."""
    tensor: TensorProto = next(a.t for a in node.attribute if a.name == "value")
    return tensor


def collect_stored_tensors(graph: GraphProto) -> dict[str, TensorProto]:
    """The tensors stored plainly in one graph, by the name its nodes know them under."""
    return dict(iter_stored_tensors(graph))


def iter_stored_tensors(graph: GraphProto) -> Iterator[tuple[str, TensorProto]]:
    """The same without a dictionary, which for very many tensors takes more memory than they do."""
    yield from ((tensor.name, tensor) for tensor in graph.initializer)
    yield from (
        (node.output[0], get_constant_tensor(node))
        for node in graph.node
        if has_constant_tensor(node)
    )


def iter_tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Every tensor of a model, wherever it is written: graphs, attributes, functions and sparse parts."""
    return (tensor for _, tensor in iter_named_tensors(model, sparse=True))


def iter_named_tensors(
    model: ModelProto, sparse: bool = False
) -> Iterator[tuple[str, TensorProto]]:
    """The same with the name that nodes know a tensor by; "" for one that is not stored plainly in a graph."""
    yield from iter_graph_tensors(model.graph, sparse)
    training = (g for info in model.training_info for g in (info.initialization, info.algorithm))
    yield from (
        ("", tensor) for graph in training for _, tensor in iter_graph_tensors(graph, sparse)
    )
    for function in model.functions:
        yield from (("", tensor) for _, tensor in _node_tensors(function.node))
        for nested in (graph for node in function.node for graph in get_subgraphs(node)):
            yield from (("", tensor) for _, tensor in iter_graph_tensors(nested, sparse))


def iter_graph_tensors(
    graph: GraphProto, sparse: bool = False
) -> Iterator[tuple[str, TensorProto]]:
    """The tensors of a graph, then those of the graphs nested in it."""
    for nested in iter_graphs(graph):
        yield from ((tensor.name, tensor) for tensor in nested.initializer)
        for part in nested.sparse_initializer if sparse else ():
            yield from (("", part.values), ("", part.indices))
        yield from _node_tensors(nested.node)


def _node_tensors(nodes: Collection[NodeProto]) -> Iterator[tuple[str, TensorProto]]:
    for node in nodes:
        for found in node.attribute:
            if found.HasField("t"):
                yield (
                    node.output[0] if found.name == "value" and has_constant_tensor(node) else "",
                    found.t,
                )
            if found.HasField("sparse_tensor"):
                yield from (("", found.sparse_tensor.values), ("", found.sparse_tensor.indices))
            yield from (("", tensor) for tensor in found.tensors)


def make_empty_tensor(
    name: str, data_type: int, dims: Collection[int], like: TensorProto | None = None
) -> TensorProto:
    """A new tensor without values; `like` passes on the doc string."""
    tensor = TensorProto(name=name, data_type=data_type, dims=dims)
    if like is not None:
        copy_fields(
            like,
            tensor,
            skip=DATA_FIELDS | {"name", "dims", "data_type", "segment", "external_data"},
        )
    return tensor


def make_tensor(name: str, data_type: int, array: Array) -> TensorProto:
    """A new tensor with these values."""
    tensor = make_empty_tensor(name, data_type, array.shape)
    set_values(tensor, array.astype(get_dtype(tensor), copy=False))
    return tensor


def set_values(tensor: TensorProto, array: Array) -> None:
    """Give a tensor these values in place of its own; type and dims are the same."""
    clear_values(tensor)
    tensor.raw_data = to_little_endian(array).tobytes()


def clear_values(tensor: TensorProto) -> None:
    """Leave a tensor its name, type and dims."""
    for name in DATA_FIELDS:
        tensor.ClearField(name)


def to_little_endian(array: Array) -> Array:
    """The same values as files have them, without gaps."""
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
