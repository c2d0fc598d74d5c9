"""Packed files read back. The decoding nodes are written anew, and nothing that differs from them is taken."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper

from ltp_pipeline.errors import InputError
from ltp_pipeline.exporters.encodings import packed_codec, packed_graph
from ltp_pipeline.exporters.encodings.encoding import DecodedTensors, check_memory
from ltp_pipeline.exporters.encodings.packed_graph import (
    PREFIX,
    PackedGroup,
    PackedTensor,
    PackedUnit,
)
from ltp_pipeline.exporters.files import rounding
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.nodes import normalize_domain
from ltp_pipeline.graph.tensors import (
    MAX_BYTES,
    MAX_DIMS,
    WEIGHT_TYPES,
    count_elements,
    make_empty_tensor,
    to_array,
)
from ltp_pipeline.settings.file_names import EXACT
from ltp_pipeline.system.arrays import Array

_CODES = re.compile(rf"{re.escape(PREFIX)}(0|[1-9]\d{{0,8}})/({'|'.join(packed_codec.KINDS)})")
# What converters add to a node without changing what it does.
_NEUTRAL = {
    "allowzero": 0,
    "axis": 0,
    "exclusive": 0,
    "fmod": 0,
    "reduction": b"none",
    "reverse": 0,
    "saturate": 1,
}


def find_encoded_names(model: OnnxModel) -> list[str]:
    """The names of the packed tensors."""
    return [member.name for group in _find_groups(model) for member in group.tensors]


def decode(model: OnnxModel, names: Collection[str]) -> DecodedTensors:
    """These packed tensors, dense, and the names of all that packing added to the groups they are in."""
    found = DecodedTensors()
    groups = _find_groups(model)
    if not groups:
        return found
    nodes = {output: node for node in model.graph.node for output in node.output}
    initializers = {tensor.name: tensor for tensor in model.graph.initializer}
    opset = packed_graph.get_opset(model.proto)
    wanted = [group for group in groups if any(member.name in names for member in group.tensors)]
    for group in wanted:
        found.added_names.update(_check_group(group, opset, nodes, initializers))
    check_memory(sum(_get_group_dtype(g).itemsize * m.size for g in wanted for m in g.tensors))
    for group in wanted:
        for tensor, array in _decode_group(group, model, initializers):
            if tensor.name in found.tensors:
                raise _make_edited_error(tensor.name)
            found.tensors[tensor.name], found.weights[tensor.name] = tensor, array
    return found


def _find_groups(model: OnnxModel) -> list[PackedGroup]:
    """The groups as the names tell it; whether the rest agrees is for `_check` to see."""
    coded = [
        match for tensor in model.graph.initializer if (match := _CODES.fullmatch(tensor.name))
    ]
    if not coded:
        return []
    initializers = {tensor.name: tensor for tensor in model.graph.initializer}
    users = {
        node.input[0]: node
        for node in model.graph.node
        if node.input and node.input[0].startswith(PREFIX)
    }
    return [_read_group(match, users, initializers) for match in coded]


def _read_group(
    match: re.Match[str], users: Mapping[str, NodeProto], initializers: Mapping[str, TensorProto]
) -> PackedGroup:
    kind, shell = match[2], PackedGroup(int(match[1]), match[2], 0, EXACT, ())
    values = next(
        (
            v
            for v, part in rounding.STORAGE_PARTS.items()
            if shell.part_name(part, 0) in initializers
        ),
        None,
    )
    if values is None:
        raise _make_edited_error(match[0])
    units = list[PackedUnit]()
    while (nth := len(units)) < len(initializers) and shell.part_name(
        rounding.STORAGE_PARTS[values], nth
    ) in initializers:
        whole = shell.part_name("g" if kind == packed_codec.MASK else "d", nth)
        split = users.get(whole, NodeProto())
        parts = list(split.output) if split.op_type == "Split" else [whole]
        members = list[PackedTensor]()
        for i, part in enumerate(parts):
            reshape = users.get(part, NodeProto())
            last = (
                users.get(shell.part_name("w", nth, i), NodeProto())
                if values == "int8"
                else reshape
            )
            shape = initializers.get(reshape.input[1]) if len(reshape.input) == 2 else None
            if shape is None or len(last.output) != 1 or shape.data_type != TensorProto.INT64:
                raise _make_edited_error(match[0])
            if count_elements(shape) > MAX_DIMS:
                raise _make_edited_error(match[0])
            dims = tuple(int(n) for n in to_array(shape).reshape(-1))
            members.append(PackedTensor(str(last.output[0]), dims))
        units.append(PackedUnit(tuple(members), 0))
    first = shell.part_name(rounding.STORAGE_PARTS[values], 0)
    cast_to = next((int(a.i) for a in users.get(first, NodeProto()).attribute if a.name == "to"), 0)
    data_type = initializers[first].data_type if values == EXACT else cast_to
    split = next(
        (users[n] for n in map(shell.part_name, ("c", "f", kind)) if n in users), NodeProto()
    )
    sizes = _read_split_sizes(split, initializers)
    if not sizes:
        stored = count_elements(initializers[match[0]])
        sizes = [
            stored
            + stored // packed_codec.LOW_ROWS.get(packed_codec.WIDTHS.get(kind, 8), stored + 1)
        ]
    if len(sizes) < len(units):
        raise _make_edited_error(match[0])
    units = [replace(unit, codes=size) for unit, size in zip(units, sizes, strict=False)]
    return replace(shell, data_type=data_type, storage=values, units=tuple(units))


def _read_split_sizes(node: NodeProto, initializers: Mapping[str, TensorProto]) -> list[int]:
    if node.op_type != "Split":
        return []
    if len(node.input) == 2 and node.input[1] in initializers:
        return [int(n) for n in to_array(initializers[node.input[1]]).reshape(-1)]
    return [int(n) for a in node.attribute if a.name == "split" for n in a.ints]


def _check_group(
    group: PackedGroup,
    opset: int,
    nodes: Mapping[str, NodeProto],
    initializers: Mapping[str, TensorProto],
) -> list[str]:
    """The names of what packing a group added; InputError unless nodes and constants are what its encoder writes."""
    name = group.tensors[0].name
    for member in group.tensors:
        size = 1
        for n in member.dims:
            size *= n
        if min(member.dims, default=0) < 1 or size > MAX_BYTES // 2:
            raise _make_edited_error(member.name)
    if any(unit.codes < 0 or unit.size > MAX_BYTES // 2 for unit in group.units):
        raise _make_edited_error(name)
    if group.data_type not in WEIGHT_TYPES:
        raise _make_edited_error(name)
    wanted = packed_graph.build_decoder(group, opset)
    for output, node in wanted.nodes.items():
        if (
            output not in nodes
            or not _is_same_node(node, nodes[output])
            or any(o in initializers for o in node.output)
        ):
            raise _make_edited_error(name)
    for constant, tensor in wanted.constants.items():
        if constant not in initializers or not _is_same_tensor(tensor, initializers[constant]):
            raise _make_edited_error(name)
    values = [
        group.part_name(rounding.STORAGE_PARTS[group.storage], nth)
        for nth in range(len(group.units))
    ]
    scales = [
        group.part_name("scale", nth, i)
        for nth, unit in enumerate(group.units)
        for i in range(len(unit.tensors))
    ]
    outputs = (name for node in wanted.nodes.values() for name in node.output)
    return [group.part_name(group.kind), *values, *scales, *wanted.constants, *outputs]


def _decode_group(
    group: PackedGroup, model: OnnxModel, initializers: Mapping[str, TensorProto]
) -> Iterator[tuple[TensorProto, Array]]:
    dtype = _get_group_dtype(group)
    stored_type = rounding.STORED_TYPES.get(group.storage, group.data_type)
    start, name = 0, group.tensors[0].name
    try:
        codes = packed_codec.unpack(group.kind, model.get_array(group.part_name(group.kind)))
        used = sum(unit.codes for unit in group.units)
        if codes.size != used + packed_codec.count_padding(group.kind, used):
            raise ValueError(f"has {codes.size} codes, where {used} are needed")
        for nth, unit in enumerate(group.units):
            name = unit.tensors[0].name
            values = group.part_name(rounding.STORAGE_PARTS[group.storage], nth)
            stored = initializers[values]
            if stored.data_type != stored_type:
                raise _make_edited_error(name)
            unit_codes = codes[start : start + unit.codes]
            start += unit.codes
            flat, at = (
                packed_codec.decode(group.kind, unit_codes, model.get_array(values), unit.size),
                0,
            )
            for i, member in enumerate(unit.tensors):
                scale = _read_scale(group, member, group.part_name("scale", nth, i), model)
                dense = rounding.restore_tensor(
                    flat[at : at + member.size], member.dims, dtype, scale
                )
                at += member.size
                yield (
                    make_empty_tensor(member.name, group.data_type, member.dims, like=stored),
                    dense,
                )
    except ValueError as error:
        raise InputError(f"packed tensor '{name}' {error}", "export it again") from None


def _get_group_dtype(group: PackedGroup) -> np.dtype[Any]:
    return np.dtype(helper.tensor_dtype_to_np_dtype(group.data_type))


def _read_scale(
    group: PackedGroup, member: PackedTensor, name: str, model: OnnxModel
) -> Array | None:
    if group.storage != "int8":
        return None
    tensor = model.tensors.get(name, TensorProto())
    shape = tuple(tensor.dims)
    fits = len(shape) == len(member.dims) and all(
        n in (1, d) for n, d in zip(shape, member.dims, strict=True)
    )
    if tensor.data_type != group.data_type or not fits:
        raise _make_edited_error(member.name)
    return model.get_array(name)


def _is_same_node(wanted: NodeProto, found: NodeProto) -> bool:
    parts = [
        (n.op_type, normalize_domain(n.domain), list(n.input), list(n.output))
        for n in (wanted, found)
    ]
    ours, theirs = (
        {a.name: helper.get_attribute_value(a) for a in n.attribute} for n in (wanted, found)
    )
    extra = [(key, value) for key, value in theirs.items() if key not in ours]
    same = all(key in theirs and theirs[key] == value for key, value in ours.items())
    return parts[0] == parts[1] and same and all(_NEUTRAL.get(key) == value for key, value in extra)


def _is_same_tensor(wanted: TensorProto, found: TensorProto) -> bool:
    return (wanted.data_type, list(wanted.dims)) == (
        found.data_type,
        list(found.dims),
    ) and np.array_equal(to_array(wanted), to_array(found))


def _make_edited_error(name: str) -> InputError:
    return InputError(
        f"packed tensor '{name}' is not as it was written: its nodes, names or constants were changed",
        "export it again, or unpack the file as it was first written",
    )
