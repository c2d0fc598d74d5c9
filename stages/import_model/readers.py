"""Which nodes read a stored tensor, seen through nodes that only move its elements; which of them multiply by it."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from itertools import groupby
from typing import NamedTuple

from onnx import GraphProto, NodeProto

from ltp_pipeline.graph import ONNXRUNTIME_DOMAIN, attribute, is_standard, reads, stored

# Inputs that hold a kernel, by operator. On the left of a product may stand the data or the weight; of an Einsum, an
# operand is one where the equation is such a product.
WEIGHT_SLOTS: Mapping[str, tuple[int, ...]] = {
    "Conv": (1,),
    "ConvTranspose": (1,),
    "Gemm": (0, 1),
    "MatMul": (0, 1),
    "RNN": (1, 2),
    "GRU": (1, 2),
    "LSTM": (1, 2),
    "MatMulInteger": (1,),
    "ConvInteger": (1,),
}
# The same for operators that onnxruntime's optimisers write.
FUSED_SLOTS: Mapping[str, tuple[int, ...]] = {
    "FusedConv": (1,),
    "FusedGemm": (0, 1),
    "FusedMatMul": (0, 1),
    "Attention": (1,),
}
_PRODUCTS = ("Gemm", "MatMul", "FusedGemm", "FusedMatMul")

# A weight that only passes through these is still the same weight: they move its elements, they do not mix them.
_VIEWS = (
    *("Identity", "Transpose", "Reshape", "Cast", "Squeeze", "Unsqueeze", "Flatten", "Split", "Slice"),
    "DequantizeLinear",  # of a weight in 8 bits
)
_MOST_JOINED = 64  # tensors that Concat makes one weight of; more is no layer


class Reader(NamedTuple):
    """A node that reads a tensor, in which of its inputs, and whether the tensor is the node's weight there."""

    node: NodeProto
    slot: int
    is_weight: bool


def readers(graph: GraphProto, names: Collection[str]) -> dict[str, list[Reader]]:
    """For each tensor the nodes that read it, those of nested graphs too; ordered by first use.

    Tensors that Concat joins with nothing but other stored tensors are read by what reads the joined one.
    """
    found: dict[str, list[Reader]] = defaultdict(list)
    tensors, joined = stored(graph).keys(), dict[str, tuple[str, ...]]()
    every = list(reads(graph, through=_VIEWS, outputs=True))  # a list, because ids are of objects that are alive
    for _, group in groupby(every, key=lambda read: id(read[0])):
        inputs = [(node, slot, joined.get(name, (name,) if name in tensors else ())) for node, slot, name in group]
        node = inputs[0][0]
        if is_standard(node, "Concat") and all(sources for _, _, sources in inputs):
            together = tuple(dict.fromkeys(name for _, _, sources in inputs for name in sources))
            if len(together) <= _MOST_JOINED:
                joined[node.output[0]] = together
                continue
        constant = {slot for _, slot, sources in inputs if sources}
        for _, slot, sources in inputs:
            for name in sources:
                if name in names:
                    found[name].append(Reader(node, slot, _is_weight(node, slot, constant)))
    return found


def _is_weight(node: NodeProto, slot: int, constant: Collection[int]) -> bool:
    """Whether a stored tensor in this input is a weight; on the left of a stored weight it is a table."""
    if node.op_type in _PRODUCTS and slot == 0 and 1 in constant:
        return False
    if is_standard(node, "Einsum"):
        return len(constant) == 1 and _contracts(node)
    if node.domain == ONNXRUNTIME_DOMAIN:
        return slot in FUSED_SLOTS.get(node.op_type, ())
    return is_standard(node, *WEIGHT_SLOTS) and slot in WEIGHT_SLOTS[node.op_type]


def _contracts(einsum: NodeProto) -> bool:
    """Whether two operands are multiplied and summed over an index that both have, as a MatMul does."""
    equation = attribute(einsum, "equation", b"").decode("ascii", "replace").replace(" ", "")
    operands, arrow, result = equation.partition("->")
    left, comma, right = operands.partition(",")
    letters = {c for c in left if c.isalpha()} & {c for c in right if c.isalpha()}
    return bool(arrow and comma) and "," not in right and bool(letters - {*result})
