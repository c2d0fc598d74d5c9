"""What each float tensor of a graph is: a weight that is trained, a running statistic, or a fixed constant."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from enum import Enum

from onnx import GraphProto, NodeProto
from torch import Tensor

from ltp_pipeline.stages.import_model import registry


class Role(Enum):
    """How the module holds a tensor."""

    WEIGHT = "weight"
    STATISTIC = "statistic"
    CONSTANT = "constant"


def assign_roles(graph: GraphProto, tensors: Mapping[str, Tensor], opset: int) -> dict[str, Role]:
    """Role of every tensor, from the input slots that read it."""
    uses: dict[str, list[Role]] = defaultdict(list)
    for node, slot, name in reads(graph):
        if name in tensors:
            uses[name].append(_role_in(node, slot, tensors[name], opset))
    return {name: _settle(tensor, uses[name]) for name, tensor in tensors.items()}


def reads(graph: GraphProto) -> Iterator[tuple[NodeProto, int, str]]:
    """Yield each (node, input slot, tensor name) of the main graph, looking through Identity."""
    behind: dict[str, str] = {}
    for node in graph.node:
        if node.op_type == "Identity":
            behind[node.output[0]] = behind.get(node.input[0], node.input[0])
            continue
        for slot, name in enumerate(node.input):
            yield node, slot, behind.get(name, name)


def _role_in(node: NodeProto, slot: int, tensor: Tensor, opset: int) -> Role:
    op = registry.find(node.op_type, opset) if node.domain in registry.STANDARD_DOMAINS else None
    if op is None:
        return Role.CONSTANT
    if slot in op.statistics:
        return Role.STATISTIC
    if slot in op.constants:
        return Role.CONSTANT
    # A lone number in arithmetic (a scale, an epsilon, an exponent) is part of the formula, not something learned;
    # where the operator itself says that the slot holds weights, one element is a weight too.
    return Role.WEIGHT if slot in op.weights or tensor.numel() > 1 else Role.CONSTANT


def _settle(tensor: Tensor, uses: list[Role]) -> Role:
    if not tensor.is_floating_point() or not bool(tensor.isfinite().all()):
        return Role.CONSTANT  # e.g. an attention mask of minus infinities
    if Role.WEIGHT in uses:
        return Role.WEIGHT
    return Role.STATISTIC if Role.STATISTIC in uses else Role.CONSTANT
