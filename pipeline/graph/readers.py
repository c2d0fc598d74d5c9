"""Find the nodes that read each stored tensor, and those that use it as a layer weight.

A tensor may pass through operators that only move its elements, or be joined with other stored
tensors by Concat, before a node computes with it. Such operators are looked through: the tensor
counts as read by that node. Whether a node multiplies data by the tensor follows from the
operator and the input slot.
"""

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

# Input slots of layer weights by operator. A product may have its weight on either side; an
# Einsum has one if its equation is such a product.
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
# Input slots of layer weights by operator, for operators that onnxruntime's optimizers write.
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
_MAX_JOINED = 64  # tensors that a Concat joins into one weight; more are not a layer


class TensorReader(NamedTuple):
    """A node that reads a stored tensor, and whether the tensor in this slot is its weight."""

    node: NodeProto
    slot: int
    is_weight: bool


TensorReaders = Mapping[str, Sequence[TensorReader]]


def find_readers(graph: GraphProto) -> dict[str, list[TensorReader]]:
    """Return the nodes that read each stored tensor, in the order in which tensors are first read.

    Nodes of nested graphs are included. A tensor that a graph puts out is read by a node of the
    operator "output".
    """
    reads: set[str] = set()
    for node in iter_nodes(graph):
        reads.update(node.input)
    for nested in iter_graphs(graph):
        reads.update(output.name for output in nested.output)
    sources: dict[str, tuple[str, ...]] = {}
    for name, _ in iter_stored_tensors(graph):
        if name in reads:
            sources[name] = (name,)
    readers: dict[str, list[TensorReader]] = defaultdict(list)
    _collect_readers(graph, sources, readers)
    return readers


def _collect_readers(
    graph: GraphProto,
    sources: MutableMapping[str, tuple[str, ...]],
    readers: dict[str, list[TensorReader]],
) -> None:
    """Add the readers in a graph and in the graphs nested in it.

    `sources` are the names of stored tensors by the value that consists of nothing else.
    """
    for node in graph.node:
        slots = [(slot, sources[name]) for slot, name in enumerate(node.input) if name in sources]
        if slots:
            _add_node(node, slots, sources, readers)
        for nested in get_subgraphs(node):
            _collect_readers(nested, ChainMap({}, sources), readers)
    for output in graph.output:
        for name in sources.get(output.name, ()):
            node = NodeProto(op_type="output", name=output.name)
            readers[name].append(TensorReader(node, 0, False))


def _add_node(
    node: NodeProto,
    slots: list[tuple[int, tuple[str, ...]]],
    sources: MutableMapping[str, tuple[str, ...]],
    readers: dict[str, list[TensorReader]],
) -> None:
    """Add a node as a reader of the stored tensors in some input slots, or look through it."""
    first_slot, first_tensors = slots[0]
    if is_standard(node, *_MOVING_OPERATORS) and first_slot == 0 and node.output:
        sources.update((output, first_tensors) for output in node.output if output)
        slots = slots[1:]
    elif is_standard(node, "Concat") and len(slots) == len(node.input) and node.output:
        joined = tuple(dict.fromkeys(name for _, names in slots for name in names))
        if len(joined) <= _MAX_JOINED:
            sources[node.output[0]] = joined
            return
    stored_slots = {slot for slot, _ in slots}
    for slot, names in slots:
        reader = TensorReader(node, slot, _is_weight(node, slot, stored_slots))
        for name in names:
            readers[name].append(reader)


def _is_weight(node: NodeProto, slot: int, stored_slots: Collection[int]) -> bool:
    """Return True if the tensor in a slot is the weight, given all slots with stored tensors."""
    if node.op_type in _PRODUCTS and slot == 0 and 1 in stored_slots:
        return False  # a table, which a stored weight multiplies
    if is_standard(node, "Einsum"):
        return len(stored_slots) == 1 and _is_product(node)
    if node.domain == ONNXRUNTIME_DOMAIN:
        return slot in FUSED_WEIGHT_INPUTS.get(node.op_type, ())
    return is_standard(node, *WEIGHT_INPUTS) and slot in WEIGHT_INPUTS[node.op_type]


def _is_product(einsum: NodeProto) -> bool:
    """Return True if an Einsum sums two operands over an index that both have, as a MatMul does."""
    equation = get_attribute(einsum, "equation", b"").decode("ascii", "replace").replace(" ", "")
    operands, arrow, result = equation.partition("->")
    left, comma, right = operands.partition(",")
    if not arrow or not comma or "," in right:
        return False
    common = set(left) & set(right)
    return any(index.isalpha() for index in common - set(result))


def get_output_axis(node: NodeProto, slot: int = 1) -> int:
    """Return the axis of the output channels in the weight in an input slot of a node."""
    if node.op_type == "MatMul":
        return -1 if slot else -2
    if node.op_type == "ConvTranspose":
        return 1
    if node.op_type == "Gemm":
        attribute = "transA"
        if slot:
            attribute = "transB"
        is_transposed = bool(get_attribute(node, attribute, 0))
        return int(is_transposed != bool(slot))
    return 0
