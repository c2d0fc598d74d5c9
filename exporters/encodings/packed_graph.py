"""Build the nodes that decode packed tensors, from operators that onnxruntime folds at load.

Measurements with onnxruntime 1.31 decide the choice of operators. NonZero and Compress are never
folded, and DequantizeLinear is not by default. onnx's ReferenceEvaluator fails on GatherElements,
OpenVINO on BitShift of bytes. Every node costs time, whatever its size, and all results stay in
memory until the last node is folded. So the codes of many tensors are unpacked together, and small
tensors are scattered together.
"""

from collections.abc import Callable, Sequence
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
        return int(np.prod(self.dims, dtype=np.int64))


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
        nodes = sum(node.ByteSize() + 2 for node in self.nodes.values())
        constants = sum(tensor.ByteSize() + 2 for tensor in self.constants.values())
        return int(nodes + constants)

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


def build_decoder(group: PackedGroup, opset: int) -> DecoderGraph:
    """Return the nodes that decode a group and write its tensors under their own names."""
    decoder = DecoderGraph()
    is_mask = group.kind == packed_codec.MASK
    codes = _unpack_mask(group, decoder) if is_mask else _widen_codes(group, opset, decoder)
    for number, unit in enumerate(group.units):

        def name_part(part: str, number: int = number) -> str:
            return group.part_name(part, number)

        values = name_part("v")
        if group.storage != EXACT:
            stored = name_part(group.storage)
            values = decoder.add_node("Cast", [stored], name_part("x"), to=group.data_type)
        if is_mask:
            flat = _pick_values(name_part, values, codes[number], decoder)
        else:
            positions, values = _locate_values(group, name_part, values, codes[number], decoder)
            zeros = _add_zeros(group.data_type, unit.size, decoder)
            inputs = [zeros, positions, values]
            flat = decoder.add_node("ScatterElements", inputs, name_part("d"))
        sizes = [tensor.size for tensor in unit.tensors]
        names = [group.part_name("y", number, i) for i in range(len(sizes))]
        parts = _split_tensor(flat, sizes, names, name_part("z"), opset, decoder)
        for i, (tensor, part) in enumerate(zip(unit.tensors, parts, strict=True)):
            shape = decoder.add_vector(f"s{'.'.join(map(str, tensor.dims))}", tensor.dims)
            if group.storage == "int8":
                steps = decoder.add_node("Reshape", [part, shape], group.part_name("w", number, i))
                scale = group.part_name("scale", number, i)
                decoder.add_node("Mul", [steps, scale], tensor.name)
            else:
                decoder.add_node("Reshape", [part, shape], tensor.name)
    return decoder


def _widen_codes(group: PackedGroup, opset: int, decoder: DecoderGraph) -> list[str]:
    """Add nodes that unpack the codes of each unit as int32, and return their outputs."""
    width = packed_codec.WIDTHS[group.kind]
    is_narrow = width in packed_codec.LOW_ROWS
    codes = _unpack_codes(group, width, decoder) if is_narrow else group.part_name(group.kind)
    sizes = [unit.codes for unit in group.units]
    num_units = len(sizes)
    padding = packed_codec.count_padding(group.kind, sum(sizes))
    if padding:
        sizes.append(padding)

    def split(codes: str, part: str) -> list[str]:
        outputs = [group.part_name(part, number) for number in range(len(sizes))]
        parts = _split_tensor(codes, sizes, outputs, group.part_name("n"), opset, decoder)
        return parts[:num_units]

    if sum(sizes) < MIN_SEPARATE_CASTS * num_units:
        wide = decoder.add_node("Cast", [codes], group.part_name("c"), to=TensorProto.INT32)
        return split(wide, "s")
    return [
        decoder.add_node("Cast", [part], group.part_name("s", number), to=TensorProto.INT32)
        for number, part in enumerate(split(codes, "n"))
    ]


def _split_tensor(
    tensor: str,
    sizes: Sequence[int],
    outputs: list[str],
    sizes_name: str,
    opset: int,
    decoder: DecoderGraph,
) -> list[str]:
    """Add a Split of a flat tensor unless it has only one part, and return the parts."""
    if len(sizes) == 1:
        return [tensor]
    if opset < SPLIT_INPUT_OPSET:
        node = helper.make_node("Split", [tensor], outputs, axis=0, split=sizes)
    else:
        vector = decoder.add_vector(sizes_name.removeprefix(PREFIX), sizes)
        node = helper.make_node("Split", [tensor, vector], outputs)
    decoder.nodes[outputs[0]] = node
    return outputs


def _locate_values(
    group: PackedGroup,
    name_part: Callable[[str], str],
    values: str,
    steps: str,
    decoder: DecoderGraph,
) -> tuple[str, str]:
    """Add nodes that compute the position of each value, and return positions and values."""
    axis = decoder.add_integer(0, TensorProto.INT64)
    if group.kind in packed_codec.VALUED_KINDS:
        return decoder.add_node("CumSum", [steps, axis], name_part("p")), values
    top = decoder.add_integer(packed_codec.largest_code(group.kind), TensorProto.INT32)
    is_less = decoder.add_node("Less", [steps, top], name_part("t"))
    has_value = decoder.add_node("Cast", [is_less], name_part("r"), to=TensorProto.INT32)
    lengths = decoder.add_node("Add", [steps, has_value], name_part("a"))
    ends = decoder.add_node("CumSum", [lengths, axis], name_part("e"))
    unit = decoder.add_integer(1, TensorProto.INT32)
    positions = decoder.add_node("Sub", [ends, unit], name_part("p"))
    return positions, _pick_values(name_part, values, has_value, decoder)


