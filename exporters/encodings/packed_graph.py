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
WIDEN_LAST = (
    2**14
)  # codes for each tensor from which copying them as int32 costs more than a node for each


@dataclass(frozen=True)
class Member:
    """One packed tensor: its own name and its dims."""

    weight: str
    dims: tuple[int, ...]

    @property
    def size(self) -> int:
        """Elements of the dense tensor."""
        return int(np.prod(self.dims, dtype=np.int64))


@dataclass(frozen=True)
class Unit:
    """Tensors that are scattered one behind the other as one, and how many of their group's codes are theirs."""

    members: tuple[Member, ...]
    codes: int

    @property
    def size(self) -> int:
        """Elements of the dense tensors."""
        return sum(member.size for member in self.members)


@dataclass(frozen=True)
class Group:
    """Tensors whose codes are stored as one, and what must be known of them to write their decoder."""

    index: int
    kind: str  # of codes, see packed_codec
    data_type: int
    values: str  # "exact", or rounded: "fp16", "int8"
    units: tuple[Unit, ...]

    @property
    def members(self) -> list[Member]:
        """The tensors of all units."""
        return [member for unit in self.units for member in unit.members]

    def name(self, part: str, *nth: int) -> str:
        """The name of a part of the group, of its nth unit, or of the nth member of that."""
        return f"{PREFIX}{self.index}/{'.'.join([part, *map(str, nth)])}"


