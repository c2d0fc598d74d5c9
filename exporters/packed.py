"""The packed format: ordinary ONNX nodes that rebuild each kernel from its nonzeros, folded away at load.

Every tool that runs ONNX reads it; packed_graph has the nodes, packed_codec the bytes. Names that packing adds begin
with a reserved prefix. Decoding writes the same nodes anew and takes nothing that differs from them.
"""

import re
from collections.abc import Collection, Mapping
from functools import lru_cache

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from ltp_pipeline.errors import InputError
from ltp_pipeline.exporters import lossy, metadata, packed_codec, packed_graph, tensors
from ltp_pipeline.exporters.dense import tidy
from ltp_pipeline.exporters.packed_graph import PREFIX, Decoder, Packed
from ltp_pipeline.exporters.tensors import Array

IR_VERSION = 4  # below it, every initializer has to be a graph input too
_CODES = re.compile(rf"{re.escape(PREFIX)}(\d{{1,9}})/({'|'.join(packed_codec.KINDS)})")
_CODE_TYPES = {"16f": TensorProto.UINT16, "16v": TensorProto.UINT16}
_HEADERS = 60  # bytes that two tensors take beside their values
# What converters add to a node without changing what it does.
_NEUTRAL = {"allowzero": 0, "axis": 0, "exclusive": 0, "fmod": 0, "reduction": b"none", "reverse": 0, "saturate": 1}


def encode(model: ModelProto, kernels: Collection[str], values: str = "own") -> ModelProto:
    """Copy a model with each kernel packed in the form that takes the least room, or left dense if none does.

    A kernel in a Constant node or among the graph inputs comes out of there, as in the sparse format. `values` "fp16"
    and "int8" round what is stored, and the label ltp.values says so.
    """
    lossy.check(values)
    decoder, parts, packed = Decoder(), list[TensorProto](), set[str]()
    for name, tensor in _eligible(model, kernels).items():
        added = _pack(model, name, tensor, len(packed), values, decoder)
        if added:
            parts.extend(added)
            packed.add(name)
    copy = tensors.copy_model(model, drop=packed, first=list(decoder.nodes.values()))
    tidy(copy, kernels)
    if packed:
        for part in (*decoder.constants.values(), *parts):
            copy.graph.initializer.add().CopyFrom(part)
        tensors.raise_ir_version(copy, IR_VERSION)
        tensors.drop_inputs(copy.graph, packed)
        if values != "own":
            metadata.stamp(copy, values=values)
    return copy


def _eligible(model: ModelProto, kernels: Collection[str]) -> dict[str, TensorProto]:
    opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)
    names = {name for node in model.graph.node for name in (*node.input, *node.output)}
    if opset < packed_graph.OPSET or any(name.startswith(PREFIX) for name in names):
        return {}
    outputs = {value.name for value in model.graph.output}
    types = [t for t in tensors.FLOATS if opset >= packed_graph.BFLOAT16_OPSET or t != TensorProto.BFLOAT16]
    return {
        name: tensor
        for name, tensor in tensors.stored(model.graph).items()
        if name in kernels
        and name not in outputs
        and tensor.data_type in types
        and tensor.dims
        and min(tensor.dims) > 0
    }


def _pack(
    model: ModelProto, name: str, tensor: TensorProto, index: int, values: str, into: Decoder
) -> list[TensorProto] | None:
    """The tensors that take the place of one kernel, its decoder added; None where dense is no larger."""
    dims = tuple(tensor.dims)
    kept = lossy.rounded(tensors.to_array(tensor, name), values, lossy.output_axis(model.graph, name) % len(dims))
    flat = kept.stored.reshape(-1)
    where = tensors.nonzero(flat)
    best = min(
        packed_codec.candidates(where, flat.size),
        key=lambda c: c.code_bytes + c.values * flat.dtype.itemsize + _node_bytes(c.kind, kept.values),
    )
    packed = Packed(index, best.kind, name, dims, tensor.data_type, kept.values)
    trial = Decoder(dict(into.nodes), dict(into.constants))
    packed_graph.decoder(packed, trial)
    size = _added_bytes(into, trial) + best.code_bytes + best.values * flat.dtype.itemsize + _HEADERS
    if size >= tensor.ByteSize():
        return None
    into.nodes, into.constants = trial.nodes, trial.constants
    codes, stored = best.make(flat[where])
    data_type = lossy.DATA_TYPES.get(kept.values, tensor.data_type)
    parts = [
        tensors.make(packed.name(best.kind), _CODE_TYPES.get(best.kind, TensorProto.UINT8), codes),
        tensors.make(packed.name("v" if kept.values == "own" else kept.values), data_type, stored, like=tensor),
    ]
    if kept.scale is not None:
        parts.append(tensors.make(packed.name("scale"), tensor.data_type, kept.scale))
    return parts


def _added_bytes(before: Decoder, after: Decoder) -> int:
    nodes = sum(node.ByteSize() + 2 for name, node in after.nodes.items() if name not in before.nodes)
    constants = sum(t.ByteSize() + 2 for name, t in after.constants.items() if name not in before.constants)
    return int(nodes + constants)


@lru_cache
def _node_bytes(kind: str, values: str) -> int:
    """About what the nodes of one tensor take, without those it shares with others."""
    packed, alone = Packed(99, kind, "", (8,), TensorProto.FLOAT, values), Decoder()
    packed_graph.decoder(packed, alone)
    return sum(node.ByteSize() + 2 for output, node in alone.nodes.items() if output.startswith(packed.name("")))