def _unpack_codes(group: PackedGroup, width: int, decoder: DecoderGraph) -> str:
    """Add nodes that unpack codes of less than a byte, one per byte, and return their output."""
    name_part = group.part_name
    codes = name_part(group.kind)
    if group.kind == packed_codec.PAIRS:
        divisors = decoder.add_constant("pairs", TensorProto.UINT8, packed_codec.PAIR_DIVISORS)
        pairs = decoder.add_node("Mod", [codes, divisors], name_part("b"))
        return decoder.add_node(
            "Reshape", [pairs, decoder.add_vector("flat", [-1])], name_part("f")
        )
    divisor = decoder.add_integer(1 << width, TensorProto.UINT8)
    low = decoder.add_node("Mod", [codes, divisor], name_part("l"))
    if packed_codec.LOW_ROWS[width] == 1:
        spread = decoder.add_node("Cast", [codes], name_part("h"), to=TensorProto.INT32)
    else:
        # The high bits are what the bytes have more than their low bits.
        row_weights = packed_codec.get_high_bit_weights(width)[None]
        weights = decoder.add_constant(f"w{width}", TensorProto.UINT8, row_weights)
        byte_sum = decoder.add_node("MatMulInteger", [weights, codes], name_part("q"))
        low_sum = decoder.add_node("MatMulInteger", [weights, low], name_part("r"))
        spread = decoder.add_node("Sub", [byte_sum, low_sum], name_part("h"))
    wide_divisor = decoder.add_integer(1 << width, TensorProto.INT32)
    high = decoder.add_node("Div", [spread, wide_divisor], name_part("t"))
    last = decoder.add_node("Cast", [high], name_part("o"), to=TensorProto.UINT8)
    rows = decoder.add_node("Concat", [low, last], name_part("b"), axis=0)
    return decoder.add_node("Reshape", [rows, decoder.add_vector("flat", [-1])], name_part("f"))


def _unpack_mask(group: PackedGroup, decoder: DecoderGraph) -> list[str]:
    """Add nodes that unpack a mask as 0 or 1 per element; return one output, for the one unit."""
    name_part = group.part_name
    size = group.units[0].size
    octets = decoder.add_node("Cast", [name_part(group.kind)], name_part("c"), to=TensorProto.INT32)
    rows = decoder.add_node("Gather", [_add_bit_table(decoder), octets], name_part("b"))
    bits = decoder.add_node("Reshape", [rows, decoder.add_vector("flat", [-1])], name_part("f"))
    if size % 8:
        start = decoder.add_vector("start", [0])
        end = decoder.add_vector(f"s{size}", [size])
        bits = decoder.add_node("Slice", [bits, start, end], name_part("u"))
    return [bits]


def _pick_values(
    name_part: Callable[[str], str], values: str, has_value: str, decoder: DecoderGraph
) -> str:
    """Add nodes that give each entry its value, and return their output.

    Entries with a 1 in `has_value` take the next value, others the first one, which is zero.
    """
    axis = decoder.add_integer(0, TensorProto.INT64)
    ranks = decoder.add_node("CumSum", [has_value, axis], name_part("k"))
    indices = decoder.add_node("Mul", [ranks, has_value], name_part("i"))
    return decoder.add_node("Gather", [values, indices], name_part("g"))


def _add_zeros(data_type: int, size: int, decoder: DecoderGraph) -> str:
    """Add nodes that make a vector of zeros, and return their output."""
    shape = decoder.add_vector(f"s{size}", [size])
    output = f"{PREFIX}z{data_type}/{size}"
    if data_type == TensorProto.FLOAT:
        return decoder.add_node("ConstantOfShape", [shape], output)
    if data_type == TensorProto.BFLOAT16:  # ConstantOfShape cannot make it before opset 20
        wide = _add_zeros(TensorProto.FLOAT, size, decoder)
        return decoder.add_node("Cast", [wide], output, to=data_type)
    zero = make_tensor("", data_type, np.zeros(1))
    return decoder.add_node("ConstantOfShape", [shape], output, value=zero)


def _add_bit_table(decoder: DecoderGraph) -> str:
    """Add nodes that make a table of the eight bits of each byte, and return their output."""
    octets = decoder.add_constant("octets", TensorProto.UINT8, np.arange(256).reshape(256, 1))
    places = decoder.add_constant("places", TensorProto.INT32, 1 << np.arange(8))
    wide = decoder.add_node("Cast", [octets], f"{PREFIX}wide", to=TensorProto.INT32)
    shifted = decoder.add_node("Div", [wide, places], f"{PREFIX}shifted")
    two = decoder.add_integer(2, TensorProto.INT32)
    return decoder.add_node("Mod", [shifted, two], f"{PREFIX}table")


def get_opset(model: ModelProto) -> int:
    """Return the version of the standard operators in a model, 0 if it uses none."""
    return schemas.get_opset(model, "", 0)
