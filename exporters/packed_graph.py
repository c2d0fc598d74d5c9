"""The nodes that turn a packed tensor back into a dense one, in ops that onnxruntime folds when it loads the model.

What decides the choice of ops (measured with onnxruntime 1.31): NonZero and Compress are never folded, nor is
DequantizeLinear by default; Gather is six times slower than GatherElements, broadcasting BitShift than a table.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper

from ltp_pipeline.exporters import packed_codec, tensors

PREFIX = "ltp/"  # reserved: every name that packing adds begins so
OPSET = 11  # CumSum and BitShift begin here
BFLOAT16_OPSET = 13


@dataclass(frozen=True)
class Packed:
    """What must be known of one packed tensor to write its decoder."""

    index: int
    kind: str  # of codes, see packed_codec
    weight: str
    dims: tuple[int, ...]
    data_type: int
    values: str = "own"  # "fp16" and "int8" are lossy

    @property
    def size(self) -> int:
        """Elements of the dense tensor."""
        return int(np.prod(self.dims, dtype=np.int64))

    def name(self, part: str) -> str:
        """The name of one of its parts."""
        return f"{PREFIX}{self.index}/{part}"


@dataclass
class Decoder:
    """Nodes in order, and the small constants they use, by name; both may be shared between tensors."""

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


def decoder(packed: Packed, into: Decoder) -> None:
    """Add the nodes that end in the tensor's own name."""
    name = packed.name
    values = name("v")
    if packed.values != "own":
        values = into.add("Cast", [name(packed.values)], name("x"), to=packed.data_type)
    if packed.kind == packed_codec.MASK:
        flat = _from_mask(packed, values, into)
    else:
        where, values = _from_gaps(packed, values, into)
        flat = into.add("ScatterElements", [_zeros(packed, into), where, values], name("d"))
    dims = into.constant(
        "s" + ".".join(map(str, packed.dims)), TensorProto.INT64, lambda: np.array(packed.dims, np.int64)
    )
    if packed.values == "int8":
        shaped = into.add("Reshape", [flat, dims], name("w"))
        into.add("Mul", [shaped, name("scale")], packed.weight)
    else:
        into.add("Reshape", [flat, dims], packed.weight)


def _from_gaps(packed: Packed, values: str, into: Decoder) -> tuple[str, str]:
    name, codes = packed.name, packed.name(packed.kind)
    axis = into.integer(0, TensorProto.INT64)
    if packed_codec.WIDTHS[packed.kind] == 4:
        low = into.add("Mod", [codes, into.integer(16, TensorProto.UINT8)], name("l"))
        high = into.add("BitShift", [codes, into.integer(4, TensorProto.UINT8)], name("h"), direction="RIGHT")
        if packed.kind == "4o":
            bounds = [into.integer(n, TensorProto.INT64, (1,)) for n in (0, -1)]
            high = into.add("Slice", [high, *bounds], name("h1"))
        codes = into.add("Concat", [low, high], name("b"), axis=0)
    steps = into.add("Cast", [codes], name("c"), to=TensorProto.INT32)
    if packed.kind.endswith("v"):
        return into.add("CumSum", [steps, axis], name("p")), values
    top = into.integer(packed_codec.top(packed.kind), TensorProto.INT32)
    real = into.add("Cast", [into.add("Less", [steps, top], name("t"))], name("r"), to=TensorProto.INT32)
    ends = into.add("CumSum", [into.add("Add", [steps, real], name("a")), axis], name("e"))
    where = into.add("Sub", [ends, into.integer(1, TensorProto.INT32)], name("p"))
    return where, _pick(packed, values, real, into)


def _from_mask(packed: Packed, values: str, into: Decoder) -> str:
    name = packed.name
    octets = into.add("Cast", [name(packed.kind)], name("c"), to=TensorProto.INT32)
    rows = into.add("Gather", [_bit_table(into), octets], name("b"))
    bits = into.add("Reshape", [rows, into.integer(-1, TensorProto.INT64, (1,))], name("r"))
    if packed.size % 8:
        bounds = [into.integer(n, TensorProto.INT64, (1,)) for n in (0, packed.size)]
        bits = into.add("Slice", [bits, *bounds], name("r1"))
    return _pick(packed, values, bits, into)


def _pick(packed: Packed, values: str, real: str, into: Decoder) -> str:
    """The next value where `real` is one; the first of all values, which is zero, where it is zero."""
    name = packed.name
    rank = into.add("CumSum", [real, into.integer(0, TensorProto.INT64)], name("n"))
    return into.add("GatherElements", [values, into.add("Mul", [rank, real], name("i"))], name("g"))


def _zeros(packed: Packed, into: Decoder) -> str:
    size = into.integer(packed.size, TensorProto.INT64, (1,))
    output = f"{PREFIX}z{packed.data_type}/{packed.size}"
    if packed.data_type == TensorProto.FLOAT:
        return into.add("ConstantOfShape", [size], output)
    if packed.data_type == TensorProto.BFLOAT16:  # which ConstantOfShape cannot make before opset 20
        wide = into.add("ConstantOfShape", [size], f"{PREFIX}z{TensorProto.FLOAT}/{packed.size}")
        return into.add("Cast", [wide], output, to=packed.data_type)
    zero = tensors.make("", packed.data_type, np.zeros(1))
    return into.add("ConstantOfShape", [size], output, value=zero)


def _bit_table(into: Decoder) -> str:
    octets = into.constant("octets", TensorProto.UINT8, lambda: np.arange(256).reshape(256, 1))
    places = into.constant("places", TensorProto.UINT8, lambda: np.arange(8))
    shifted = into.add("BitShift", [octets, places], f"{PREFIX}shifted", direction="RIGHT")
    bits = into.add("Mod", [shifted, into.integer(2, TensorProto.UINT8)], f"{PREFIX}bits")
    return into.add("Cast", [bits], f"{PREFIX}table", to=TensorProto.INT32)
