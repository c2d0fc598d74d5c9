"""The nodes that turn a packed tensor back into a dense one, in ops that onnxruntime folds when it loads the model.

What decides the choice of ops (measured with onnxruntime 1.31): NonZero and Compress are never folded, nor is
DequantizeLinear by default; Gather is six times slower than GatherElements, broadcasting BitShift than a table; and
folding costs 0.1 ms for every node, whatever its size, which is why tensors are decoded together and then split.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from ltp_pipeline.exporters import packed_codec, tensors

PREFIX = "ltp/"  # reserved: every name that packing adds begins so
OPSET = 11  # CumSum and BitShift begin here
BFLOAT16_OPSET = 13
SPLIT_INPUT_OPSET = 13  # before, the sizes are an attribute


@dataclass(frozen=True)
class Group:
    """Tensors that are packed as one run of elements, and what must be known of them to write their decoder."""

    index: int
    kind: str  # of codes, see packed_codec
    data_type: int
    values: str  # "own", or the lossy "fp16" and "int8"
    members: tuple[tuple[str, tuple[int, ...]], ...]  # name and dims of each tensor

    @property
    def sizes(self) -> list[int]:
        """Elements of each tensor."""
        return [int(np.prod(dims, dtype=np.int64)) for _, dims in self.members]

    @property
    def size(self) -> int:
        """Elements of all tensors."""
        return sum(self.sizes)

    def name(self, part: object) -> str:
        """The name of one of its parts."""
        return f"{PREFIX}{self.index}/{part}"


@dataclass
class Decoder:
    """Nodes in order, and the small constants they use, by name."""

    nodes: dict[str, NodeProto] = field(default_factory=dict)  # by output
    constants: dict[str, TensorProto] = field(default_factory=dict)

    def add(self, op: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        """One node; the same output is the same node."""
        if output not in self.nodes:
            self.nodes[output] = helper.make_node(op, inputs, [output], **attributes)
        return output

    def constant(self, name: str, data_type: int, make: Callable[[], object]) -> str:
        """One constant; the same name is the same content."""
        name = PREFIX + name
        if name not in self.constants:
            dtype = helper.tensor_dtype_to_np_dtype(data_type)
            self.constants[name] = tensors.make(name, data_type, np.asarray(make(), dtype))
        return name

    def integer(self, value: int, data_type: int, shape: tuple[int, ...] = ()) -> str:
        """A single number."""
        name = f"{'v' if shape else 'k'}{data_type}/{value}"
        return self.constant(name, data_type, lambda: np.full(shape, value))


def decoder(group: Group, opset: int) -> Decoder:
    """The nodes that end in the tensors' own names."""
    into, name = Decoder(), group.name
    values = name("v")
    if group.values != "own":
        values = into.add("Cast", [name(group.values)], name("x"), to=group.data_type)
    if group.kind == packed_codec.MASK:
        flat = _from_mask(group, values, into)
    else:
        where, values = _from_gaps(group, values, into)
        flat = into.add("ScatterElements", [_zeros(group, into), where, values], name("d"))
    for part, (weight, dims), nth in zip(_split(group, flat, opset, into), group.members, count(), strict=False):
        shape = into.constant("s" + ".".join(map(str, dims)), TensorProto.INT64, lambda dims=dims: np.array(dims))
        if group.values == "int8":
            shaped = into.add("Reshape", [part, shape], name(f"{nth}w"))
            into.add("Mul", [shaped, name(f"{nth}scale")], weight)
        else:
            into.add("Reshape", [part, shape], weight)
    return into


def _split(group: Group, flat: str, opset: int, into: Decoder) -> list[str]:
    if len(group.members) == 1:
        return [flat]
    outputs = [group.name(nth) for nth in range(len(group.members))]
    if opset < SPLIT_INPUT_OPSET:
        into.nodes[outputs[0]] = helper.make_node("Split", [flat], outputs, axis=0, split=group.sizes)
    else:
        sizes = into.constant(f"{group.index}/n", TensorProto.INT64, lambda: np.array(group.sizes))
        into.nodes[outputs[0]] = helper.make_node("Split", [flat, sizes], outputs, axis=0)
    return outputs


