"""Layers of a graph that can be quantized, and why other layer weights stay float."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from ltp_pipeline.errors import UnsupportedModel
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.nodes import (
    STANDARD_DOMAINS,
    collect_names,
    format_node,
    get_attribute,
    get_subgraphs,
    is_standard,
    iter_nodes,
)
from ltp_pipeline.graph.readers import get_output_axis
from ltp_pipeline.graph.schemas import ONNXRUNTIME_DOMAIN
from ltp_pipeline.graph.tensors import collect_stored_tensors, count_elements, get_type_name
from ltp_pipeline.graph.view import GraphView, ValueUse, iter_read_names

SKIP_HINT = "go on without an int8 file"
# Operators that onnxruntime fuses with the nodes around them that quantize.
STATIC_OPERATORS = ("Conv", "Gemm", "MatMul")
DYNAMIC_OPERATORS = ("Gemm", "MatMul")
RECURRENT_OPERATORS = ("LSTM", "GRU", "RNN")
QUANTIZED_SUFFIX = "_quantized"  # comes after the name of a layer weight in 8 bits
ADDED_SUFFIXES = (QUANTIZED_SUFFIX, "_scale", "_zero_point")
# Largest value that a layer weight without nonzeros is assumed to have, so that it has a scale.
EMPTY_WEIGHT_SPAN = 1e-3
# Beginnings of operators of quantized models, also onnxruntime's own: QLinearConv, MatMulNBits.
QUANTIZED_OPERATORS = re.compile(
    "Q[A-Z]|Quantize|Dequantize|DynamicQuantize|MatMulInteger|ConvInteger|MatMul(NBits|Bnb4|FpQ4)"
)
QUANTIZED_DOMAINS = (*STANDARD_DOMAINS, ONNXRUNTIME_DOMAIN)
_MAX_NAMED = 4  # nodes in a message


@dataclass(frozen=True)
class QuantizableLayer:
    """A layer weight that can be quantized, and the nodes that multiply by it."""

    weight_name: str
    nodes: tuple[NodeProto, ...]
    axis: int  # of the output channels
    elements: int

    @property
    def supports_dynamic(self) -> bool:
        """True if the nodes have a form that computes the ranges of activations at every run."""
        return all(node.op_type in DYNAMIC_OPERATORS for node in self.nodes)


@dataclass(frozen=True)
class LayerSelection:
    """Layers that can be quantized, and why other layer weights cannot be."""

    layers: list[QuantizableLayer] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)  # by name of the layer weight


def map_node_names(layers: Iterable[QuantizableLayer]) -> dict[str, QuantizableLayer]:
    """Return the layers by the names of their nodes."""
    return {node.name: layer for layer in layers for node in layer.nodes}


def describe_quantized_nodes(proto: ModelProto) -> str | None:
    """Return the nodes that only a quantized model has, as text; None if there are none."""
    names = []
    for node in chain(iter_nodes(proto.graph), *(function.node for function in proto.functions)):
        if node.domain in QUANTIZED_DOMAINS and QUANTIZED_OPERATORS.match(node.op_type):
            names.append(format_node(node))
    if not names:
        return None
    others = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(names[:_MAX_NAMED]) + others


def make_no_layer_error(reasons: Mapping[str, str]) -> UnsupportedModel:
    """Return the error for a model without a layer that can be quantized."""
    lines = [f"'{name}' {reason}" for name, reason in reasons.items()]
    return UnsupportedModel("the model has no layer that can be quantized", SKIP_HINT, lines)


def find_quantizable_layers(model: OnnxModel, weight_names: Collection[str]) -> LayerSelection:
    """Find out for every layer weight if it can be quantized."""
    selection = LayerSelection()
    tensors = collect_stored_tensors(model.graph)
    consumers = GraphView(model.graph).consumers
    output_names = collect_names(model.graph.output)
    nested_names = collect_nested_reads(model.graph)
    for name in weight_names:
        uses = consumers.get(name, [])
        if name not in tensors or name in output_names:
            reason: str | None = "is computed, or is an output of the model"
        elif name in nested_names:
            reason = "is read in a nested graph"
        else:
            reason = _explain_float(tensors[name], uses, tensors)
        if reason is not None:
            selection.reasons[name] = reason
            continue
        nodes = tuple(use.node for use in uses)
        axis = get_output_axis(nodes[0]) % len(tensors[name].dims)
        elements = count_elements(tensors[name])
        selection.layers.append(QuantizableLayer(name, nodes, axis, elements))
    return selection


def collect_nested_reads(graph: GraphProto) -> set[str]:
    """Return the names of values that graphs nested in a graph read from outside."""
    names = set[str]()
    for node in graph.node:
        for nested in get_subgraphs(node):
            names.update(iter_read_names(nested))
    return names


def _explain_float(
    tensor: TensorProto, uses: Sequence[ValueUse], tensors: Mapping[str, TensorProto]
) -> str | None:
    """Return why a layer weight stays float, or None if it can be quantized."""
    if tensor.data_type != TensorProto.FLOAT:
        return f"has type {get_type_name(tensor.data_type)}"
    if not uses:
        return "is not read by any node"
    for node, slot in uses:
        problem = _find_problem(node, slot, tensor, tensors)
        if problem is not None:
            return problem
    for suffix in ADDED_SUFFIXES:
        if tensor.name + suffix in tensors:
            return f"needs the name '{tensor.name + suffix}', which is taken"
    if any(node.input[0] in tensors for node, _ in uses):
        return "multiplies another weight"
    if len({get_output_axis(node) % len(tensor.dims) for node, _ in uses}) > 1:
        return "is read by nodes with different axes of output channels"
    return None


def _find_problem(
    node: NodeProto, slot: int, tensor: TensorProto, tensors: Mapping[str, TensorProto]
) -> str | None:
    """Return why a node cannot read a layer weight in 8 bits, or None if it can."""
    name = format_node(node)
    if node.op_type in RECURRENT_OPERATORS:
        return f"is the weight of {name}: recurrent layers compute in float"
    if not is_standard(node, *STATIC_OPERATORS):
        return f"is read by {name}, which onnxruntime does not run in 8 bits"
    if slot != 1:
        return f"is input {slot} of {name}, where only activations are quantized"
    if node.op_type != "Conv" and len(tensor.dims) != 2:
        return f"is not a matrix, at {name}"
    if node.op_type == "Gemm":
        if get_attribute(node, "transA", 0):
            return f"is the weight of {name}, which transposes its activations"
        if get_attribute(node, "alpha", 1.0) != 1.0 or get_attribute(node, "beta", 1.0) != 1.0:
            return f"is the weight of {name}, whose alpha or beta is not 1"
    bias = node.input[2] if len(node.input) > 2 else ""
    if not bias:
        return None
    if bias not in tensors or list(tensors[bias].dims) != [tensor.dims[get_output_axis(node)]]:
        return f"is the weight of {name}, whose bias is computed or is not a vector"
    return None
