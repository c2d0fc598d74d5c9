"""What each float tensor of a graph is: a weight that is trained, a running statistic, or a fixed constant."""

from collections import defaultdict
from collections.abc import Mapping
from enum import Enum

from onnx import GraphProto, NodeProto
from torch import Tensor

from ltp_pipeline.graph.nodes import get_subgraphs
from ltp_pipeline.graph.positions import find_frequencies
from ltp_pipeline.graph.schemas import signature
from ltp_pipeline.graph.tensors import MASKED_SCORE
from ltp_pipeline.graph.view import iter_uses
from ltp_pipeline.stages.import_model import registry


class TensorRole(Enum):
    """How the module holds a tensor."""

    WEIGHT = "weight"
    STATISTIC = "statistic"
    CONSTANT = "constant"


def assign_roles(
    graph: GraphProto, tensors: Mapping[str, Tensor], opset: int
) -> dict[str, TensorRole]:
    """Role of every tensor, from the input slots that read it."""
    uses: dict[str, set[TensorRole]] = defaultdict(set)
    data, formulas = find_data_values(graph, opset), find_frequencies(graph)
    for node, slot, name in iter_uses(graph):
        if (
            name in tensors
            and name not in formulas
            and any(output in data for output in node.output)
        ):
            uses[name].add(_role_in(node, slot, tensors[name], opset))
    return {name: _settle(tensor, uses[name]) for name, tensor in tensors.items()}


def find_data_values(graph: GraphProto, opset: int) -> set[str]:
    """Names of the values that reach the outputs as data, not only as shapes, scales or pads of some operator."""
    found = {output.name for output in graph.output}
    _trace_back(graph, opset, found)
    return found


def _trace_back(graph: GraphProto, opset: int, found: set[str]) -> None:
    for node in reversed(graph.node):
        if not any(output in found for output in node.output):
            continue
        op = registry.find_op(node.op_type, opset, node.domain)
        settings = op.constants if op is not None else ()
        found.update(name for slot, name in enumerate(node.input) if name and slot not in settings)
        for nested in get_subgraphs(node):
            found.update(output.name for output in nested.output)
            _trace_back(nested, opset, found)


def _role_in(node: NodeProto, slot: int, tensor: Tensor, opset: int) -> TensorRole:
    op = registry.find_op(node.op_type, opset, node.domain)
    if op is None:
        known = signature(node.op_type, opset, node.domain)
        return (
            TensorRole.WEIGHT
            if known is not None and known.has_body and tensor.numel() > 1
            else TensorRole.CONSTANT
        )
    if slot in op.statistics:
        return TensorRole.STATISTIC
    if slot in op.constants or slot in op.untrained:
        return TensorRole.CONSTANT
    # A lone number in arithmetic (a scale, an epsilon, an exponent) is part of the formula, not something learned;
    # where the operator itself says that the slot holds weights, one element is a weight too.
    return TensorRole.WEIGHT if slot in op.weights or tensor.numel() > 1 else TensorRole.CONSTANT


def _settle(tensor: Tensor, uses: set[TensorRole]) -> TensorRole:
    if not uses - {TensorRole.CONSTANT} or not tensor.is_floating_point():
        return TensorRole.CONSTANT
    if tensor.numel() == 0 or _is_mask(tensor):
        return TensorRole.CONSTANT
    return TensorRole.WEIGHT if TensorRole.WEIGHT in uses else TensorRole.STATISTIC


def _is_mask(tensor: Tensor) -> bool:
    """`graph.is_mask` for a tensor."""
    low, high = tensor.aminmax()
    if not bool(low.isfinite() & high.isfinite()):
        return True
    return (
        bool(low <= MASKED_SCORE)
        and bool(high <= 0)
        and bool(((tensor == 0) | (tensor == low)).all())
    )
