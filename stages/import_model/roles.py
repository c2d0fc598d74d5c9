"""Decide what each float tensor of a graph is: a trained weight, a running statistic, a constant.

The role follows from the operators that read a tensor and in which input slot they read it. A
tensor that is read as a weight anywhere is a weight. Constants are everything that is part of a
formula: shapes and scales of operators, lone numbers in arithmetic, attention masks, the
frequencies of positional encodings, and tensors that only such values depend on.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from enum import Enum

from onnx import GraphProto, NodeProto
from torch import Tensor

from ltp_pipeline.graph.nodes import collect_names
from ltp_pipeline.graph.positions import find_frequencies
from ltp_pipeline.graph.schemas import has_function_body
from ltp_pipeline.graph.tensors import is_attention_mask
from ltp_pipeline.graph.view import find_ancestors, iter_uses
from ltp_pipeline.stages.import_model import registry
from ltp_pipeline.stages.import_model.values import to_single_precision


class TensorRole(Enum):
    """What a tensor of a network is."""

    WEIGHT = "weight"
    STATISTIC = "statistic"
    CONSTANT = "constant"


def assign_roles(
    graph: GraphProto, tensors: Mapping[str, Tensor], opset: int
) -> dict[str, TensorRole]:
    """Return the role of every stored tensor of a flat graph; `tensors` has their values."""
    uses: dict[str, set[TensorRole]] = defaultdict(set)

    def find_constant_slots(node: NodeProto) -> Collection[int]:
        op = registry.find_op(node.op_type, opset, node.domain)
        if op is None:
            return ()
        return op.constants

    # Values that only set the shape, scale or padding of some operator are not data.
    data = find_ancestors(graph, collect_names(graph.output), find_constant_slots)
    frequencies = find_frequencies(graph)
    for node, slot, name in iter_uses(graph):
        is_read_as_data = not data.isdisjoint(node.output)
        if name in tensors and name not in frequencies and is_read_as_data:
            uses[name].add(_get_slot_role(node, slot, tensors[name], opset))
    return {name: _combine_roles(tensor, uses[name]) for name, tensor in tensors.items()}


def _get_slot_role(node: NodeProto, slot: int, tensor: Tensor, opset: int) -> TensorRole:
    """Return what a tensor is to a node that reads it in an input slot."""
    op = registry.find_op(node.op_type, opset, node.domain)
    # A lone number in arithmetic (a scale, an epsilon, an exponent) is part of the formula.
    is_weight = tensor.numel() > 1
    if op is None:
        is_weight = is_weight and has_function_body(node.op_type, opset, node.domain)
    elif slot in op.statistics:
        return TensorRole.STATISTIC
    elif slot in op.constants or slot in op.untrained:
        return TensorRole.CONSTANT
    elif slot in op.weights:
        is_weight = True
    if is_weight:
        return TensorRole.WEIGHT
    return TensorRole.CONSTANT


def _combine_roles(tensor: Tensor, roles: set[TensorRole]) -> TensorRole:
    """Return the role of a tensor from what it is to each of its readers."""
    if not roles - {TensorRole.CONSTANT} or not tensor.is_floating_point():
        return TensorRole.CONSTANT
    if tensor.numel() == 0 or is_attention_mask(to_single_precision(tensor).numpy()):
        return TensorRole.CONSTANT
    if TensorRole.WEIGHT in roles:
        return TensorRole.WEIGHT
    return TensorRole.STATISTIC
