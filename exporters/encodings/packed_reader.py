"""Read packed files back without running their decoding nodes.

The reader builds the decoding nodes again, and rejects a file whose nodes or constants differ.
"""

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
# Attributes that converters add to a node without changing what it computes.
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
    """Return the names of the packed tensors of a model."""
    return [tensor.name for group in _find_groups(model) for tensor in group.tensors]


def decode(model: OnnxModel, names: Collection[str]) -> DecodedTensors:
    """Decode packed tensors by name, with all names that packing added to their groups.

    Raises:
        InputError: If the nodes, names or constants of their groups are not as they were written.
    """
    decoded = DecodedTensors()
    groups = _find_groups(model)
    if not groups:
        return decoded
    nodes = {output: node for node in model.graph.node for output in node.output}
    initializers = {tensor.name: tensor for tensor in model.graph.initializer}
    opset = packed_graph.get_opset(model.proto)
    requested = [g for g in groups if any(tensor.name in names for tensor in g.tensors)]
    num_bytes = 0
    for group in requested:
        decoded.added_names.update(_check_group(group, opset, nodes, initializers))
        num_elements = sum(tensor.size for tensor in group.tensors)
        num_bytes += _get_group_dtype(group).itemsize * num_elements
    check_memory(num_bytes)
    for group in requested:
        for tensor, array in _decode_group(group, model, initializers):
            if tensor.name in decoded.tensors:
                raise _make_edited_error(tensor.name)
            decoded.tensors[tensor.name] = tensor
            decoded.weights[tensor.name] = array
    return decoded


def _find_groups(model: OnnxModel) -> list[PackedGroup]:
    """Return the groups of a model as their names describe them, unchecked."""
    names = [tensor.name for tensor in model.graph.initializer]
    matches = [match for match in map(_CODES.fullmatch, names) if match]
    if not matches:
        return []
    initializers = {tensor.name: tensor for tensor in model.graph.initializer}
    consumers: dict[str, NodeProto] = {}
    for node in model.graph.node:
        if node.input and node.input[0].startswith(PREFIX):
            consumers[node.input[0]] = node
    return [_read_group(match, consumers, initializers) for match in matches]


def _read_group(
    match: re.Match[str],
    consumers: Mapping[str, NodeProto],
    initializers: Mapping[str, TensorProto],
) -> PackedGroup:
    """Read the description of a group from its names and from the shapes of its tensors."""
    codes_name = match[0]
    kind = match[2]
    group = PackedGroup(int(match[1]), kind, 0, EXACT, ())
    storage = _find_storage(group, initializers)
    if storage is None:
        raise _make_edited_error(codes_name)
    group = replace(group, storage=storage)
    units: list[PackedUnit] = []
    values_part = rounding.STORAGE_PARTS[storage]
    while len(units) < len(initializers):
        number = len(units)
        if group.part_name(values_part, number) not in initializers:
            break
        flat = group.part_name("g" if kind == packed_codec.MASK else "d", number)
        split = consumers.get(flat, NodeProto())
        parts = list(split.output) if split.op_type == "Split" else [flat]
        tensors = []
        for i, part in enumerate(parts):
            tensor = _read_tensor(group, (number, i), part, consumers, initializers)
            if tensor is None:
                raise _make_edited_error(codes_name)
            tensors.append(tensor)
        units.append(PackedUnit(tuple(tensors), 0))
    sizes = _read_code_counts(group, codes_name, consumers, initializers)
    if len(sizes) < len(units):
        raise _make_edited_error(codes_name)
    units = [replace(unit, codes=size) for unit, size in zip(units, sizes, strict=False)]
    first_values = group.part_name(values_part, 0)
    if storage == EXACT:
        data_type = initializers[first_values].data_type
    else:
        cast = consumers.get(first_values, NodeProto())
        data_type = next((int(a.i) for a in cast.attribute if a.name == "to"), 0)
    return replace(group, data_type=data_type, units=tuple(units))


def _find_storage(group: PackedGroup, initializers: Collection[str]) -> str | None:
    """Return how a group stores its values, or None if it has none."""
    for storage, part in rounding.STORAGE_PARTS.items():
        if group.part_name(part, 0) in initializers:
            return storage
    return None


def _read_tensor(
    group: PackedGroup,
    numbers: tuple[int, int],
    part: str,
    consumers: Mapping[str, NodeProto],
    initializers: Mapping[str, TensorProto],
) -> PackedTensor | None:
    """Read the name and dims of a tensor.

    Returns:
        The tensor, or None if the nodes are not as they were written.
    """
    reshape = consumers.get(part, NodeProto())
    last = reshape
    if group.storage == "int8":
        last = consumers.get(group.part_name("w", *numbers), NodeProto())
    if len(reshape.input) != 2 or len(last.output) != 1:
        return None
    shape = initializers.get(reshape.input[1])
    if shape is None or shape.data_type != TensorProto.INT64 or count_elements(shape) > MAX_DIMS:
        return None
    dims = tuple(int(n) for n in to_array(shape).reshape(-1))
    return PackedTensor(str(last.output[0]), dims)


