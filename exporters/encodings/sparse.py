"""The sparse encoding: GraphProto.sparse_initializer, the ONNX standard's way to omit zeros.

A valid sparse initializer has int64 indices that are linear, ascending and unique, and dims that
are positive and at least 1-D. Its name stands on `values` alone, and no input or dense initializer
of the graph has it. The file has IR version 6 or later. onnxruntime accepts more and computes wrong
results from some of it, so this module writes and reads nothing else.
"""

import math
from collections.abc import Collection
from dataclasses import replace

import numpy as np
from onnx import SparseTensorProto, TensorProto

from ltp_pipeline.errors import InputError
from ltp_pipeline.exporters.encodings.encoding import (
    DecodedTensors,
    Encoding,
    check_memory,
    find_encodable,
    remove_tensors,
)
from ltp_pipeline.exporters.files.nonzeros import NonzeroIndex, TensorNonzeros
from ltp_pipeline.graph.edit import drop_inputs, raise_ir_version
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.nodes import collect_names
from ltp_pipeline.graph.tensors import (
    get_byte_size,
    make_empty_tensor,
    to_array,
)
from ltp_pipeline.system.arrays import Array

IR_VERSION = 6
INDEX_BYTES = 8  # bytes of one index
INDEX_HEADER_BYTES = 32  # bytes that the indices take in addition to their values
GET_AGAIN = "get the file again from where it came from, or export it again"


def encode(model: OnnxModel, weight_names: Collection[str]) -> OnnxModel:
    """Return the model with its layer weights sparse if that makes the file smaller.

    The weight of a Constant node becomes an initializer with the name of the node's output. A
    weight that is also a graph input is no longer an input, because a sparse initializer may not
    be one.
    """
    index = NonzeroIndex.from_names(model, weight_names)
    tensors = find_encodable(model, weight_names)
    nonzeros: dict[str, TensorNonzeros] = {}
    for name, tensor in tensors.items():
        part = index.get_nonzeros(name)
        element_bytes = INDEX_BYTES + part.values.dtype.itemsize
        if part.positions.size * element_bytes + INDEX_HEADER_BYTES < get_byte_size(tensor):
            nonzeros[name] = part
    encoded = index.replace_negative_zeros(remove_tensors(model, nonzeros))
    for name, part in nonzeros.items():
        tensor = tensors[name]
        entry = encoded.graph.sparse_initializer.add(dims=tensor.dims)
        entry.values.CopyFrom(make_empty_tensor(name, tensor.data_type, part.values.shape))
        entry.values.doc_string = tensor.doc_string
        entry.indices.data_type = TensorProto.INT64
        entry.indices.dims.extend(part.positions.shape)
    if nonzeros:
        raise_ir_version(encoded.proto, IR_VERSION)
        drop_inputs(encoded.graph, nonzeros)
    parts = {name: (part.values, part.positions) for name, part in nonzeros.items()}
    return replace(encoded, sparse=parts)


def find_encoded_names(model: OnnxModel) -> list[str]:
    """Return the names of the sparse tensors of a model."""
    return [sparse.values.name for sparse in model.graph.sparse_initializer]


def decode(model: OnnxModel, names: Collection[str]) -> DecodedTensors:
    """Decode sparse tensors by name; the encoding adds no other names to the graph.

    Raises:
        InputError: If a sparse tensor is not valid.
    """
    graph = model.graph
    taken_names = collect_names(graph.input)
    taken_names.update(tensor.name for tensor in graph.initializer)
    taken_names.update(name for node in graph.node for name in node.output)
    for name in find_encoded_names(model):
        if not name or name in taken_names:
            raise _make_corrupt_error(name, "has a name that something else in the graph has too")
        taken_names.add(name)
    decoded = DecodedTensors()
    for sparse in graph.sparse_initializer:
        values = sparse.values
        if values.name in names:
            tensor = make_empty_tensor(values.name, values.data_type, sparse.dims, like=values)
            decoded.tensors[values.name] = tensor
    check_memory(sum(map(get_byte_size, decoded.tensors.values())))
    for sparse in graph.sparse_initializer:
        if sparse.values.name in names:
            decoded.weights[sparse.values.name] = _build_dense_array(model, sparse)
    return decoded


def _build_dense_array(model: OnnxModel, sparse: SparseTensorProto) -> Array:
    """Return a sparse tensor as a dense array, if its indices are ascending and in range."""
    name = sparse.values.name
    if name in model.sparse:
        values, indices = model.sparse[name]
    else:
        values = to_array(sparse.values)
        indices = to_array(sparse.indices, f"{name} (indices)")
    dims = tuple(sparse.dims)
    if not dims or min(dims) < 1:
        raise _make_corrupt_error(name, f"has impossible dims {list(dims)}")
    if sparse.indices.data_type != TensorProto.INT64:
        raise _make_corrupt_error(name, "has indices that are not int64")
    if values.ndim != 1 or indices.shape not in (values.shape, (values.size, len(dims))):
        raise _make_corrupt_error(name, f"has {values.shape} values but {indices.shape} indices")
    limits = dims if indices.ndim == 2 else math.prod(dims)
    if ((indices < 0) | (indices >= limits)).any():
        raise _make_corrupt_error(name, "has indices out of range")
    if indices.ndim == 2:  # one row of coordinates per value
        indices = np.ravel_multi_index(tuple(indices.T), dims)
    if (indices[1:] <= indices[:-1]).any():
        raise _make_corrupt_error(name, "has indices that are unsorted or duplicated")
    dense = np.zeros(math.prod(dims), values.dtype)
    dense[indices] = values
    return dense.reshape(dims)


def _make_corrupt_error(name: str, problem: str) -> InputError:
    """Return the error for a sparse tensor that is not valid."""
    return InputError(f"sparse tensor '{name}' {problem}", GET_AGAIN)


ENCODING = Encoding(
    name="sparse",
    description="the standard's `sparse_initializer`; for onnxruntime",
    encode=encode,
    find_encoded_names=find_encoded_names,
    decode=decode,
    tool_remarks={
        "OpenVINO": "no",
        "onnx: checker": "yes, not with `full_check`",
        "onnx: shape inference, version converter": "no",
        "onnx: ReferenceEvaluator": "no",
        "onnx-ir": "**no: drops the weights with a warning**",
        "onnxscript's optimizer": "**no: drops the weights silently**",
        "onnxsim, onnxslim": "yes, leave it sparse",
    },
    # Shape inference types a sparse initializer as sparse, so full_check fails for such files.
    passes_full_check=False,
)
