"""Which layers of a graph can be quantised: by which nodes their kernels are read, and why the others stay float."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import chain

from onnx import ModelProto, NodeProto, TensorProto

from ltp_pipeline.errors import UnsupportedModel
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.nodes import (
    STANDARD_DOMAINS,
    format_node,
    get_attribute,
    get_subgraphs,
    is_standard,
    iter_nodes,
)
from ltp_pipeline.graph.readers import get_output_axis
from ltp_pipeline.graph.schemas import ONNXRUNTIME_DOMAIN
from ltp_pipeline.graph.tensors import collect_stored_tensors, count_elements, get_type_name
from ltp_pipeline.graph.view import iter_read_names

SKIP_HINT = "go on without an int8 file"
STATIC_OPERATORS = (
    "Conv",
    "Gemm",
    "MatMul",
)  # which onnxruntime fuses with the nodes around them that quantise
DYNAMIC_OPERATORS = ("Gemm", "MatMul")
RECURRENT_OPERATORS = ("LSTM", "GRU", "RNN")
QUANTIZED_SUFFIX = "_quantized"  # a kernel in 8 bits has its own name with this after it
ADDED_SUFFIXES = (QUANTIZED_SUFFIX, "_scale", "_zero_point")
# How operators of quantised models begin, those of onnxruntime's own among them: QLinearConv, MatMulNBits.
QUANTIZED_OPERATORS = re.compile(
    "Q[A-Z]|Quantize|Dequantize|DynamicQuantize|MatMulInteger|ConvInteger|MatMul(NBits|Bnb4|FpQ4)"
)
QUANTIZED_DOMAINS = (*STANDARD_DOMAINS, ONNXRUNTIME_DOMAIN)
_NAMED = 4  # of many nodes


@dataclass(frozen=True)
class QuantizableLayer:
    """A kernel that can be quantised, and the nodes that multiply by it."""

    weight_name: str
    nodes: tuple[NodeProto, ...]
    axis: int  # of the output channels
    elements: int

    @property
    def node_names(self) -> list[str]:
        """Of the nodes."""
        return [node.name for node in self.nodes]

    @property
    def supports_dynamic(self) -> bool:
        """Whether the nodes have a form with activations whose range is found at every run."""
        return all(node.op_type in DYNAMIC_OPERATORS for node in self.nodes)


@dataclass(frozen=True)
class LayerSelection:
    """The layers that can be quantised, and why other kernels cannot."""

    layers: list[QuantizableLayer] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)  # by kernel


def describe_quantized_nodes(proto: ModelProto) -> str | None:
    """The nodes that a quantised model has, in words."""
    nodes = chain(iter_nodes(proto.graph), *(function.node for function in proto.functions))
    found = [
        format_node(n)
        for n in nodes
        if n.domain in QUANTIZED_DOMAINS and QUANTIZED_OPERATORS.match(n.op_type)
    ]
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return f"{', '.join(found[:_NAMED])}{more}" if found else None


def make_no_layer_error(reasons: Mapping[str, str]) -> UnsupportedModel:
    """The error for a model none of whose kernels can be quantised, and why."""
    told = [f"'{name}' {reason}" for name, reason in reasons.items()]
    return UnsupportedModel("the model has no layer that can be quantised", SKIP_HINT, told)


def find_quantizable_layers(model: OnnxModel, weight_names: Collection[str]) -> LayerSelection:
    """Look at every kernel."""
    layers = LayerSelection()
    initial = collect_stored_tensors(model.graph)
    outputs = {value.name for value in model.graph.output}
    nested = {
        name
        for node in model.graph.node
        for graph in get_subgraphs(node)
        for name in iter_read_names(graph)
    }
    uses: dict[str, list[tuple[NodeProto, int]]] = {}
    for node in model.graph.node:
        for slot, name in enumerate(node.input):
            uses.setdefault(name, []).append((node, slot))
    for name in weight_names:
        read, tensor = uses.get(name, []), initial.get(name)
        if tensor is None or name in outputs:
            layers.reasons[name] = "is computed, or is an output itself"
        elif tensor.data_type != TensorProto.FLOAT:
            layers.reasons[name] = f"is of type {get_type_name(tensor.data_type)}"
        elif name in nested:
            layers.reasons[name] = "is read in a nested graph"
        elif not read:
            layers.reasons[name] = "is read by nothing"
        elif problem := next(
            (p for node, slot in read if (p := _find_problem(node, slot, tensor, initial))), None
        ):
            layers.reasons[name] = problem
        elif named := next((name + end for end in ADDED_SUFFIXES if name + end in initial), None):
            layers.reasons[name] = f"would need the name of '{named}'"
        elif any(node.input[0] in initial for node, _ in read):
            layers.reasons[name] = "multiplies another weight"
        elif len(axes := {get_output_axis(node) % len(tensor.dims) for node, _ in read}) > 1:
            layers.reasons[name] = "is read by nodes that take other axes of it for outputs"
        else:
            nodes = tuple(node for node, _ in read)
            layers.layers.append(QuantizableLayer(name, nodes, axes.pop(), count_elements(tensor)))
    return layers


def _find_problem(
    node: NodeProto, slot: int, tensor: TensorProto, initial: Mapping[str, TensorProto]
) -> str | None:
    if node.op_type in RECURRENT_OPERATORS:
        return f"is the weight of {format_node(node)}: recurrent layers stay float"
    if not is_standard(node, *STATIC_OPERATORS):
        return f"is read by {format_node(node)}, which onnxruntime does not run in 8 bits"
    if slot != 1:
        return f"is input {slot} of {format_node(node)}, where only activations are quantised"
    if node.op_type != "Conv" and len(tensor.dims) != 2:
        return f"is no matrix, at {format_node(node)}"
    if node.op_type == "Gemm" and get_attribute(node, "transA", 0):
        return f"is multiplied from the other side at {format_node(node)}"
    if node.op_type == "Gemm" and (
        get_attribute(node, "alpha", 1.0),
        get_attribute(node, "beta", 1.0),
    ) != (
        1.0,
        1.0,
    ):
        return f"is multiplied by a factor besides, at {format_node(node)}"
    bias = node.input[2] if len(node.input) > 2 else ""
    if bias and (
        bias not in initial or list(initial[bias].dims) != [tensor.dims[get_output_axis(node)]]
    ):
        return f"has a bias that is computed, or no row of numbers, at {format_node(node)}"
    return None
