"""The nodes that turn a packed tensor back into a dense one, in ops that onnxruntime folds when it loads the model.

What decides the choice of ops (measured with onnxruntime 1.31): NonZero and Compress are never folded, nor is
DequantizeLinear by default; onnx's ReferenceEvaluator fails on GatherElements, OpenVINO on BitShift of bytes; and
every node costs time, whatever its size, and all results stay in memory until the last node is folded. So the codes of
many tensors are unpacked together, and small tensors are scattered together as one.
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
OPSET = 11  # CumSum begins here
BFLOAT16_OPSET = 13
SPLIT_INPUT_OPSET = 13  # before, the sizes are an attribute
MIN_SEPARATE_CASTS = (
    2**14
)  # codes for each tensor from which copying them as int32 costs more than a node for each


@dataclass(frozen=True)
class PackedTensor:
    """One packed tensor: its own name and its dims."""

    name: str
    dims: tuple[int, ...]

    @property
    def size(self) -> int:
        """Elements of the dense tensor."""
        return int(np.prod(self.dims, dtype=np.int64))


@dataclass(frozen=True)
class PackedUnit:
    """Tensors that are scattered one behind the other as one, and how many of their group's codes are theirs."""

    tensors: tuple[PackedTensor, ...]
    codes: int

    @property
    def size(self) -> int:
        """Elements of the dense tensors."""
        return sum(member.size for member in self.tensors)


@dataclass(frozen=True)
class PackedGroup:
    """Tensors whose codes are stored as one, and what must be known of them to write their decoder."""

    index: int
    kind: str  # of codes, see packed_codec
    data_type: int
    storage: str  # "exact", or rounded: "fp16", "int8"
    units: tuple[PackedUnit, ...]

    @property
    def tensors(self) -> list[PackedTensor]:
        """The tensors of all units."""
        return [member for unit in self.units for member in unit.tensors]

    def part_name(self, part: str, *nth: int) -> str:
        """The name of a part of the group, of its nth unit, or of the nth member of that."""
        return f"{PREFIX}{self.index}/{'.'.join([part, *map(str, nth)])}"


