"""Build the nodes that decode packed tensors, from operators that onnxruntime folds at load.

Measurements with onnxruntime 1.31 decide the choice of operators. NonZero and Compress are never
folded, and DequantizeLinear is not by default. onnx's ReferenceEvaluator fails on GatherElements,
OpenVINO on BitShift of bytes. Every node costs time, whatever its size, and all results stay in
memory until the last node is folded. So the codes of many tensors are unpacked together, and small
tensors are scattered together.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from ltp_pipeline.exporters.encodings import packed_codec
from ltp_pipeline.graph import schemas
from ltp_pipeline.graph.tensors import make_tensor
from ltp_pipeline.settings.file_names import EXACT

PREFIX = "ltp/"  # reserved: every name that packing adds begins so
OPSET = 11  # first with CumSum
BFLOAT16_OPSET = 13
SPLIT_INPUT_OPSET = 13  # first in which the sizes of Split are an input
# Codes per tensor from which one Cast per tensor is cheaper than copying all codes as int32.
MIN_SEPARATE_CASTS = 2**14


@dataclass(frozen=True)
class PackedTensor:
    """Name and dims of a packed tensor."""

    name: str
    dims: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of elements of the dense tensor."""
        return math.prod(self.dims)


@dataclass(frozen=True)
class PackedUnit:
    """Tensors that are scattered together, one after the other, as one flat tensor."""

    tensors: tuple[PackedTensor, ...]
    codes: int  # number of the group's codes that belong to the unit

    @property
    def size(self) -> int:
        """Number of elements of the dense tensors."""
        return sum(tensor.size for tensor in self.tensors)


@dataclass(frozen=True)
class PackedGroup:
    """Tensors whose codes are stored together."""

    index: int
    kind: str  # of codes, one of packed_codec.KINDS
    data_type: int  # of the dense tensors
    storage: str  # "exact", "fp16" or "int8"
    units: tuple[PackedUnit, ...]

    @property
    def tensors(self) -> list[PackedTensor]:
        """The tensors of all units."""
        return [tensor for unit in self.units for tensor in unit.tensors]

    def part_name(self, part: str, *numbers: int) -> str:
        """Return the name of a part of the group.

        Args:
            part: Short name of the part.
            numbers: Number of a unit, and number of a tensor in it; none for the whole group.
        """
        return f"{PREFIX}{self.index}/{'.'.join([part, *map(str, numbers)])}"


