"""Recognize layer normalization and attention in a graph, by structure and never by name.

Exporters write both either as one operator or as several. Layer normalization divides by the root
of a mean of squares over one axis. Attention multiplies twice with a Softmax in between, and none
of the three factors is fixed. A graph is read once, node by node; sets of value names record how
far each of the two patterns has come.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Mapping, MutableMapping

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


def has_layer_norm_or_attention(model: OnnxModel) -> bool:
    """Return True if any part of a model is layer normalization or attention."""
    graphs = [model.graph]
    for function in model.proto.functions:
        graphs.append(GraphProto())
        graphs[-1].node.extend(function.node)
    return any(_has_pattern(graph, {}) for graph in graphs)


def _has_pattern(graph: GraphProto, outer_fixed: MutableMapping[str, None]) -> bool:
    """Return True if a graph, or one nested in it, has one of the patterns.

    Args:
        graph: The graph, its nodes in topological order.
        outer_fixed: Values of the graphs around this one that do not depend on an input.
    """
    constants = collect_constants(graph)
    fixed = ChainMap(dict.fromkeys(constants), outer_fixed)
    attention = _AttentionPattern()
    norm = _NormPattern(constants)
    for node in graph.node:
        is_fused = node.domain == ONNXRUNTIME_DOMAIN and node.op_type.endswith(_FUSED_SUFFIXES)
        if is_fused or is_standard(node, *_OPERATORS):
            return True
        if attention.follow(node, fixed) or norm.follow(node, fixed):
            return True
        if all(name in fixed for name in node.input if name):
            fixed.update(dict.fromkeys(node.output))
        if any(_has_pattern(nested, fixed) for nested in get_subgraphs(node)):
            return True
    return False


class _AttentionPattern:
    """The pattern softmax(Q K) V, where none of Q, K and V is fixed."""

    def __init__(self) -> None:
        self.products: set[str] = set()  # values computed from Q K
        self.softmaxes: set[str] = set()  # values computed from softmax(Q K)

    def follow(self, node: NodeProto, fixed: Collection[str]) -> bool:
        """Record a node and return True if it completes the pattern."""
        inputs = set(node.input)
        if node.op_type in _PRODUCTS:
            if any(name in fixed for name in inputs):
                return False
            self.products.update(node.output)
            return not inputs.isdisjoint(self.softmaxes)
        if is_standard(node, "Softmax") and not inputs.isdisjoint(self.products):
            self.softmaxes.update(node.output)
        if is_standard(node, *_BETWEEN_PRODUCTS):
            for values in (self.products, self.softmaxes):
                if not inputs.isdisjoint(values):
                    values.update(node.output)
        return False


class _NormPattern:
    """The pattern x / √(mean(x²) + ε) with a mean over one axis; x may be centered before."""

    def __init__(self, constants: Constants) -> None:
        self.constants = constants
        self.squares: set[str] = set()
        self.means: set[str] = set()
        self.roots: set[str] = set()
        self.inverses: set[str] = set()  # one divided by a root
        self.steps: Mapping[str, tuple[Collection[str], set[str]]] = {
            "ReduceMean": (self.squares, self.means),
            "Sqrt": (self.means, self.roots),
            "Reciprocal": (self.roots, self.inverses),
        }

    def follow(self, node: NodeProto, fixed: Collection[str]) -> bool:
        """Record a node and return True if it completes the pattern."""
        first, second = (*node.input, "", "")[:2]
        if is_standard(node, "Pow") or (is_standard(node, "Mul") and first == second):
            if first in self.means:  # a power of a mean may be a root or its inverse
                self.roots.update(node.output)
                self.inverses.update(node.output)
            else:
                self.squares.update(node.output)
        elif is_standard(node, "Add"):
            adds_epsilon = first in fixed or second in fixed
            if adds_epsilon and (first in self.means or second in self.means):
                self.means.update(node.output)
        elif is_standard(node, *self.steps):
            before, after = self.steps[node.op_type]
            if first in before and (node.op_type != "ReduceMean" or self._has_one_axis(node)):
                after.update(node.output)
        elif is_standard(node, "Div"):
            if first in fixed and second in self.roots:
                self.inverses.update(node.output)
            return second in self.roots and first not in fixed
        return is_standard(node, "Mul") and (first in self.inverses or second in self.inverses)

    def _has_one_axis(self, node: NodeProto) -> bool:
        """Return True if a ReduceMean is known to reduce exactly one axis."""
        axes = get_attribute(node, "axes")
        if axes is None and len(node.input) > 1:
            axes = get_small_value(self.constants, node.input[1])
        return axes is not None and len(axes) == 1
