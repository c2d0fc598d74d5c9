"""The sparse encoding: GraphProto.sparse_initializer, the standard's own way to leave zeros out.

Valid means: int64 indices, linear, ascending, unique; dims at least 1-D and positive; IR version 6 or later; the name
on `values` alone, and nowhere else in the graph as an input or a dense initializer. onnxruntime accepts more than that
and computes wrong results from some of it, so nothing else is written and nothing else is read.
"""

import math
from collections.abc import Collection
from dataclasses import replace

import numpy as np
from onnx import SparseTensorProto, TensorProto

from ltp_pipeline.errors import InputError
from ltp_pipeline.exporters.encodings.encoding import DecodedTensors, Encoding, check_memory
from ltp_pipeline.exporters.files import tensors
from ltp_pipeline.exporters.files.nonzeros import NonzeroIndex, TensorNonzeros
from ltp_pipeline.graph.edit import drop_inputs
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.tensors import (
    WEIGHT_TYPES,
    collect_stored_tensors,
    get_byte_size,
    make_empty_tensor,
    to_array,
)
from ltp_pipeline.system.arrays import Array

IR_VERSION = 6
INDEX_HEADER_BYTES = 32  # bytes that the indices take beside themselves
GET_AGAIN = "get the file again from where it came from, or export it again"


def encode(model: OnnxModel, weight_names: Collection[str]) -> OnnxModel:
    """The model with its kernels sparse where that makes the file smaller.

    A kernel in a Constant node becomes an initializer of the node's output name and the node goes; a kernel that is
    also a graph input loses the input, because a sparse initializer may not be one.
    """
    scan = NonzeroIndex.from_names(model, weight_names)
    outputs = {value.name for value in model.graph.output}
    dense = {
        n: t
        for n, t in collect_stored_tensors(model.graph).items()
        if n in weight_names and n not in outputs
    }
    encoded = {
        name: parts
        for name, tensor in dense.items()
        if (parts := _find_nonzeros_if_smaller(scan, name, tensor))
    }
    copy = scan.replace_negative_zeros(tensors.remove_tensors(model, encoded))
    for name, found in encoded.items():
        entry = copy.graph.sparse_initializer.add(dims=dense[name].dims)
        entry.values.CopyFrom(make_empty_tensor(name, dense[name].data_type, found.values.shape))
        entry.values.doc_string = dense[name].doc_string
        entry.indices.data_type = TensorProto.INT64
        entry.indices.dims.extend(found.positions.shape)
    if encoded:
        tensors.raise_ir_version(copy.proto, IR_VERSION)
        drop_inputs(copy.graph, encoded)
    return replace(
        copy, sparse={name: (found.values, found.positions) for name, found in encoded.items()}
    )


def _find_nonzeros_if_smaller(
    scan: NonzeroIndex, name: str, tensor: TensorProto
) -> TensorNonzeros | None:
    """The nonzeros of a tensor; None where dense is no larger."""
    if tensor.data_type not in WEIGHT_TYPES or not tensor.dims or 0 in tensor.dims:
        return None
    found = scan.get_nonzeros(name)
    if found.positions.size * (
        8 + found.values.dtype.itemsize
    ) + INDEX_HEADER_BYTES >= get_byte_size(tensor):
        return None
    return found


def find_encoded_names(model: OnnxModel) -> list[str]:
    """The names of the sparse tensors."""
    return [sparse.values.name for sparse in model.graph.sparse_initializer]


def decode(model: OnnxModel, names: Collection[str]) -> DecodedTensors:
    """These sparse tensors, dense; nothing was added to the graph for them."""
    graph, found = model.graph, DecodedTensors()
    taken = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    taken |= {output for node in graph.node for output in node.output}
    for name in find_encoded_names(model):
        if not name or name in taken:
            raise _make_corrupt_error(name, "has a name that something else in the graph has too")
        taken.add(name)
    wanted = [sparse for sparse in graph.sparse_initializer if sparse.values.name in names]
    check_memory(sum(_get_dense_bytes(sparse) for sparse in wanted))
    for sparse in wanted:
        name = sparse.values.name
        values, where = model.sparse.get(name) or _read_parts(sparse)
        found.weights[name] = _build_dense_array(sparse, values, where)
        found.tensors[name] = make_empty_tensor(
            name, sparse.values.data_type, sparse.dims, like=sparse.values
        )
    return found


def _get_dense_bytes(sparse: SparseTensorProto) -> int:
    """The bytes of a tensor once it is dense; dims that no tensor can have are refused."""
    return get_byte_size(
        make_empty_tensor(sparse.values.name, sparse.values.data_type, sparse.dims)
    )


def _read_parts(sparse: SparseTensorProto) -> tuple[Array, Array]:
    return to_array(sparse.values), to_array(sparse.indices, f"{sparse.values.name} (indices)")


def _build_dense_array(sparse: SparseTensorProto, values: Array, where: Array) -> Array:
    name, dims = sparse.values.name, tuple(sparse.dims)
    if not dims or min(dims) < 1:
        raise _make_corrupt_error(name, f"has impossible dims {list(dims)}")
    if sparse.indices.data_type != TensorProto.INT64:
        raise _make_corrupt_error(name, "has indices that are not int64")
    if values.ndim != 1 or where.shape not in (values.shape, (values.size, len(dims))):
        raise _make_corrupt_error(name, f"has {values.shape} values but {where.shape} indices")
    if where.ndim == 2:
        if ((where < 0) | (where >= dims)).any():
            raise _make_corrupt_error(name, "has indices out of range")
        where = np.ravel_multi_index(tuple(where.T), dims)
    dense = np.zeros(math.prod(dims), values.dtype)
    _scatter_values(name, dense, where, values)
    return dense.reshape(dims)


def _scatter_values(name: str, dense: Array, where: Array, values: Array) -> None:
    """Write values into a flat array; positions out of range, unsorted or duplicated are bad input."""
    if where.size and (where.min() < 0 or where.max() >= dense.size):
        raise _make_corrupt_error(name, "has indices out of range")
    if (where[1:] <= where[:-1]).any():
        raise _make_corrupt_error(name, "has indices that are unsorted or duplicated")
    dense[where] = values


def _make_corrupt_error(name: str, what: str) -> InputError:
    return InputError(f"sparse tensor '{name}' {what}", GET_AGAIN)


ENCODING = Encoding(
    name="sparse",
    description="the standard's `sparse_initializer`; for onnxruntime",
    tool_support={
        "onnxruntime": "yes",
        "OpenVINO": "no",
        "onnx: checker": "yes, not with `full_check`",
        "onnx: shape inference, version converter": "no",
        "onnx: ReferenceEvaluator": "no",
        "onnx: compose": "yes",
        "onnx-ir": "**no: drops the weights with a warning**",
        "onnxscript's optimizer": "**no: drops the weights silently**",
        "onnxsim, onnxslim": "yes, leave it sparse",
    },
    encode=encode,
    find_encoded_names=find_encoded_names,
    decode=decode,
    # Shape inference types a sparse initializer as sparse, so full_check fails on every valid file with one.
    passes_full_check=False,
)