def _read_code_counts(
    group: PackedGroup,
    codes_name: str,
    consumers: Mapping[str, NodeProto],
    initializers: Mapping[str, TensorProto],
) -> list[int]:
    """Read the number of codes of each unit from a Split, or from the codes of a single unit."""
    for part in ("c", "f", group.kind):
        node = consumers.get(group.part_name(part))
        if node is not None:
            sizes = _read_split_sizes(node, initializers)
            if sizes:
                return sizes
            break
    num_stored = count_elements(initializers[codes_name])
    rows = packed_codec.LOW_ROWS.get(packed_codec.WIDTHS.get(group.kind, 8), num_stored + 1)
    return [num_stored + num_stored // rows]


def _read_split_sizes(node: NodeProto, initializers: Mapping[str, TensorProto]) -> list[int]:
    """Return the sizes of a Split; an empty list for other nodes."""
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
    """Check that the nodes and constants of a group are those that packing writes.

    Returns:
        All names that packing added for the group.

    Raises:
        InputError: If something differs.
    """
    name = group.tensors[0].name
    for tensor in group.tensors:
        size = 1  # a Python integer, because dims of a corrupt file may overflow int64
        for n in tensor.dims:
            size *= n
        if min(tensor.dims, default=0) < 1 or size > MAX_BYTES // 2:
            raise _make_edited_error(tensor.name)
    for unit in group.units:
        if unit.codes < 0 or unit.size > MAX_BYTES // 2:
            raise _make_edited_error(name)
    if group.data_type not in WEIGHT_TYPES:
        raise _make_edited_error(name)
    decoder = packed_graph.build_decoder(group, opset)
    added_names = [group.part_name(group.kind)]
    for number, unit in enumerate(group.units):
        added_names.append(group.part_name(rounding.STORAGE_PARTS[group.storage], number))
        added_names += [group.part_name("scale", number, i) for i in range(len(unit.tensors))]
    for constant_name, tensor in decoder.constants.items():
        actual = initializers.get(constant_name)
        if actual is None or not _is_same_tensor(tensor, actual):
            raise _make_edited_error(name)
        added_names.append(constant_name)
    for output, node in decoder.nodes.items():
        if output not in nodes or not _is_same_node(node, nodes[output]):
            raise _make_edited_error(name)
        if any(part in initializers for part in node.output):
            raise _make_edited_error(name)
        added_names += node.output
    return added_names


def _decode_group(
    group: PackedGroup, model: OnnxModel, initializers: Mapping[str, TensorProto]
) -> Iterator[tuple[TensorProto, Array]]:
    """Yield declaration and values of each tensor of a group that was checked."""
    dtype = _get_group_dtype(group)
    stored_type = rounding.STORED_TYPES.get(group.storage, group.data_type)
    start = 0
    name = group.tensors[0].name
    try:
        codes = packed_codec.unpack(group.kind, model.get_array(group.part_name(group.kind)))
        num_codes = sum(unit.codes for unit in group.units)
        if codes.size != num_codes + packed_codec.count_padding(group.kind, num_codes):
            raise ValueError(f"has {codes.size} codes, and must have {num_codes}")
        for number, unit in enumerate(group.units):
            name = unit.tensors[0].name
            values_name = group.part_name(rounding.STORAGE_PARTS[group.storage], number)
            stored = initializers[values_name]
            if stored.data_type != stored_type:
                raise _make_edited_error(name)
            unit_codes = codes[start : start + unit.codes]
            start += unit.codes
            values = model.get_array(values_name)
            flat = packed_codec.decode(group.kind, unit_codes, values, unit.size)
            for i, tensor in enumerate(unit.tensors):
                scale = _read_scale(group, tensor, group.part_name("scale", number, i), model)
                part = flat[: tensor.size]
                flat = flat[tensor.size :]
                dense = rounding.restore_tensor(part, tensor.dims, dtype, scale)
                declaration = make_empty_tensor(
                    tensor.name, group.data_type, tensor.dims, like=stored
                )
                yield declaration, dense
    except ValueError as error:
        raise InputError(f"packed tensor '{name}' {error}", "export it again") from None


def _get_group_dtype(group: PackedGroup) -> np.dtype[Any]:
    """Return the numpy type of a group's dense tensors."""
    return np.dtype(helper.tensor_dtype_to_np_dtype(group.data_type))


def _read_scale(
    group: PackedGroup, tensor: PackedTensor, name: str, model: OnnxModel
) -> Array | None:
    """Return the scale of an int8 tensor; None for other storage."""
    if group.storage != "int8":
        return None
    scale = model.tensors.get(name, TensorProto())
    if scale.data_type != group.data_type or len(scale.dims) != len(tensor.dims):
        raise _make_edited_error(tensor.name)
    if any(n not in (1, size) for n, size in zip(scale.dims, tensor.dims, strict=True)):
        raise _make_edited_error(tensor.name)
    return model.get_array(name)


def _is_same_node(expected: NodeProto, actual: NodeProto) -> bool:
    """Return true if a node computes what the expected one does."""
    for node_field in ("op_type", "input", "output"):
        if getattr(expected, node_field) != getattr(actual, node_field):
            return False
    if normalize_domain(expected.domain) != normalize_domain(actual.domain):
        return False
    expected_attributes = {a.name: helper.get_attribute_value(a) for a in expected.attribute}
    actual_attributes = {a.name: helper.get_attribute_value(a) for a in actual.attribute}
    for key, value in actual_attributes.items():
        if key not in expected_attributes and _NEUTRAL.get(key) != value:
            return False
    return all(
        key in actual_attributes and actual_attributes[key] == value
        for key, value in expected_attributes.items()
    )


def _is_same_tensor(expected: TensorProto, actual: TensorProto) -> bool:
    """Return true if two tensors have the same type, dims and values."""
    if expected.data_type != actual.data_type or expected.dims != actual.dims:
        return False
    return np.array_equal(to_array(expected), to_array(actual))


def _make_edited_error(name: str) -> InputError:
    """Return the error for a packed tensor that was changed after it was written."""
    return InputError(
        f"packed tensor '{name}' is not as it was written:"
        " its nodes, names or constants were changed",
        "export it again, or unpack the file as it was first written",
    )