def encoded_names(model: ModelProto) -> list[str]:
    """The names of the packed tensors."""
    return [packed.weight for packed in _find(model)]


def decode(model: ModelProto, names: Collection[str]) -> tuple[dict[str, TensorProto], set[str]]:
    """These packed tensors, dense, and the names of all that packing added for them."""
    nodes = {output: node for node in model.graph.node for output in node.output}
    initializers = {tensor.name: tensor for tensor in model.graph.initializer}
    decoded, added = {}, set[str]()
    for packed in _find(model):
        if packed.weight in names:
            if packed.weight in decoded:
                raise _edited(packed.weight)
            decoded[packed.weight] = _dense(packed, nodes, initializers, added)
    return decoded, added


def _find(model: ModelProto) -> list[Packed]:
    """The packed tensors as their names tell it; whether the rest agrees is for `_dense` to see."""
    initializers = {tensor.name: tensor for tensor in model.graph.initializer}
    coded = [match for name in initializers if (match := _CODES.fullmatch(name))]
    if not coded:
        return []
    users = {node.input[0]: node for node in model.graph.node if node.input and node.input[0].startswith(PREFIX)}
    found = []
    for match in coded:
        head = f"{PREFIX}{match[1]}/"
        values = next((kind for kind in lossy.DATA_TYPES if head + kind in initializers), "own")
        last = users.get(head + ("g" if match[2] == packed_codec.MASK else "d"), NodeProto())
        shape = last.input[1] if len(last.input) == 2 else ""
        if values == "int8":
            last = users.get(head + "w", NodeProto())
        stored = initializers.get(head + ("v" if values == "own" else values))
        if not last.output or not last.output[0] or shape not in initializers or stored is None:
            raise _edited(match[0])
        dims = tuple(int(n) for n in tensors.to_array(initializers[shape]).reshape(-1))
        data_type = stored.data_type if values == "own" else _cast_to(users.get(head + values))
        found.append(Packed(int(match[1]), match[2], last.output[0], dims, data_type, values))
    return found


def _cast_to(node: NodeProto | None) -> int:
    return next((int(a.i) for a in node.attribute if a.name == "to"), 0) if node is not None else 0


def _dense(
    packed: Packed, nodes: Mapping[str, NodeProto], initializers: Mapping[str, TensorProto], added: set[str]
) -> TensorProto:
    elements = 1
    for n in packed.dims:
        elements *= n
    if packed.data_type not in tensors.FLOATS or min(packed.dims, default=0) < 1 or elements > tensors.LARGEST // 2:
        raise _edited(packed.weight)
    wanted = Decoder()
    packed_graph.decoder(packed, wanted)
    for output, node in wanted.nodes.items():
        if output not in nodes or not _same(node, nodes[output]) or output in initializers:
            raise _edited(packed.weight)
    for name, constant in wanted.constants.items():
        if name not in initializers or not _equal(constant, initializers[name]):
            raise _edited(packed.weight)
    own = {packed.name(part) for part in (packed.kind, "v", "scale", *lossy.DATA_TYPES)} & set(initializers)
    added.update(own, wanted.nodes, wanted.constants)
    stored = initializers[packed.name("v" if packed.values == "own" else packed.values)]
    codes, values = (tensors.to_array(initializers[packed.name(packed.kind)]), tensors.to_array(stored))
    try:
        flat = packed_codec.decode(packed.kind, codes, values, elements)
    except ValueError as error:
        raise InputError(f"packed tensor '{packed.weight}' {error}", "export it again") from None
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(packed.data_type))
    dense = lossy.restored(flat, packed.dims, dtype, _scale(packed, initializers))
    return tensors.make(packed.weight, packed.data_type, dense, like=stored)


def _scale(packed: Packed, initializers: Mapping[str, TensorProto]) -> Array | None:
    if packed.values != "int8":
        return None
    tensor = initializers.get(packed.name("scale"), TensorProto())
    shape = tuple(tensor.dims)
    fits = len(shape) == len(packed.dims) and all(n in (1, d) for n, d in zip(shape, packed.dims, strict=True))
    if tensor.data_type != packed.data_type or not fits:
        raise _edited(packed.weight)
    return tensors.to_array(tensor)


def _same(wanted: NodeProto, found: NodeProto) -> bool:
    parts = [(n.op_type, n.domain.replace("ai.onnx", ""), list(n.input), list(n.output)) for n in (wanted, found)]
    ours, theirs = ({a.name: helper.get_attribute_value(a) for a in n.attribute} for n in (wanted, found))
    extra = [(key, value) for key, value in theirs.items() if key not in ours]
    same = all(key in theirs and theirs[key] == value for key, value in ours.items())
    return parts[0] == parts[1] and same and all(_NEUTRAL.get(key) == value for key, value in extra)


def _equal(wanted: TensorProto, found: TensorProto) -> bool:
    return (wanted.data_type, list(wanted.dims)) == (found.data_type, list(found.dims)) and np.array_equal(
        tensors.to_array(wanted), tensors.to_array(found)
    )


def _edited(name: str) -> InputError:
    return InputError(
        f"packed tensor '{name}' is not as it was written: its nodes, names or constants were changed",
        "export it again, or unpack the file as it was first written",
    )