@dataclass
class DecoderGraph:
    """Decoding nodes in order and the small constants that they read."""

    nodes: dict[str, NodeProto] = field(default_factory=dict)  # by their first output
    constants: dict[str, TensorProto] = field(default_factory=dict)  # by name

    @property
    def num_bytes(self) -> int:
        """Bytes of the nodes and constants in a file."""
        messages: list[Any] = [*self.nodes.values(), *self.constants.values()]
        return sum(message.ByteSize() + 2 for message in messages)

    def merge(self, other: "DecoderGraph") -> "DecoderGraph":
        """Return the nodes and constants of two decoders, which may share some."""
        return DecoderGraph(self.nodes | other.nodes, self.constants | other.constants)

    def add_node(self, op: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        """Add a node unless there is one with this output, and return the output."""
        if output not in self.nodes:
            self.nodes[output] = helper.make_node(op, inputs, [output], **attributes)
        return output

    def add_constant(self, name: str, data_type: int, content: object) -> str:
        """Add a constant unless there is one of this name, and return its full name."""
        name = PREFIX + name
        if name not in self.constants:
            array = np.asarray(content, helper.tensor_dtype_to_np_dtype(data_type))
            self.constants[name] = make_tensor(name, data_type, array)
        return name

    def add_integer(self, value: int, data_type: int) -> str:
        """Add a scalar constant and return its name."""
        return self.add_constant(f"k{data_type}/{value}", data_type, value)

    def add_vector(self, name: str, content: Sequence[int]) -> str:
        """Add a vector of int64 and return its name."""
        return self.add_constant(name, TensorProto.INT64, content)


class _GroupDecoder(DecoderGraph):
    """The nodes that decode one group and write its tensors under their own names."""

    def __init__(self, group: PackedGroup, opset: int) -> None:
        super().__init__()
        self.group = group
        self.opset = opset

    def add_part(
        self, op: str, inputs: Sequence[str], part: str, *numbers: int, **attributes: Any
    ) -> str:
        """Add a node whose output is a part of the group, see `PackedGroup.part_name`."""
        return self.add_node(op, inputs, self.group.part_name(part, *numbers), **attributes)

    def add_unit(self, number: int, codes: str) -> None:
        """Add the nodes that decode a unit.

        Args:
            number: Number of the unit.
            codes: Name of its codes: int32, or 0 and 1 for each element of a mask.
        """
        group = self.group
        unit = group.units[number]
        values = group.part_name("v", number)
        if group.storage != EXACT:
            stored = group.part_name(group.storage, number)
            values = self.add_part("Cast", [stored], "x", number, to=group.data_type)
        if group.kind == packed_codec.MASK:
            flat = self._pick_values(number, values, codes)
        else:
            positions, values = self._locate_values(number, values, codes)
            zeros = self._add_zeros(group.data_type, unit.size)
            flat = self.add_part("ScatterElements", [zeros, positions, values], "d", number)
        parts = self._split_tensor(flat, [tensor.size for tensor in unit.tensors], "y", "z", number)
        for i, (tensor, part) in enumerate(zip(unit.tensors, parts, strict=True)):
            shape = self.add_vector(f"s{'.'.join(map(str, tensor.dims))}", tensor.dims)
            if group.storage == "int8":
                steps = self.add_part("Reshape", [part, shape], "w", number, i)
                self.add_node("Mul", [steps, group.part_name("scale", number, i)], tensor.name)
            else:
                self.add_node("Reshape", [part, shape], tensor.name)

    def widen_codes(self) -> list[str]:
        """Add nodes that unpack the codes of each unit as int32, and return their outputs."""
        group = self.group
        codes = group.part_name(group.kind)
        if packed_codec.WIDTHS[group.kind] in packed_codec.LOW_ROWS:
            codes = self._unpack_codes(codes)
        sizes = [unit.codes for unit in group.units]
        num_units = len(sizes)
        padding = packed_codec.count_padding(group.kind, sum(sizes))
        if padding:
            sizes.append(padding)
        if sum(sizes) < MIN_SEPARATE_CASTS * num_units:
            wide = self.add_part("Cast", [codes], "c", to=TensorProto.INT32)
            return self._split_tensor(wide, sizes, "s", "n")[:num_units]
        parts = self._split_tensor(codes, sizes, "n", "n")[:num_units]
        return [
            self.add_part("Cast", [part], "s", number, to=TensorProto.INT32)
            for number, part in enumerate(parts)
        ]

    def _split_tensor(
        self, tensor: str, sizes: Sequence[int], part: str, sizes_part: str, *numbers: int
    ) -> list[str]:
        """Add a Split of a flat tensor unless it has only one part, and return the parts."""
        if len(sizes) == 1:
            return [tensor]
        outputs = [self.group.part_name(part, *numbers, i) for i in range(len(sizes))]
        if self.opset < SPLIT_INPUT_OPSET:
            node = helper.make_node("Split", [tensor], outputs, axis=0, split=sizes)
        else:
            sizes_name = self.group.part_name(sizes_part, *numbers)
            vector = self.add_vector(sizes_name.removeprefix(PREFIX), sizes)
            node = helper.make_node("Split", [tensor, vector], outputs)
        self.nodes[outputs[0]] = node
        return outputs

    def _locate_values(self, number: int, values: str, steps: str) -> tuple[str, str]:
        """Add nodes that compute the position of each value, and return positions and values."""
        axis = self.add_integer(0, TensorProto.INT64)
        if self.group.kind in packed_codec.VALUED_KINDS:
            return self.add_part("CumSum", [steps, axis], "p", number), values
        top = self.add_integer(packed_codec.largest_code(self.group.kind), TensorProto.INT32)
        is_less = self.add_part("Less", [steps, top], "t", number)
        has_value = self.add_part("Cast", [is_less], "r", number, to=TensorProto.INT32)
        lengths = self.add_part("Add", [steps, has_value], "a", number)
        ends = self.add_part("CumSum", [lengths, axis], "e", number)
        unit = self.add_integer(1, TensorProto.INT32)
        positions = self.add_part("Sub", [ends, unit], "p", number)
        return positions, self._pick_values(number, values, has_value)

    def _unpack_codes(self, codes: str) -> str:
        """Add nodes that unpack narrow codes, one per byte, and return their output."""
        if self.group.kind == packed_codec.PAIRS:
            divisors = self.add_constant("pairs", TensorProto.UINT8, packed_codec.PAIR_DIVISORS)
            return self._flatten_rows(self.add_part("Mod", [codes, divisors], "b"))
        width = packed_codec.WIDTHS[self.group.kind]
        divisor = self.add_integer(1 << width, TensorProto.UINT8)
        low = self.add_part("Mod", [codes, divisor], "l")
        if packed_codec.LOW_ROWS[width] == 1:
            spread = self.add_part("Cast", [codes], "h", to=TensorProto.INT32)
        else:
            # The high bits are what the bytes have more than their low bits.
            row_weights = packed_codec.get_high_bit_weights(width)[None]
            weights = self.add_constant(f"w{width}", TensorProto.UINT8, row_weights)
            byte_sum = self.add_part("MatMulInteger", [weights, codes], "q")
            low_sum = self.add_part("MatMulInteger", [weights, low], "r")
            spread = self.add_part("Sub", [byte_sum, low_sum], "h")
        wide_divisor = self.add_integer(1 << width, TensorProto.INT32)
        high = self.add_part("Div", [spread, wide_divisor], "t")
        last = self.add_part("Cast", [high], "o", to=TensorProto.UINT8)
        return self._flatten_rows(self.add_part("Concat", [low, last], "b", axis=0))

    def unpack_mask(self) -> str:
        """Add nodes that unpack a mask as 0 or 1 per element, and return their output."""
        size = self.group.units[0].size
        mask = self.group.part_name(self.group.kind)
        octets = self.add_part("Cast", [mask], "c", to=TensorProto.INT32)
        bits = self._flatten_rows(self.add_part("Gather", [self._add_bit_table(), octets], "b"))
        if size % 8:
            start = self.add_vector("start", [0])
            end = self.add_vector(f"s{size}", [size])
            bits = self.add_part("Slice", [bits, start, end], "u")
        return bits

    def _flatten_rows(self, rows: str) -> str:
        """Add a Reshape to a vector, and return its output."""
        return self.add_part("Reshape", [rows, self.add_vector("flat", [-1])], "f")

    def _pick_values(self, number: int, values: str, has_value: str) -> str:
        """Add nodes that give each entry its value, and return their output.

        Entries with a 1 in `has_value` take the next value, others the first one, which is zero.
        """
        axis = self.add_integer(0, TensorProto.INT64)
        ranks = self.add_part("CumSum", [has_value, axis], "k", number)
        indices = self.add_part("Mul", [ranks, has_value], "i", number)
        return self.add_part("Gather", [values, indices], "g", number)

    def _add_zeros(self, data_type: int, size: int) -> str:
        """Add nodes that make a vector of zeros, and return their output."""
        shape = self.add_vector(f"s{size}", [size])
        output = f"{PREFIX}z{data_type}/{size}"
        if data_type == TensorProto.FLOAT:
            return self.add_node("ConstantOfShape", [shape], output)
        if data_type == TensorProto.BFLOAT16:  # ConstantOfShape cannot make it before opset 20
            wide = self._add_zeros(TensorProto.FLOAT, size)
            return self.add_node("Cast", [wide], output, to=data_type)
        zero = make_tensor("", data_type, np.zeros(1))
        return self.add_node("ConstantOfShape", [shape], output, value=zero)

    def _add_bit_table(self) -> str:
        """Add nodes that make a table of the eight bits of each byte, and return their output."""
        octets = self.add_constant("octets", TensorProto.UINT8, np.arange(256).reshape(256, 1))
        places = self.add_constant("places", TensorProto.INT32, 1 << np.arange(8))
        wide = self.add_node("Cast", [octets], f"{PREFIX}wide", to=TensorProto.INT32)
        shifted = self.add_node("Div", [wide, places], f"{PREFIX}shifted")
        two = self.add_integer(2, TensorProto.INT32)
        return self.add_node("Mod", [shifted, two], f"{PREFIX}table")


def build_decoder(group: PackedGroup, opset: int) -> DecoderGraph:
    """Return the nodes that decode a group and write its tensors under their own names."""
    decoder = _GroupDecoder(group, opset)
    is_mask = group.kind == packed_codec.MASK
    codes = [decoder.unpack_mask()] if is_mask else decoder.widen_codes()
    for number in range(len(group.units)):
        decoder.add_unit(number, codes[number])
    return decoder


def get_opset(model: ModelProto) -> int:
    """Return the version of the standard operators in a model, 0 if it uses none."""
    return schemas.get_standard_opset(model, default=0)
