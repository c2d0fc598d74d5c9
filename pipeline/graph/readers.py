"""Which nodes read a stored tensor, seen through nodes that only move its elements; which of them multiply by it."""

from collections import ChainMap, defaultdict
from collections.abc import Collection, Mapping, MutableMapping, Sequence
from typing import NamedTuple

from onnx import GraphProto, NodeProto

from ltp_pipeline.graph.nodes import (
    PART_OPERATORS,
    VIEW_OPERATORS,
    get_attribute,
    get_subgraphs,
    is_standard,
    iter_graphs,
    iter_nodes,
)
from ltp_pipeline.graph.schemas import ONNXRUNTIME_DOMAIN
from ltp_pipeline.graph.tensors import iter_stored_tensors

# Inputs that hold a kernel, by operator. On the left of a product may stand the data or the weight; of an Einsum, an
# operand is one where the equation is such a product.
WEIGHT_INPUTS: Mapping[str, tuple[int, ...]] = {
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
FUSED_WEIGHT_INPUTS: Mapping[str, tuple[int, ...]] = {
    "FusedConv": (1,),
    "FusedGemm": (0, 1),
    "FusedMatMul": (0, 1),
    "Attention": (1,),
}
_PRODUCTS = ("Gemm", "MatMul", "FusedGemm", "FusedMatMul")

# A weight that only passes through these operators is still the same weight. The last one is on
# the way of a weight that is stored in 8 bits.
_MOVING_OPERATORS = (*VIEW_OPERATORS, *PART_OPERATORS, "DequantizeLinear")
_MOST_JOINED = 64  # tensors that Concat makes one weight of; more is no layer


class TensorReader(NamedTuple):
    """A node that reads a tensor, in which of its inputs, and whether the tensor is the node's weight there."""

    node: NodeProto
    slot: int
    is_weight: bool


TensorReaders = Mapping[str, Sequence[TensorReader]]


def find_readers(graph: GraphProto) -> dict[str, list[TensorReader]]:
    """For each tensor stored in a graph the nodes that read it, those of nested graphs too; ordered by first use.

    Tensors that Concat joins with nothing but other stored tensors are read by what reads the joined one.
    """
    found: dict[str, list[TensorReader]] = defaultdict(list)
    read = {name for node in iter_nodes(graph) for name in node.input}
    read |= {output.name for nested in iter_graphs(graph) for output in nested.output}
    _walk(graph, {name: (name,) for name, _ in iter_stored_tensors(graph) if name in read}, found)
    return found


def _walk(
    graph: GraphProto,
    known: MutableMapping[str, tuple[str, ...]],
    found: dict[str, list[TensorReader]],
) -> None:
    """Go through the nodes; `known` has the tensors behind each value that is made of nothing else."""
    for node in graph.node:
        sources = [(slot, known[name]) for slot, name in enumerate(node.input) if name in known]
        if sources:
            _note(node, sources, known, found)
        for nested in get_subgraphs(node):
            _walk(nested, ChainMap({}, known), found)
    for output in graph.output:
        for name in known.get(output.name, ()):
            found[name].append(
                TensorReader(NodeProto(op_type="output", name=output.name), 0, False)
            )


def _note(
    node: NodeProto,
    sources: list[tuple[int, tuple[str, ...]]],
    known: MutableMapping[str, tuple[str, ...]],
    found: dict[str, list[TensorReader]],
) -> None:
    """Pass on what a node only moves or joins; it reads the other tensors."""
    if is_standard(node, *_MOVING_OPERATORS) and sources[0][0] == 0 and node.output:
        known.update((output, sources[0][1]) for output in node.output if output)
        sources = sources[1:]
    elif is_standard(node, "Concat") and len(sources) == len(node.input) and node.output:
        together = tuple(dict.fromkeys(name for _, names in sources for name in names))
        if len(together) <= _MOST_JOINED:
            known[node.output[0]] = together
            return
    constant = {slot for slot, _ in sources}
    for slot, names in sources:
        reader = TensorReader(node, slot, _is_weight(node, slot, constant))
        for name in names:
            found[name].append(reader)


def _is_weight(node: NodeProto, slot: int, constant: Collection[int]) -> bool:
    """Whether a stored tensor in this input is a weight; on the left of a stored weight it is a table."""
    if node.op_type in _PRODUCTS and slot == 0 and 1 in constant:
        return False
    if is_standard(node, "Einsum"):
        return len(constant) == 1 and _contracts(node)
    if node.domain == ONNXRUNTIME_DOMAIN:
        return slot in FUSED_WEIGHT_INPUTS.get(node.op_type, ())
    return is_standard(node, *WEIGHT_INPUTS) and slot in WEIGHT_INPUTS[node.op_type]


def _contracts(einsum: NodeProto) -> bool:
    """Whether two operands are multiplied and summed over an index that both have, as a MatMul does."""
    equation = get_attribute(einsum, "equation", b"").decode("ascii", "replace").replace(" ", "")
    operands, arrow, result = equation.partition("->")
    left, comma, right = operands.partition(",")
    letters = {c for c in left if c.isalpha()} & {c for c in right if c.isalpha()}
    return bool(arrow and comma) and "," not in right and bool(letters - {*result})


def get_output_axis(node: NodeProto, slot: int = 1) -> int:
    """The axis of a node's weight that counts output channels; a product has its weight right or left (`slot` 0)."""
    if node.op_type == "MatMul":
        return -1 if slot else -2
    if node.op_type == "ConvTranspose":
        return 1
    if node.op_type == "Gemm":
        turned = "transB" if slot else "transA"
        return int(any(a.name == turned and a.i for a in node.attribute) != bool(slot))
    return 0