@dataclass
class DecoderGraph:
    """Nodes in order, and the small constants they use, by name."""

    nodes: dict[str, NodeProto] = field(default_factory=dict)  # by output
    constants: dict[str, TensorProto] = field(default_factory=dict)

    @property
    def num_bytes(self) -> int:
        """What nodes and constants take in a file."""
        nodes = sum(node.ByteSize() + 2 for node in self.nodes.values())
        return int(nodes + sum(tensor.ByteSize() + 2 for tensor in self.constants.values()))

    def merge(self, other: "DecoderGraph") -> "DecoderGraph":
        """Both; what they share is there once."""
        return DecoderGraph(self.nodes | other.nodes, self.constants | other.constants)

    def add_node(self, op: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        """One node; the same output is the same node."""
        if output not in self.nodes:
            self.nodes[output] = helper.make_node(op, inputs, [output], **attributes)
        return output

    def add_constant(self, name: str, data_type: int, content: object) -> str:
        """One constant; the same name is the same content."""
        name = PREFIX + name
        if name not in self.constants:
            array = np.asarray(content, helper.tensor_dtype_to_np_dtype(data_type))
            self.constants[name] = make_tensor(name, data_type, array)
        return name

    def add_integer(self, value: int, data_type: int) -> str:
        """A single number."""
        return self.add_constant(f"k{data_type}/{value}", data_type, value)

    def add_vector(self, name: str, content: Sequence[int]) -> str:
        """A list of int64."""
        return self.add_constant(name, TensorProto.INT64, content)


def build_decoder(group: PackedGroup, opset: int) -> DecoderGraph:
    """The nodes that end in the tensors' own names."""
    into = DecoderGraph()
    mask = group.kind == packed_codec.MASK
    codes = _unpack_mask(group, into) if mask else _widen_codes(group, opset, into)
    for nth, unit in enumerate(group.units):

        def name(part: str, nth: int = nth) -> str:
            return group.part_name(part, nth)

        values = name("v")
        if group.storage != EXACT:
            values = into.add_node("Cast", [name(group.storage)], name("x"), to=group.data_type)
        if mask:
            flat = _pick_values(name, values, codes[nth], into)
        else:
            where, values = _locate_values(group, name, values, codes[nth], into)
            flat = into.add_node(
                "ScatterElements",
                [_add_zeros(group.data_type, unit.size, into), where, values],
                name("d"),
            )
        sizes = [member.size for member in unit.tensors]
        parts = _split_tensor(
            flat,
            sizes,
            [group.part_name("y", nth, i) for i in range(len(sizes))],
            name("z"),
            opset,
            into,
        )
        for i, (member, part) in enumerate(zip(unit.tensors, parts, strict=True)):
            shape = into.add_vector(f"s{'.'.join(map(str, member.dims))}", member.dims)
            if group.storage == "int8":
                shaped = into.add_node("Reshape", [part, shape], group.part_name("w", nth, i))
                into.add_node("Mul", [shaped, group.part_name("scale", nth, i)], member.name)
            else:
                into.add_node("Reshape", [part, shape], member.name)
    return into


def _widen_codes(group: PackedGroup, opset: int, into: DecoderGraph) -> list[str]:
    """The codes of each unit, as int32."""
    width = packed_codec.WIDTHS[group.kind]
    codes = (
        _unpack_codes(group, width, into)
        if width in packed_codec.LOW_ROWS
        else group.part_name(group.kind)
    )
    sizes = [unit.codes for unit in group.units]
    count, padding = len(sizes), packed_codec.count_padding(group.kind, sum(sizes))
    if padding:
        sizes.append(padding)

    def split(codes: str, part: str) -> list[str]:
        outputs = [group.part_name(part, nth) for nth in range(len(sizes))]
        return _split_tensor(codes, sizes, outputs, group.part_name("n"), opset, into)[:count]

    if sum(sizes) < MIN_SEPARATE_CASTS * count:
        return split(
            into.add_node("Cast", [codes], group.part_name("c"), to=TensorProto.INT32), "s"
        )
    parts = split(codes, "n")
    return [
        into.add_node("Cast", [part], group.part_name("s", nth), to=TensorProto.INT32)
        for nth, part in enumerate(parts)
    ]


def _split_tensor(
    whole: str,
    sizes: Sequence[int],
    outputs: list[str],
    vector: str,
    opset: int,
    into: DecoderGraph,
) -> list[str]:
    """A flat tensor in parts of these sizes; with one part, the tensor itself."""
    if len(sizes) == 1:
        return [whole]
    if opset < SPLIT_INPUT_OPSET:
        into.nodes[outputs[0]] = helper.make_node("Split", [whole], outputs, axis=0, split=sizes)
    else:
        vector = into.add_vector(vector.removeprefix(PREFIX), sizes)
        into.nodes[outputs[0]] = helper.make_node("Split", [whole, vector], outputs)
    return outputs


def _locate_values(
    group: PackedGroup, name: Callable[[str], str], values: str, steps: str, into: DecoderGraph
) -> tuple[str, str]:
    """Where the values go, and the values."""
    axis = into.add_integer(0, TensorProto.INT64)
    if group.kind in packed_codec.VALUED_KINDS:
        return into.add_node("CumSum", [steps, axis], name("p")), values
    top = into.add_integer(packed_codec.largest_code(group.kind), TensorProto.INT32)
    real = into.add_node(
        "Cast", [into.add_node("Less", [steps, top], name("t"))], name("r"), to=TensorProto.INT32
    )
    ends = into.add_node(
        "CumSum", [into.add_node("Add", [steps, real], name("a")), axis], name("e")
    )
    where = into.add_node("Sub", [ends, into.add_integer(1, TensorProto.INT32)], name("p"))
    return where, _pick_values(name, values, real, into)


def _unpack_codes(group: PackedGroup, width: int, into: DecoderGraph) -> str:
    """Codes of less than a byte, one byte each; the high bits are what is left of the bytes without the low ones."""
    name, codes = group.part_name, group.part_name(group.kind)
    if group.kind == packed_codec.PAIRS:
        divisors = into.add_constant("pairs", TensorProto.UINT8, packed_codec.PAIR_DIVISORS)
        pairs = into.add_node("Mod", [codes, divisors], name("b"))
        return into.add_node("Reshape", [pairs, into.add_vector("flat", [-1])], name("f"))
    low = into.add_node("Mod", [codes, into.add_integer(1 << width, TensorProto.UINT8)], name("l"))
    if packed_codec.LOW_ROWS[width] == 1:
        spread = into.add_node("Cast", [codes], name("h"), to=TensorProto.INT32)
    else:
        weights = into.add_constant(
            f"w{width}", TensorProto.UINT8, packed_codec.get_high_bit_weights(width)[None]
        )
        sums = [
            into.add_node("MatMulInteger", [weights, x], name(y))
            for x, y in ((codes, "q"), (low, "r"))
        ]
        spread = into.add_node("Sub", sums, name("h"))
    high = into.add_node(
        "Div", [spread, into.add_integer(1 << width, TensorProto.INT32)], name("t")
    )
    rows = into.add_node(
        "Concat",
        [low, into.add_node("Cast", [high], name("o"), to=TensorProto.UINT8)],
        name("b"),
        axis=0,
    )
    return into.add_node("Reshape", [rows, into.add_vector("flat", [-1])], name("f"))


def _unpack_mask(group: PackedGroup, into: DecoderGraph) -> list[str]:
    """One number, 0 or 1, for each element; a mask is always alone in its group."""
    name, size = group.part_name, group.units[0].size
    octets = into.add_node("Cast", [name(group.kind)], name("c"), to=TensorProto.INT32)
    rows = into.add_node("Gather", [_add_bit_table(into), octets], name("b"))
    bits = into.add_node("Reshape", [rows, into.add_vector("flat", [-1])], name("f"))
    if size % 8:
        bits = into.add_node(
            "Slice",
            [bits, into.add_vector("start", [0]), into.add_vector(f"s{size}", [size])],
            name("u"),
        )
    return [bits]


def _pick_values(name: Callable[[str], str], values: str, real: str, into: DecoderGraph) -> str:
    """The next value where `real` is one; the first of all values, which is zero, where it is zero."""
    rank = into.add_node("CumSum", [real, into.add_integer(0, TensorProto.INT64)], name("k"))
    return into.add_node(
        "Gather", [values, into.add_node("Mul", [rank, real], name("i"))], name("g")
    )


def _add_zeros(data_type: int, size: int, into: DecoderGraph) -> str:
    shape, output = into.add_vector(f"s{size}", [size]), f"{PREFIX}z{data_type}/{size}"
    if data_type == TensorProto.FLOAT:
        return into.add_node("ConstantOfShape", [shape], output)
    if data_type == TensorProto.BFLOAT16:  # which ConstantOfShape cannot make before opset 20
        wide = into.add_node("ConstantOfShape", [shape], f"{PREFIX}z{TensorProto.FLOAT}/{size}")
        return into.add_node("Cast", [wide], output, to=data_type)
    return into.add_node(
        "ConstantOfShape", [shape], output, value=make_tensor("", data_type, np.zeros(1))
    )


def _add_bit_table(into: DecoderGraph) -> str:
    octets = into.add_constant("octets", TensorProto.UINT8, np.arange(256).reshape(256, 1))
    places = into.add_constant("places", TensorProto.INT32, 1 << np.arange(8))
    wide = into.add_node("Cast", [octets], f"{PREFIX}wide", to=TensorProto.INT32)
    shifted = into.add_node("Div", [wide, places], f"{PREFIX}shifted")
    return into.add_node("Mod", [shifted, into.add_integer(2, TensorProto.INT32)], f"{PREFIX}table")


def get_opset(model: ModelProto) -> int:
    """The version of the standard operators that a model uses."""
    return schemas.get_opset(model, "", 0)
