"""A model's bytes in pieces, the same bytes as SerializeToString(deterministic=True) in a fraction of the time.

protobuf copies large fields several times while it nests messages. Here the weights of initializers are written from
where they are, and what is around them is left to protobuf.
"""

from collections.abc import Collection

import numpy as np
from google.protobuf.message import Message  # type: ignore[import-untyped]
from onnx import SparseTensorProto, TensorProto

from ltp_pipeline.graph.edit import copy_fields
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.tensors import DATA_FIELDS, iter_graph_tensors, set_values, to_little_endian
from ltp_pipeline.system.arrays import Array

FilePiece = bytes | Array
LARGE = 1 << 16  # bytes: below, protobuf is fast enough


def get_size(piece: FilePiece) -> int:
    """How many bytes a piece has."""
    return len(piece) if isinstance(piece, bytes) else int(piece.nbytes)


def get_content(piece: FilePiece) -> bytes | memoryview:
    """The bytes of a piece."""
    return (
        piece
        if isinstance(piece, bytes)
        else to_little_endian(piece).reshape(-1).view(np.uint8).data
    )


def serialize_model(model: OnnxModel) -> list[FilePiece]:
    """What to write, in order."""
    proto = model.proto
    return [_fields(proto, 0, 7), *_nested(7, _graph(model)), _fields(proto, 7)]


def _graph(model: OnnxModel) -> list[FilePiece]:
    graph, left = model.graph, dict(model.weights)
    initializers = list[FilePiece]()
    for tensor in graph.initializer:
        initializers += _nested(5, _tensor(tensor, left.pop(tensor.name, None)))
    sparse = list[FilePiece]()
    for part in graph.sparse_initializer:
        sparse += _nested(15, _sparse(part, model.sparse.get(part.values.name, (None, None))))
    first = _part(graph, 0, 5)
    for name, tensor in iter_graph_tensors(first):  # of Constant nodes and nested graphs
        if name in left:
            set_values(tensor, left.pop(name))
    return [_bytes(first), *initializers, _fields(graph, 5, 15), *sparse, _fields(graph, 15)]


def _sparse(part: SparseTensorProto, held: tuple[Array | None, Array | None]) -> list[FilePiece]:
    values, indices = _tensor(part.values, held[0]), _tensor(part.indices, held[1])
    return [*_nested(1, values), *_nested(2, indices), _fields(part, 2)]


def _tensor(tensor: TensorProto, held: Array | None) -> list[FilePiece]:
    if held is None:
        return [_bytes(tensor)]
    if held.nbytes >= LARGE:
        return [
            _fields(tensor, 0, 9, skip=DATA_FIELDS),
            *_nested(9, [held]),
            _fields(tensor, 9, skip=DATA_FIELDS),
        ]
    copy = TensorProto()
    copy.CopyFrom(tensor)
    set_values(copy, held)
    return [_bytes(copy)]


def _fields(
    message: Message, after: int, before: int = 1 << 29, skip: Collection[str] = ()
) -> bytes:
    """The fields with numbers between two others, which are left out."""
    return _bytes(_part(message, after, before, skip))


def _part(message: Message, after: int, before: int, skip: Collection[str] = ()) -> Message:
    part = type(message)()
    outside = {
        field.name for field in message.DESCRIPTOR.fields if not after < field.number < before
    }
    copy_fields(message, part, skip=outside.union(skip))
    return part


def _bytes(message: Message) -> bytes:
    serialized: bytes = message.SerializeToString(deterministic=True)
    return serialized


def _nested(number: int, parts: list[FilePiece]) -> list[FilePiece]:
    """A length-delimited field: its key, the length, the content."""
    return [_varint(number << 3 | 2) + _varint(sum(map(get_size, parts))), *parts]


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
