"""Read packed files back without running their decoding nodes.

The reader builds the decoding nodes again, and rejects a file whose nodes or constants differ.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import cached_property
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
from ltp_pipeline.graph.nodes import get_attributes, normalize_domain
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
    return [tensor.name for group in _PackedReader(model).groups for tensor in group.tensors]


def decode(model: OnnxModel, names: Collection[str]) -> DecodedTensors:
    """Decode packed tensors by name, with all names that packing added to their groups.

    Raises:
        InputError: If the nodes, names or constants of their groups are not as they were written.
    """
    decoded = DecodedTensors()
    reader = _PackedReader(model)
    requested = [g for g in reader.groups if any(tensor.name in names for tensor in g.tensors)]
    num_bytes = 0
    for group in requested:
        decoded.added_names.update(reader.check_group(group))
        num_elements = sum(unit.size for unit in group.units)
        num_bytes += _get_group_dtype(group).itemsize * num_elements
    check_memory(num_bytes)
    for group in requested:
        for tensor, array in reader.decode_group(group):
            if tensor.name in decoded.tensors:
                raise _make_edited_error(tensor.name)
            decoded.tensors[tensor.name] = tensor
            decoded.weights[tensor.name] = array
    return decoded


class _PackedReader:
    """Reads the groups of a model. Models without groups cost one pass over the initializers."""

    def __init__(self, model: OnnxModel) -> None:
        self.model = model

    @cached_property
    def groups(self) -> list[PackedGroup]:
        """Groups of the model as their names describe them, unchecked."""
        names = [tensor.name for tensor in self.model.graph.initializer]
        return [self._read_group(match) for match in map(_CODES.fullmatch, names) if match]

    @cached_property
    def _initializers(self) -> dict[str, TensorProto]:
        return {tensor.name: tensor for tensor in self.model.graph.initializer}

    @cached_property
    def _nodes(self) -> dict[str, NodeProto]:
        """Nodes by output."""
        return {output: node for node in self.model.graph.node for output in node.output}

    @cached_property
    def _consumers(self) -> dict[str, NodeProto]:
        """Nodes by their first input."""
        return {node.input[0]: node for node in self.model.graph.node if node.input}

    def _read_group(self, match: re.Match[str]) -> PackedGroup:
        """Read the description of a group from its names and from the shapes of its tensors."""
        group = PackedGroup(int(match[1]), match[2], 0, EXACT, ())
        parts = rounding.STORAGE_PARTS
        storages = [s for s in parts if group.part_name(parts[s], 0) in self._initializers]
        if not storages:
            raise _make_edited_error(match[0])
        group = replace(group, storage=storages[0])
        values_part = parts[group.storage]
        tensors_of_units: list[tuple[PackedTensor, ...]] = []
        while group.part_name(values_part, len(tensors_of_units)) in self._initializers:
            tensors_of_units.append(self._read_unit(group, len(tensors_of_units)))
        sizes = self._read_code_counts(group)
        if len(sizes) < len(tensors_of_units):
            raise _make_edited_error(match[0])
        units = tuple(map(PackedUnit, tensors_of_units, sizes))  # the last size may be padding
        first_values = group.part_name(values_part, 0)
        data_type = self._initializers[first_values].data_type
        if group.storage != EXACT:
            cast = self._consumers.get(first_values, NodeProto())
            data_type = next((a.i for a in cast.attribute if a.name == "to"), 0)
        return replace(group, data_type=data_type, units=units)

    def _read_unit(self, group: PackedGroup, number: int) -> tuple[PackedTensor, ...]:
        """Read the names and dims of the tensors of a unit."""
        flat = group.part_name("g" if group.kind == packed_codec.MASK else "d", number)
        split = self._consumers.get(flat, NodeProto())
        parts = split.output if split.op_type == "Split" else [flat]
        tensors = []
        for i, part in enumerate(parts):
            reshape = self._consumers.get(part, NodeProto())
            last = reshape
            if group.storage == "int8":
                last = self._consumers.get(group.part_name("w", number, i), NodeProto())
            shape = self._initializers.get(reshape.input[1]) if len(reshape.input) == 2 else None
            if len(last.output) != 1 or shape is None or shape.data_type != TensorProto.INT64:
                raise _make_edited_error(group.part_name(group.kind))
            if count_elements(shape) > MAX_DIMS:
                raise _make_edited_error(group.part_name(group.kind))
            dims = to_array(shape).reshape(-1).tolist()
            tensors.append(PackedTensor(last.output[0], tuple(dims)))
        return tuple(tensors)

    def _read_code_counts(self, group: PackedGroup) -> list[int]:
        """Read the number of codes of each unit from a Split, or from the only unit's codes."""
        for part in ("c", "f", group.kind):
            node = self._consumers.get(group.part_name(part))
            if node is not None:
                sizes = self._read_split_sizes(node)
                if sizes:
                    return sizes
                break
        num_stored = count_elements(self._initializers[group.part_name(group.kind)])
        rows = packed_codec.LOW_ROWS.get(packed_codec.WIDTHS.get(group.kind, 8), num_stored + 1)
        return [num_stored + num_stored // rows]

    def _read_split_sizes(self, node: NodeProto) -> list[int]:
        """Return the sizes of a Split; an empty list for other nodes."""
        if node.op_type != "Split":
            return []
        if len(node.input) == 2 and node.input[1] in self._initializers:
            return [int(n) for n in to_array(self._initializers[node.input[1]]).reshape(-1)]
        return [n for a in node.attribute if a.name == "split" for n in a.ints]

    def check_group(self, group: PackedGroup) -> list[str]:
        """Check that the nodes and constants of a group are those that packing writes.

        Returns:
            All names that packing added for the group.

        Raises:
            InputError: If something differs.
        """
        name = group.tensors[0].name
        for tensor in group.tensors:
            if min(tensor.dims, default=0) < 1 or tensor.size > MAX_BYTES // 2:
                raise _make_edited_error(tensor.name)
        if group.kind == packed_codec.MASK and len(group.units) > 1:
            raise _make_edited_error(name)
        for unit in group.units:
            if unit.codes < 0 or unit.size > MAX_BYTES // 2:
                raise _make_edited_error(name)
        if group.data_type not in WEIGHT_TYPES:
            raise _make_edited_error(name)
        decoder = packed_graph.build_decoder(group, packed_graph.get_opset(self.model.proto))
        added_names = [group.part_name(group.kind), *decoder.constants]
        for number, unit in enumerate(group.units):
            added_names.append(group.part_name(rounding.STORAGE_PARTS[group.storage], number))
            added_names += [group.part_name("scale", number, i) for i in range(len(unit.tensors))]
        for constant_name, tensor in decoder.constants.items():
            stored = self._initializers.get(constant_name)
            if stored is None or not _is_same_tensor(tensor, stored):
                raise _make_edited_error(name)
        for output, node in decoder.nodes.items():
            if output not in self._nodes or not _is_same_node(node, self._nodes[output]):
                raise _make_edited_error(name)
            if any(part in self._initializers for part in node.output):
                raise _make_edited_error(name)
            added_names += node.output
        return added_names

    def decode_group(self, group: PackedGroup) -> Iterator[tuple[TensorProto, Array]]:
        """Yield declaration and values of each tensor of a group that was checked."""
        dtype = _get_group_dtype(group)
        stored_type = rounding.STORED_TYPES.get(group.storage, group.data_type)
        start = 0
        name = group.tensors[0].name
        try:
            packed = self.model.get_array(group.part_name(group.kind))
            codes = packed_codec.unpack(group.kind, packed)
            num_codes = sum(unit.codes for unit in group.units)
            if codes.size != num_codes + packed_codec.count_padding(group.kind, num_codes):
                raise ValueError(f"has {codes.size} codes, and must have {num_codes}")
            for number, unit in enumerate(group.units):
                name = unit.tensors[0].name
                values_name = group.part_name(rounding.STORAGE_PARTS[group.storage], number)
                stored = self._initializers[values_name]
                if stored.data_type != stored_type:
                    raise _make_edited_error(name)
                unit_codes = codes[start : start + unit.codes]
                start += unit.codes
                values = self.model.get_array(values_name)
                flat = packed_codec.decode(group.kind, unit_codes, values, unit.size)
                for i, tensor in enumerate(unit.tensors):
                    scale = None
                    if group.storage == "int8":
                        scale = self._read_scale(group, tensor, group.part_name("scale", number, i))
                    part = flat[: tensor.size]
                    flat = flat[tensor.size :]
                    dense = rounding.restore_tensor(part, tensor.dims, dtype, scale)
                    declaration = make_empty_tensor(
                        tensor.name, group.data_type, tensor.dims, like=stored
                    )
                    yield declaration, dense
        except ValueError as error:
            raise InputError(f"packed tensor '{name}' {error}", "export it again") from None

    def _read_scale(self, group: PackedGroup, tensor: PackedTensor, name: str) -> Array:
        """Return the scale of an int8 tensor."""
        scale = self.model.tensors.get(name, TensorProto())
        if scale.data_type != group.data_type or len(scale.dims) != len(tensor.dims):
            raise _make_edited_error(tensor.name)
        if any(n not in (1, size) for n, size in zip(scale.dims, tensor.dims, strict=True)):
            raise _make_edited_error(tensor.name)
        return self.model.get_array(name)


def _get_group_dtype(group: PackedGroup) -> np.dtype[Any]:
    """Return the numpy type of a group's dense tensors."""
    return np.dtype(helper.tensor_dtype_to_np_dtype(group.data_type))


def _is_same_node(expected: NodeProto, actual: NodeProto) -> bool:
    """Return true if a node computes what the expected one does."""
    for node_field in ("op_type", "input", "output"):
        if getattr(expected, node_field) != getattr(actual, node_field):
            return False
    if normalize_domain(expected.domain) != normalize_domain(actual.domain):
        return False
    required = get_attributes(expected)
    attributes = get_attributes(actual)
    allowed = {**_NEUTRAL, **required}
    for key, value in attributes.items():
        if key not in allowed or allowed[key] != value:
            return False
    return required.keys() <= attributes.keys()


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
