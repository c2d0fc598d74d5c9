"""Serialize a model in pieces, without copying its weights.

The pieces together are the same bytes as `SerializeToString(deterministic=True)`, in a fraction of
the time: protobuf copies large fields several times while it nests messages. Here the weights of
initializers are written from where they are; protobuf serializes what is around them. Numbers in
the code are field numbers of ONNX's messages.
"""

from collections.abc import Collection

import numpy as np
from google.protobuf.message import Message  # type: ignore[import-untyped]
from onnx import TensorProto

from ltp_pipeline.graph.edit import copy_fields
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.tensors import (
    DATA_FIELDS,
    iter_graph_tensors,
    set_values,
    to_little_endian,
)
from ltp_pipeline.system.arrays import Array

FilePiece = bytes | Array
LARGE_BYTES = 1 << 16  # protobuf is fast enough for smaller tensors

_MODEL_GRAPH = 7
_GRAPH_INITIALIZER = 5
_GRAPH_SPARSE_INITIALIZER = 15
_SPARSE_VALUES = 1
_SPARSE_INDICES = 2
_TENSOR_RAW_DATA = 9
_LENGTH_DELIMITED = 2  # wire type of nested messages and bytes


def get_size(piece: FilePiece) -> int:
    """Return the number of bytes of a piece."""
    return len(piece) if isinstance(piece, bytes) else int(piece.nbytes)


def get_content(piece: FilePiece) -> bytes | memoryview:
    """Return the bytes of a piece."""
    if isinstance(piece, bytes):
        return piece
    return to_little_endian(piece).reshape(-1).view(np.uint8).data


def serialize_model(model: OnnxModel) -> list[FilePiece]:
    """Return the pieces of a model's file in order."""
    proto = model.proto
    return [
        _serialize_fields(proto, 0, _MODEL_GRAPH),
        *_nest(_MODEL_GRAPH, _serialize_graph(model)),
        _serialize_fields(proto, _MODEL_GRAPH),
    ]


def _serialize_graph(model: OnnxModel) -> list[FilePiece]:
    graph = model.graph
    weights = dict(model.weights)
    initializers: list[FilePiece] = []
    for tensor in graph.initializer:
        pieces = _serialize_tensor(tensor, weights.pop(tensor.name, None))
        initializers += _nest(_GRAPH_INITIALIZER, pieces)
    sparse: list[FilePiece] = []
    for part in graph.sparse_initializer:
        values, indices = model.sparse.get(part.values.name, (None, None))
        pieces = [
            *_nest(_SPARSE_VALUES, _serialize_tensor(part.values, values)),
            *_nest(_SPARSE_INDICES, _serialize_tensor(part.indices, indices)),
            _serialize_fields(part, _SPARSE_INDICES),
        ]
        sparse += _nest(_GRAPH_SPARSE_INITIALIZER, pieces)
    # Tensors of Constant nodes and of nested graphs lie before the initializers.
    first = _copy_part(graph, 0, _GRAPH_INITIALIZER)
    for name, tensor in iter_graph_tensors(first):
        if name in weights:
            set_values(tensor, weights.pop(name))
    return [
        _serialize(first),
        *initializers,
        _serialize_fields(graph, _GRAPH_INITIALIZER, _GRAPH_SPARSE_INITIALIZER),
        *sparse,
        _serialize_fields(graph, _GRAPH_SPARSE_INITIALIZER),
    ]


def _serialize_tensor(tensor: TensorProto, array: Array | None) -> list[FilePiece]:
    """Return the pieces of a tensor, whose values may be in an array."""
    if array is None:
        return [_serialize(tensor)]
    if array.nbytes >= LARGE_BYTES:
        return [
            _serialize_fields(tensor, 0, _TENSOR_RAW_DATA, skip=DATA_FIELDS),
            *_nest(_TENSOR_RAW_DATA, [array]),
            _serialize_fields(tensor, _TENSOR_RAW_DATA, skip=DATA_FIELDS),
        ]
    copy = TensorProto()
    copy.CopyFrom(tensor)
    set_values(copy, array)
    return [_serialize(copy)]


def _serialize_fields(
    message: Message, after: int, before: int = 1 << 29, skip: Collection[str] = ()
) -> bytes:
    """Return the bytes of the fields whose numbers lie strictly between two others."""
    return _serialize(_copy_part(message, after, before, skip))


def _copy_part(message: Message, after: int, before: int, skip: Collection[str] = ()) -> Message:
    """Return a message with the fields whose numbers lie strictly between two others."""
    part = type(message)()
    fields = message.DESCRIPTOR.fields
    outside = {field.name for field in fields if not after < field.number < before}
    copy_fields(message, part, skip=outside.union(skip))
    return part


def _serialize(message: Message) -> bytes:
    content: bytes = message.SerializeToString(deterministic=True)
    return content


def _nest(number: int, pieces: list[FilePiece]) -> list[FilePiece]:
    """Return a length-delimited field: its key, the length, and the pieces."""
    length = sum(map(get_size, pieces))
    return [_encode_varint(number << 3 | _LENGTH_DELIMITED) + _encode_varint(length), *pieces]


def _encode_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
