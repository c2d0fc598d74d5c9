"""Packed files read back. The decoding nodes are written anew, and nothing that differs from them is taken."""

import re
from collections.abc import Collection, Mapping

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from ltp_pipeline.errors import InputError
from ltp_pipeline.exporters import lossy, packed_codec, packed_graph, tensors
from ltp_pipeline.exporters.packed_graph import PREFIX, Group
from ltp_pipeline.exporters.tensors import Array

_CODES = re.compile(rf"{re.escape(PREFIX)}(\d{{1,9}})/({'|'.join(packed_codec.KINDS)})")
# What converters add to a node without changing what it does.
_NEUTRAL = {"allowzero": 0, "axis": 0, "exclusive": 0, "fmod": 0, "reduction": b"none", "reverse": 0, "saturate": 1}


def encoded_names(model: ModelProto) -> list[str]:
    """The names of the packed tensors."""
    return [name for group in _find(model) for name, _ in group.members]


def decode(model: ModelProto, names: Collection[str]) -> tuple[dict[str, TensorProto], set[str]]:
    """These packed tensors, dense, and the names of all that packing added to the groups they are in."""
    decoded, added = dict[str, TensorProto](), set[str]()
    groups = _find(model)
    if not groups:
        return decoded, added
    nodes = {output: node for node in model.graph.node for output in node.output}
    initializers = {tensor.name: tensor for tensor in model.graph.initializer}
    opset = packed_graph.opset_of(model)
    for group in groups:
        if any(name in names for name, _ in group.members):
            _check(group, opset, nodes, initializers, added)
            for (name, dims), array in zip(group.members, _arrays(group, initializers), strict=True):
                if name in decoded:
                    raise _edited(name)
                decoded[name] = tensors.make(name, group.data_type, array.reshape(dims))
    return decoded, added


def _find(model: ModelProto) -> list[Group]:
    """The groups as the names tell it; whether the rest agrees is for `_check` to see."""
    initializers = {tensor.name: tensor for tensor in model.graph.initializer}
    coded = [match for name in initializers if (match := _CODES.fullmatch(name))]
    if not coded:
        return []
    users = {node.input[0]: node for node in model.graph.node if node.input and node.input[0].startswith(PREFIX)}
    return [_group(match, users, initializers) for match in coded]


def _group(match: re.Match[str], users: Mapping[str, NodeProto], initializers: Mapping[str, TensorProto]) -> Group:
    head, kind = f"{PREFIX}{match[1]}/", match[2]
    values = next((v for v, part in lossy.PARTS.items() if head + part in initializers), None)
    if values is None:
        raise _edited(match[0])
    flat = head + ("g" if kind == packed_codec.MASK else "d")
    split = users.get(flat, NodeProto())
    parts = list(split.output) if split.op_type == "Split" else [flat]
    members = []
    for nth, part in enumerate(parts):
        last = users.get(part, NodeProto())
        shape = initializers.get(last.input[1]) if len(last.input) == 2 else None
        if values == "int8":
            last = users.get(f"{head}{nth}w", NodeProto())
        if shape is None or len(last.output) != 1 or shape.data_type != TensorProto.INT64:
            raise _edited(match[0])
        members.append((str(last.output[0]), tuple(int(n) for n in tensors.to_array(shape).reshape(-1))))
    cast = users.get(head + lossy.PARTS[values], NodeProto())
    cast_to = next((int(a.i) for a in cast.attribute if a.name == "to"), 0)
    data_type = initializers[head + "v"].data_type if values == "own" else cast_to
    return Group(int(match[1]), kind, data_type, values, tuple(members))


def _check(
    group: Group,
    opset: int,
    nodes: Mapping[str, NodeProto],
    initializers: Mapping[str, TensorProto],
    added: set[str],
) -> None:
    """Raise InputError unless the nodes and constants of a group are the ones that its encoder writes."""
    name = group.members[0][0]
    if group.data_type not in tensors.FLOATS or any(min(dims, default=0) < 1 for _, dims in group.members):
        raise _edited(name)
    elements = 0
    for _, dims in group.members:
        size = 1
        for n in dims:
            size *= n
        elements += size
    if elements > tensors.LARGEST // 2:
        raise _edited(name)
    wanted = packed_graph.decoder(group, opset)
    for output, node in wanted.nodes.items():
        if output not in nodes or not _same(node, nodes[output]) or any(o in initializers for o in node.output):
            raise _edited(name)
    for constant, tensor in wanted.constants.items():
        if constant not in initializers or not _equal(tensor, initializers[constant]):
            raise _edited(name)
    own = [group.kind, lossy.PARTS[group.values], *(f"{nth}scale" for nth in range(len(group.members)))]
    added.update(map(group.name, own), wanted.constants, *(node.output for node in wanted.nodes.values()))


def _arrays(group: Group, initializers: Mapping[str, TensorProto]) -> list[Array]:
    codes, values = (tensors.to_array(initializers[group.name(p)]) for p in (group.kind, lossy.PARTS[group.values]))
    stored = initializers[group.name(lossy.PARTS[group.values])].data_type
    if stored != lossy.DATA_TYPES.get(group.values, group.data_type):
        raise _edited(group.members[0][0])
    try:
        flat = packed_codec.decode(group.kind, codes, values, group.size)
    except ValueError as error:
        names = group.members[0][0] + (f"' to '{group.members[-1][0]}" if len(group.members) > 1 else "")
        raise InputError(f"packed tensor '{names}' {error}", "export it again") from None
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(group.data_type))
    arrays = []
    for nth, (part, (name, dims)) in enumerate(
        zip(np.split(flat, np.cumsum(group.sizes)[:-1]), group.members, strict=True)
    ):
        scale = None
        if group.values == "int8":
            tensor = initializers.get(group.name(f"{nth}scale"), TensorProto())
            shape = tuple(tensor.dims)
            fits = len(shape) == len(dims) and all(n in (1, d) for n, d in zip(shape, dims, strict=True))
            if tensor.data_type != group.data_type or not fits:
                raise _edited(name)
            scale = tensors.to_array(tensor)
        arrays.append(lossy.restored(part, dims, dtype, scale))
    return arrays


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