@dataclass
class Decoder:
    """Nodes in order, and the small constants they use, by name."""

    nodes: dict[str, NodeProto] = field(default_factory=dict)  # by output
    constants: dict[str, TensorProto] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """What nodes and constants take in a file."""
        nodes = sum(node.ByteSize() + 2 for node in self.nodes.values())
        return int(nodes + sum(tensor.ByteSize() + 2 for tensor in self.constants.values()))

    def merged(self, other: "Decoder") -> "Decoder":
        """Both; what they share is there once."""
        return Decoder(self.nodes | other.nodes, self.constants | other.constants)

    def add(self, op: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        """One node; the same output is the same node."""
        if output not in self.nodes:
            self.nodes[output] = helper.make_node(op, inputs, [output], **attributes)
        return output

    def constant(self, name: str, data_type: int, content: object) -> str:
        """One constant; the same name is the same content."""
        name = PREFIX + name
        if name not in self.constants:
            array = np.asarray(content, helper.tensor_dtype_to_np_dtype(data_type))
            self.constants[name] = make_tensor(name, data_type, array)
        return name

    def integer(self, value: int, data_type: int) -> str:
        """A single number."""
        return self.constant(f"k{data_type}/{value}", data_type, value)

    def vector(self, name: str, content: Sequence[int]) -> str:
        """A list of int64."""
        return self.constant(name, TensorProto.INT64, content)


def decoder(group: Group, opset: int) -> Decoder:
    """The nodes that end in the tensors' own names."""
    into = Decoder()
    mask = group.kind == packed_codec.MASK
    codes = _bits(group, into) if mask else _steps(group, opset, into)
    for nth, unit in enumerate(group.units):

        def name(part: str, nth: int = nth) -> str:
            return group.name(part, nth)

        values = name("v")
        if group.values != EXACT:
            values = into.add("Cast", [name(group.values)], name("x"), to=group.data_type)
        if mask:
            flat = _pick(name, values, codes[nth], into)
        else:
            where, values = _where(group, name, values, codes[nth], into)
            flat = into.add(
                "ScatterElements",
                [_zeros(group.data_type, unit.size, into), where, values],
                name("d"),
            )
        sizes = [member.size for member in unit.members]
        parts = _split(
            flat,
            sizes,
            [group.name("y", nth, i) for i in range(len(sizes))],
            name("z"),
            opset,
            into,
        )
        for i, (member, part) in enumerate(zip(unit.members, parts, strict=True)):
            shape = into.vector(f"s{'.'.join(map(str, member.dims))}", member.dims)
            if group.values == "int8":
                shaped = into.add("Reshape", [part, shape], group.name("w", nth, i))
                into.add("Mul", [shaped, group.name("scale", nth, i)], member.weight)
            else:
                into.add("Reshape", [part, shape], member.weight)
    return into


def _steps(group: Group, opset: int, into: Decoder) -> list[str]:
    """The codes of each unit, as int32."""
    width = packed_codec.WIDTHS[group.kind]
    codes = _narrow(group, width, into) if width in packed_codec.ROWS else group.name(group.kind)
    sizes = [unit.codes for unit in group.units]
    count, padding = len(sizes), packed_codec.padding(group.kind, sum(sizes))
    if padding:
        sizes.append(padding)

    def split(codes: str, part: str) -> list[str]:
        outputs = [group.name(part, nth) for nth in range(len(sizes))]
        return _split(codes, sizes, outputs, group.name("n"), opset, into)[:count]

    if sum(sizes) < WIDEN_LAST * count:
        return split(into.add("Cast", [codes], group.name("c"), to=TensorProto.INT32), "s")
    parts = split(codes, "n")
    return [
        into.add("Cast", [part], group.name("s", nth), to=TensorProto.INT32)
        for nth, part in enumerate(parts)
    ]


def _split(
    whole: str, sizes: Sequence[int], outputs: list[str], vector: str, opset: int, into: Decoder
) -> list[str]:
    """A flat tensor in parts of these sizes; with one part, the tensor itself."""
    if len(sizes) == 1:
        return [whole]
    if opset < SPLIT_INPUT_OPSET:
        into.nodes[outputs[0]] = helper.make_node("Split", [whole], outputs, axis=0, split=sizes)
    else:
        vector = into.vector(vector.removeprefix(PREFIX), sizes)
        into.nodes[outputs[0]] = helper.make_node("Split", [whole, vector], outputs)
    return outputs


def _where(
    group: Group, name: Callable[[str], str], values: str, steps: str, into: Decoder
) -> tuple[str, str]:
    """Where the values go, and the values."""
    axis = into.integer(0, TensorProto.INT64)
    if group.kind in packed_codec.QUICK:
        return into.add("CumSum", [steps, axis], name("p")), values
    top = into.integer(packed_codec.top(group.kind), TensorProto.INT32)
    real = into.add(
        "Cast", [into.add("Less", [steps, top], name("t"))], name("r"), to=TensorProto.INT32
    )
    ends = into.add("CumSum", [into.add("Add", [steps, real], name("a")), axis], name("e"))
    where = into.add("Sub", [ends, into.integer(1, TensorProto.INT32)], name("p"))
    return where, _pick(name, values, real, into)


def _narrow(group: Group, width: int, into: Decoder) -> str:
    """Codes of less than a byte, one byte each; the high bits are what is left of the bytes without the low ones."""
    name, codes = group.name, group.name(group.kind)
    if group.kind == packed_codec.PAIRS:
        divisors = into.constant("pairs", TensorProto.UINT8, packed_codec.DIVISORS)
        pairs = into.add("Mod", [codes, divisors], name("b"))
        return into.add("Reshape", [pairs, into.vector("flat", [-1])], name("f"))
    low = into.add("Mod", [codes, into.integer(1 << width, TensorProto.UINT8)], name("l"))
    if packed_codec.ROWS[width] == 1:
        spread = into.add("Cast", [codes], name("h"), to=TensorProto.INT32)
    else:
        weights = into.constant(
            f"w{width}", TensorProto.UINT8, packed_codec.high_weights(width)[None]
        )
        sums = [
            into.add("MatMulInteger", [weights, x], name(y)) for x, y in ((codes, "q"), (low, "r"))
        ]
        spread = into.add("Sub", sums, name("h"))
    high = into.add("Div", [spread, into.integer(1 << width, TensorProto.INT32)], name("t"))
    rows = into.add(
        "Concat",
        [low, into.add("Cast", [high], name("o"), to=TensorProto.UINT8)],
        name("b"),
        axis=0,
    )
    return into.add("Reshape", [rows, into.vector("flat", [-1])], name("f"))


def _bits(group: Group, into: Decoder) -> list[str]:
    """One number, 0 or 1, for each element; a mask is always alone in its group."""
    name, size = group.name, group.units[0].size
    octets = into.add("Cast", [name(group.kind)], name("c"), to=TensorProto.INT32)
    rows = into.add("Gather", [_bit_table(into), octets], name("b"))
    bits = into.add("Reshape", [rows, into.vector("flat", [-1])], name("f"))
    if size % 8:
        bits = into.add(
            "Slice", [bits, into.vector("start", [0]), into.vector(f"s{size}", [size])], name("u")
        )
    return [bits]


def _pick(name: Callable[[str], str], values: str, real: str, into: Decoder) -> str:
    """The next value where `real` is one; the first of all values, which is zero, where it is zero."""
    rank = into.add("CumSum", [real, into.integer(0, TensorProto.INT64)], name("k"))
    return into.add("Gather", [values, into.add("Mul", [rank, real], name("i"))], name("g"))


def _zeros(data_type: int, size: int, into: Decoder) -> str:
    shape, output = into.vector(f"s{size}", [size]), f"{PREFIX}z{data_type}/{size}"
    if data_type == TensorProto.FLOAT:
        return into.add("ConstantOfShape", [shape], output)
    if data_type == TensorProto.BFLOAT16:  # which ConstantOfShape cannot make before opset 20
        wide = into.add("ConstantOfShape", [shape], f"{PREFIX}z{TensorProto.FLOAT}/{size}")
        return into.add("Cast", [wide], output, to=data_type)
    return into.add(
        "ConstantOfShape", [shape], output, value=make_tensor("", data_type, np.zeros(1))
    )


def _bit_table(into: Decoder) -> str:
    octets = into.constant("octets", TensorProto.UINT8, np.arange(256).reshape(256, 1))
    places = into.constant("places", TensorProto.INT32, 1 << np.arange(8))
    wide = into.add("Cast", [octets], f"{PREFIX}wide", to=TensorProto.INT32)
    shifted = into.add("Div", [wide, places], f"{PREFIX}shifted")
    return into.add("Mod", [shifted, into.integer(2, TensorProto.INT32)], f"{PREFIX}table")


def opset_of(model: ModelProto) -> int:
    """The version of the standard operators that a model uses."""
    return schemas.opset_of(model, "", 0)
