"""A model's bytes in pieces, the same bytes as SerializeToString(deterministic=True) in a fraction of the time.

protobuf copies large fields several times while it nests messages. Here each large tensor is fetched once, when it is
its turn to be written, and what is around it is left to protobuf.
"""

import numpy as np
from google.protobuf.message import Message  # type: ignore[import-untyped]
from onnx import GraphProto, SparseTensorProto, TensorProto

from ltp_pipeline.errors import ExportFailed
from ltp_pipeline.exporters.draft import LARGE, Draft
from ltp_pipeline.exporters.tensors import Array, byte_size, copy_fields, little_endian

Piece = bytes | Array | TensorProto  # a tensor stands for its raw_data


def size(piece: Piece) -> int:
    """How many bytes a piece has."""
    if isinstance(piece, TensorProto):
        return byte_size(piece)
    return len(piece) if isinstance(piece, bytes) else int(piece.nbytes)


def content(piece: Piece) -> bytes | memoryview:
    """The bytes of a piece."""
    if isinstance(piece, bytes):
        return piece
    if isinstance(piece, np.ndarray):
        return little_endian(piece).reshape(-1).view(np.uint8).data
    data: bytes = piece.raw_data
    if len(data) != byte_size(piece):
        raise ExportFailed(f"tensor '{piece.name}' holds {len(data)} bytes, its dims say {byte_size(piece)}", "fix it")
    return data


def pieces(draft: Draft) -> list[Piece]:
    """What to write, in order."""
    model = draft.model
    return [_fields(model, 0, 7), *_nested(7, _graph(model.graph, draft)), _fields(model, 7)]


def _graph(graph: GraphProto, draft: Draft) -> list[Piece]:
    found: list[Piece] = [_fields(graph, 0, 5)]
    for tensor in graph.initializer:
        found += _nested(5, _tensor(tensor, draft.content.get(tensor.name)))
    found.append(_fields(graph, 5, 15))
    for sparse in graph.sparse_initializer:
        found += _nested(15, _sparse(sparse, draft))
    return [*found, _fields(graph, 15)]


def _sparse(sparse: SparseTensorProto, draft: Draft) -> list[Piece]:
    name = sparse.values.name
    values = _tensor(sparse.values, draft.content.get(name))
    indices = _tensor(sparse.indices, draft.indices.get(name))
    return [*_nested(1, values), *_nested(2, indices), _fields(sparse, 2)]


def _tensor(tensor: TensorProto, held: Array | TensorProto | None) -> list[Piece]:
    if held is None and (byte_size(tensor) < LARGE or not tensor.HasField("raw_data")):
        return [tensor.SerializeToString(deterministic=True)]
    return [_fields(tensor, 0, 9), *_nested(9, [tensor if held is None else held]), _fields(tensor, 9)]


def _fields(message: Message, after: int, before: int = 1 << 29) -> bytes:
    """The fields with numbers between two others, which are left out."""
    part = type(message)()
    outside = {field.name for field in message.DESCRIPTOR.fields if not after < field.number < before}
    copy_fields(message, part, skip=outside)
    serialized: bytes = part.SerializeToString(deterministic=True)
    return serialized


def _nested(number: int, parts: list[Piece]) -> list[Piece]:
    """A length-delimited field: its key, the length, the content."""
    return [_varint(number << 3 | 2) + _varint(sum(map(size, parts))), *parts]


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