def _from_gaps(group: Group, values: str, into: Decoder) -> tuple[str, str]:
    name, width = group.name, packed_codec.WIDTHS[group.kind]
    axis = into.integer(0, TensorProto.INT64)
    codes = _narrow(group, width, into) if width in packed_codec.ROWS else name(group.kind)
    steps = into.add("Cast", [codes], name("c"), to=TensorProto.INT32)
    if group.kind.endswith("v"):
        return into.add("CumSum", [steps, axis], name("p")), values
    top = into.integer(packed_codec.top(group.kind), TensorProto.INT32)
    real = into.add("Cast", [into.add("Less", [steps, top], name("t"))], name("r"), to=TensorProto.INT32)
    ends = into.add("CumSum", [into.add("Add", [steps, real], name("a")), axis], name("e"))
    where = into.add("Sub", [ends, into.integer(1, TensorProto.INT32)], name("p"))
    return where, _pick(group, values, real, into)


def _narrow(group: Group, width: int, into: Decoder) -> str:
    """Codes of less than a byte, one byte each."""
    name, codes = group.name, group.name(group.kind)
    low = into.add("Mod", [codes, into.integer(1 << width, TensorProto.UINT8)], name("l"))
    high = into.add("BitShift", [codes, into.integer(width, TensorProto.UINT8)], name("h"), direction="RIGHT")
    if group.kind == "4o":
        bounds = [into.integer(n, TensorProto.INT64, (1,)) for n in (0, -1)]
        high = into.add("Slice", [high, *bounds], name("h1"))
    if packed_codec.ROWS[width] == 1:
        return into.add("Concat", [low, high], name("b"), axis=0)
    weights = into.constant(f"w{width}", TensorProto.UINT8, lambda: packed_codec.high_weights(width)[None])
    last = into.add("Cast", [into.add("MatMulInteger", [weights, high], name("q"))], name("o"), to=TensorProto.UINT8)
    rows = into.add("Concat", [low, last], name("b"), axis=0)
    return into.add("Reshape", [rows, into.integer(-1, TensorProto.INT64, (1,))], name("f"))


def _from_mask(group: Group, values: str, into: Decoder) -> str:
    name = group.name
    octets = into.add("Cast", [name(group.kind)], name("c"), to=TensorProto.INT32)
    rows = into.add("Gather", [_bit_table(into), octets], name("b"))
    bits = into.add("Reshape", [rows, into.integer(-1, TensorProto.INT64, (1,))], name("r"))
    if group.size % 8:
        bounds = [into.integer(n, TensorProto.INT64, (1,)) for n in (0, group.size)]
        bits = into.add("Slice", [bits, *bounds], name("r1"))
    return _pick(group, values, bits, into)


def _pick(group: Group, values: str, real: str, into: Decoder) -> str:
    """The next value where `real` is one; the first of all values, which is zero, where it is zero."""
    name = group.name
    rank = into.add("CumSum", [real, into.integer(0, TensorProto.INT64)], name("k"))
    return into.add("GatherElements", [values, into.add("Mul", [rank, real], name("i"))], name("g"))


def _zeros(group: Group, into: Decoder) -> str:
    size = into.integer(group.size, TensorProto.INT64, (1,))
    output = f"{PREFIX}z{group.data_type}/{group.size}"
    if group.data_type == TensorProto.FLOAT:
        return into.add("ConstantOfShape", [size], output)
    if group.data_type == TensorProto.BFLOAT16:  # which ConstantOfShape cannot make before opset 20
        wide = into.add("ConstantOfShape", [size], f"{PREFIX}z{TensorProto.FLOAT}/{group.size}")
        return into.add("Cast", [wide], output, to=group.data_type)
    zero = tensors.make("", group.data_type, np.zeros(1))
    return into.add("ConstantOfShape", [size], output, value=zero)


def _bit_table(into: Decoder) -> str:
    octets = into.constant("octets", TensorProto.UINT8, lambda: np.arange(256).reshape(256, 1))
    places = into.constant("places", TensorProto.UINT8, lambda: np.arange(8))
    shifted = into.add("BitShift", [octets, places], f"{PREFIX}shifted", direction="RIGHT")
    bits = into.add("Mod", [shifted, into.integer(2, TensorProto.UINT8)], f"{PREFIX}bits")
    return into.add("Cast", [bits], f"{PREFIX}table", to=TensorProto.INT32)


def opset_of(model: ModelProto) -> int:
    """The version of the standard operators that a model uses."""
    return next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)
