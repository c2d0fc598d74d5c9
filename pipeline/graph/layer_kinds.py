"""Recognize layer normalization and attention in a graph, by structure and never by name.

Exporters write both either as one operator or as several. Layer normalization divides by the root
of a mean of squares over one axis. Attention multiplies twice with a Softmax in between, and none
of the three factors is fixed. A graph is read once, node by node.
"""

from __future__ import annotations

from collections import ChainMap, defaultdict
from collections.abc import Collection, MutableMapping

from onnx import GraphProto, NodeProto

from ltp_pipeline.graph.constants import Constants, collect_constants, get_small_value
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.nodes import get_attribute, get_subgraphs, is_standard
from ltp_pipeline.graph.schemas import ONNXRUNTIME_DOMAIN

_OPERATORS = ("LayerNormalization", "RMSNormalization", "Attention")
# Ends of the names of onnxruntime's fused operators of both kinds
_FUSED_SUFFIXES = ("LayerNormalization", "Attention")
_PRODUCTS = ("MatMul", "Einsum", "FusedMatMul")
# Operators that may stand between the products of attention and its Softmax: scales, masks, views
_BETWEEN_PRODUCTS = (
    *("Add", "Sub", "Mul", "Div", "Where", "Cast", "Identity", "Dropout", "Tanh"),
    *("Max", "Min", "Clip", "Reshape", "Transpose", "Squeeze", "Unsqueeze"),
    *("Slice", "Concat", "Pad", "Expand"),
)
# Operators that take values from one step of a pattern to the next
_STEPS = {
    "Softmax": ("product", "softmax"),
    "ReduceMean": ("square", "mean"),
    "Sqrt": ("mean", "root"),
    "Reciprocal": ("root", "inverse"),  # one divided by a root
}


def has_layer_norm_or_attention(model: OnnxModel) -> bool:
    """Return True if any part of a model is layer normalization or attention."""
    graphs = [model.graph]
    for function in model.proto.functions:
        graphs.append(GraphProto())
        graphs[-1].node.extend(function.node)
    return any(_has_pattern(graph, {}) for graph in graphs)


def _has_pattern(graph: GraphProto, outer_fixed: MutableMapping[str, None]) -> bool:
    """Return True if a graph, or one nested in it, has one of the patterns.

    `outer_fixed` are the values of the graphs around this one that do not depend on an input.
    """
    constants = collect_constants(graph)
    fixed = ChainMap(dict.fromkeys(constants), outer_fixed)
    patterns = _Patterns(constants)
    for node in graph.node:
        is_fused = node.domain == ONNXRUNTIME_DOMAIN and node.op_type.endswith(_FUSED_SUFFIXES)
        if is_fused or is_standard(node, *_OPERATORS):
            return True
        if patterns.follow(node, fixed):
            return True
        if all(name in fixed for name in node.input if name):
            fixed.update(dict.fromkeys(node.output))
        if any(_has_pattern(nested, fixed) for nested in get_subgraphs(node)):
            return True
    return False


class _Patterns:
    """Values of a graph by the steps that their computation has in common with a pattern.

    Attention is softmax(Q K) V, where none of Q, K and V is fixed. Layer normalization is
    x / √(mean(x²) + ε) with a mean over one axis; x may be centered before.
    """

    def __init__(self, constants: Constants) -> None:
        self.constants = constants
        self.values: dict[str, set[str]] = defaultdict(set)

    def follow(self, node: NodeProto, fixed: Collection[str]) -> bool:
        """Record a node and return True if it completes a pattern."""
        first, second = (*node.input, "", "")[:2]
        reached = {step for step, names in self.values.items() if not names.isdisjoint(node.input)}
        is_complete = is_standard(node, "Mul") and "inverse" in reached
        steps: set[str] = set()
        if is_standard(node, *_BETWEEN_PRODUCTS):
            steps = reached & {"product", "softmax"}
        if node.op_type in _PRODUCTS:
            if not any(name in fixed for name in node.input):
                steps.add("product")
                is_complete = "softmax" in reached
        elif is_standard(node, *_STEPS):
            before, after = _STEPS[node.op_type]
            if before in reached and (node.op_type != "ReduceMean" or self._has_one_axis(node)):
                steps.add(after)
        elif is_standard(node, "Pow") or (is_standard(node, "Mul") and first == second):
            # A power of a mean may be a root or its inverse.
            steps |= {"root", "inverse"} if first in self.values["mean"] else {"square"}
        elif is_standard(node, "Add"):
            if "mean" in reached and (first in fixed or second in fixed):
                steps.add("mean")
        elif is_standard(node, "Div") and second in self.values["root"]:
            is_complete = first not in fixed
            steps.add("inverse")
        for step in steps:
            self.values[step].update(node.output)
        return is_complete

    def _has_one_axis(self, node: NodeProto) -> bool:
        """Return True if a ReduceMean is known to reduce exactly one axis."""
        axes = get_attribute(node, "axes")
        if axes is None and len(node.input) > 1:
            axes = get_small_value(self.constants, node.input[1])
        return axes is not None and len(axes) == 1
