"""The sparse encoding: GraphProto.sparse_initializer, the standard's own way to leave zeros out.

Valid means: int64 indices, linear, ascending, unique; dims at least 1-D and positive; IR version 6 or later; the name
on `values` alone, and nowhere else in the graph as an input or a dense initializer. onnxruntime accepts more than that
and computes wrong results from some of it, so nothing else is written and nothing else is read.
"""

from collections.abc import Collection

import numpy as np
from onnx import ModelProto, SparseTensorProto, TensorProto

from ltp_pipeline.errors import InputError
from ltp_pipeline.exporters import tensors
from ltp_pipeline.exporters.draft import Draft, put_or_hold
from ltp_pipeline.exporters.encodings.dense import clear_negative_zeros
from ltp_pipeline.exporters.encodings.encoding import Decoded, Encoding
from ltp_pipeline.exporters.scan import Nonzeros, Scan
from ltp_pipeline.exporters.tensors import Array

IR_VERSION = 6
HEADER = 32  # bytes that the indices take beside themselves
AGAIN = "get the file again from where it came from, or export it again"


def draft(model: ModelProto, kernels: Collection[str]) -> Draft:
    """Copy a model with its kernels sparse where that makes the file smaller, the large tensors beside the copy.

    A kernel in a Constant node becomes an initializer of the node's output name and the node goes; a kernel that is
    also a graph input loses the input, because a sparse initializer may not be one.
    """
    scan = Scan.of(model, kernels)
    outputs = {value.name for value in model.graph.output}
    stored = {n: t for n, t in tensors.stored(model.graph).items() if n in kernels and n not in outputs}
    encoded = {name: parts for name, tensor in stored.items() if (parts := _smaller(scan, name, tensor))}
    copy = tensors.copy_model(model, drop=encoded)
    clear_negative_zeros(copy, scan)
    values, indices = dict[str, Array](), dict[str, Array]()
    for name, found in encoded.items():
        entry = copy.graph.sparse_initializer.add(dims=stored[name].dims)
        entry.values.name, entry.values.doc_string = name, stored[name].doc_string
        put_or_hold(entry.values, stored[name].data_type, found.values, values, name)
        put_or_hold(entry.indices, TensorProto.INT64, found.where, indices, name)
    if encoded:
        tensors.raise_ir_version(copy, IR_VERSION)
        tensors.drop_inputs(copy.graph, encoded)
    return Draft(copy, dict(values), indices)


def _smaller(scan: Scan, name: str, tensor: TensorProto) -> Nonzeros | None:
    """The nonzeros of a tensor; None where dense is no larger."""
    if tensor.data_type not in tensors.FLOATS or not tensor.dims or 0 in tensor.dims:
        return None
    found = scan.nonzeros(name, tensor)
    if found.where.size * (8 + found.values.dtype.itemsize) + HEADER >= tensors.byte_size(tensor):
        return None
    return found


def encoded_names(model: ModelProto) -> list[str]:
    """The names of the sparse tensors."""
    return [sparse.values.name for sparse in model.graph.sparse_initializer]


def decode(model: ModelProto, names: Collection[str]) -> Decoded:
    """These sparse tensors, dense; nothing was added to the graph for them."""
    taken = {value.name for value in model.graph.input} | {tensor.name for tensor in model.graph.initializer}
    taken |= {output for node in model.graph.node for output in node.output}
    for name in encoded_names(model):
        if not name or name in taken:
            raise _corrupt(name, "has a name that something else in the graph has too")
        taken.add(name)
    return {s.values.name: _dense(s) for s in model.graph.sparse_initializer if s.values.name in names}, set()


def _dense(sparse: SparseTensorProto) -> TensorProto:
    name, dims = sparse.values.name, tuple(sparse.dims)
    values, where = tensors.to_array(sparse.values), tensors.to_array(sparse.indices, f"{name} (indices)")
    elements = 1
    for n in dims:
        elements *= n
    if not dims or min(dims) < 1 or elements * values.dtype.itemsize > tensors.LARGEST:
        raise _corrupt(name, f"has impossible dims {list(dims)}")
    if sparse.indices.data_type != TensorProto.INT64:
        raise _corrupt(name, "has indices that are not int64")
    if values.ndim != 1 or where.shape not in (values.shape, (values.size, len(dims))):
        raise _corrupt(name, f"has {values.shape} values but {where.shape} indices")
    if where.ndim == 2:
        if ((where < 0) | (where >= dims)).any():
            raise _corrupt(name, "has indices out of range")
        where = np.ravel_multi_index(tuple(where.T), dims)
    dense = np.zeros(elements, values.dtype)
    _scatter(name, dense, where, values)
    return tensors.make(name, sparse.values.data_type, dense.reshape(dims), like=sparse.values)


def _scatter(name: str, dense: Array, where: Array, values: Array) -> None:
    """Write values into a flat array; positions out of range, unsorted or duplicated are bad input."""
    if where.size and (where.min() < 0 or where.max() >= dense.size):
        raise _corrupt(name, "has indices out of range")
    if (where[1:] <= where[:-1]).any():
        raise _corrupt(name, "has indices that are unsorted or duplicated")
    dense[where] = values


def _corrupt(name: str, what: str) -> InputError:
    return InputError(f"sparse tensor '{name}' {what}", AGAIN)


ENCODING = Encoding(
    name="sparse",
    about="the standard's `sparse_initializer`; for onnxruntime",
    readers={
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
    draft=draft,
    encoded_names=encoded_names,
    decode=decode,
    # Shape inference types a sparse initializer as sparse, so full_check fails on every valid file with one.
    full_check=False,
)
