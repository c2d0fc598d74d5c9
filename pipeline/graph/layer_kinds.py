"""Whether a network has layer norms or attention, told by its operators and what they are made of, never by a name."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Mapping, MutableMapping

from onnx import GraphProto, NodeProto

from ltp_pipeline.graph.constants import Constants, collect_constants, get_small_value
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.nodes import get_attribute, get_subgraphs, is_standard

_OPERATORS = ("LayerNormalization", "RMSNormalization", "Attention")
_MICROSOFT = (
    "com.microsoft"  # onnxruntime's fused operators: what ends in these names is of the kind
)
_FUSED = ("LayerNormalization", "Attention")
_PRODUCTS = ("MatMul", "Einsum", "FusedMatMul")
# What may lie between the products of attention and its Softmax: scales, masks, moves
_BETWEEN = (
    *(
        "Add",
        "Sub",
        "Mul",
        "Div",
        "Where",
        "Cast",
        "Identity",
        "Dropout",
        "Tanh",
        "Max",
        "Min",
        "Clip",
    ),
    *("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Concat", "Pad", "Expand"),
)


def has_layer_norm_or_attention(model: OnnxModel) -> bool:
    """Whether any part of a model is a layer norm or attention, as one operator or written out in several."""
    graphs = (model.graph, *(_as_graph(function.node) for function in model.proto.functions))
    return any(_found(graph, {}) for graph in graphs)


def _as_graph(nodes: Collection[NodeProto]) -> GraphProto:
    graph = GraphProto()
    graph.node.extend(nodes)
    return graph


def _found(graph: GraphProto, outer: MutableMapping[str, None]) -> bool:
    """One way through the nodes, which are in order; `outer` are fixed values of the graph around this one."""
    known = collect_constants(graph)
    fixed = ChainMap(dict.fromkeys(known), outer)  # values that depend on no input
    trace = _Attention(), _Norm(known)
    for node in graph.node:
        if _is_one(node) or any(part.sees(node, fixed) for part in trace):
            return True
        if all(name in fixed for name in node.input if name):
            fixed.update(dict.fromkeys(node.output))
        if any(_found(nested, fixed) for nested in get_subgraphs(node)):
            return True
    return False


def _is_one(node: NodeProto) -> bool:
    fused = node.domain == _MICROSOFT and node.op_type.endswith(_FUSED)
    return fused or is_standard(node, *_OPERATORS)


class _Attention:
    """Softmax of a product, times something: softmax(Q K) V, none of the three fixed."""

    def __init__(self) -> None:
        self.products: set[str] = set()
        self.shares: set[str] = set()

    def sees(self, node: NodeProto, fixed: Collection[str]) -> bool:
        """Take note of a node; whether it is the last product."""
        given = set(node.input)
        if node.op_type in _PRODUCTS:
            if any(name in fixed for name in given):
                return False
            self.products.update(node.output)
            return not given.isdisjoint(self.shares)
        if is_standard(node, "Softmax") and not given.isdisjoint(self.products):
            self.shares.update(node.output)
        if is_standard(node, *_BETWEEN):
            for kind in (self.products, self.shares):
                if not given.isdisjoint(kind):
                    kind.update(node.output)
        return False


class _Norm:
    """Division by the root of a mean of squares over one axis, of the values or of their distances from the mean."""

    def __init__(self, known: Constants) -> None:
        self.known = known
        self.squares: set[str] = set()
        self.means: set[str] = set()
        self.roots: set[str] = set()
        self.inverses: set[str] = set()
        self.steps: Mapping[str, tuple[Collection[str], set[str]]] = {
            "ReduceMean": (self.squares, self.means),
            "Sqrt": (self.means, self.roots),
            "Reciprocal": (self.roots, self.inverses),
        }

    def sees(self, node: NodeProto, fixed: Collection[str]) -> bool:
        """Take note of a node; whether it is the division."""
        first, second = (*node.input, "", "")[:2]
        if is_standard(node, "Pow") or (is_standard(node, "Mul") and first == second):
            kinds = (self.roots, self.inverses) if first in self.means else (self.squares,)
            for kind in kinds:
                kind.update(node.output)
        elif is_standard(node, "Add") and (first in self.means or second in self.means):
            if first in fixed or second in fixed:  # an epsilon
                self.means.update(node.output)
        elif is_standard(node, *self.steps):
            before, after = self.steps[node.op_type]
            if first in before and (node.op_type != "ReduceMean" or self._over_one_axis(node)):
                after.update(node.output)
        elif is_standard(node, "Div"):
            if first in fixed and second in self.roots:
                self.inverses.update(node.output)
            return second in self.roots and first not in fixed
        return is_standard(node, "Mul") and (first in self.inverses or second in self.inverses)

    def _over_one_axis(self, node: NodeProto) -> bool:
        axes = get_attribute(node, "axes")
        if axes is None and len(node.input) > 1:
            axes = get_small_value(self.known, node.input[1])
        return axes is not None and len(axes) == 1
