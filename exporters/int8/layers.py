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
    attribute,
    is_standard,
    iter_nodes,
    label,
    subgraphs,
)
from ltp_pipeline.graph.readers import output_axis
from ltp_pipeline.graph.schemas import ONNXRUNTIME_DOMAIN
from ltp_pipeline.graph.tensors import elements, initializers_by_name, type_name
from ltp_pipeline.graph.view import outer_reads

LEAVE = "go on without an int8 file"
STATIC = (
    "Conv",
    "Gemm",
    "MatMul",
)  # which onnxruntime fuses with the nodes around them that quantise
DYNAMIC = ("Gemm", "MatMul")
RECURRENT = ("LSTM", "GRU", "RNN")
SUFFIX = "_quantized"  # a kernel in 8 bits has its own name with this after it
ADDED_TO_KERNELS = (SUFFIX, "_scale", "_zero_point")
# How operators of quantised models begin, those of onnxruntime's own among them: QLinearConv, MatMulNBits.
QUANTISED = re.compile(
    "Q[A-Z]|Quantize|Dequantize|DynamicQuantize|MatMulInteger|ConvInteger|MatMul(NBits|Bnb4|FpQ4)"
)
QUANTISED_DOMAINS = (*STANDARD_DOMAINS, ONNXRUNTIME_DOMAIN)
_NAMED = 4  # of many nodes


@dataclass(frozen=True)
class QuantizableLayer:
    """A kernel that can be quantised, and the nodes that multiply by it."""

    kernel: str
    nodes: tuple[NodeProto, ...]
    axis: int  # of the output channels
    elements: int

    @property
    def names(self) -> list[str]:
        """Of the nodes."""
        return [node.name for node in self.nodes]

    @property
    def is_dynamic(self) -> bool:
        """Whether the nodes have a form with activations whose range is found at every run."""
        return all(node.op_type in DYNAMIC for node in self.nodes)


@dataclass(frozen=True)
class Layers:
    """The layers that can be quantised, and why other kernels cannot."""

    found: list[QuantizableLayer] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)  # by kernel


def already_quantised(proto: ModelProto) -> str | None:
    """The nodes that a quantised model has, in words."""
    nodes = chain(iter_nodes(proto.graph), *(function.node for function in proto.functions))
    found = [
        label(n) for n in nodes if n.domain in QUANTISED_DOMAINS and QUANTISED.match(n.op_type)
    ]
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return f"{', '.join(found[:_NAMED])}{more}" if found else None


def no_layer(reasons: Mapping[str, str]) -> UnsupportedModel:
    """The error for a model none of whose kernels can be quantised, and why."""
    told = [f"'{name}' {reason}" for name, reason in reasons.items()]
    return UnsupportedModel("the model has no layer that can be quantised", LEAVE, told)


def find_layers(model: OnnxModel, kernels: Collection[str]) -> Layers:
    """Look at every kernel."""
    layers = Layers()
    initial = initializers_by_name(model.graph)
    outputs = {value.name for value in model.graph.output}
    nested = {
        name
        for node in model.graph.node
        for graph in subgraphs(node)
        for name in outer_reads(graph)
    }
    uses: dict[str, list[tuple[NodeProto, int]]] = {}
    for node in model.graph.node:
        for slot, name in enumerate(node.input):
            uses.setdefault(name, []).append((node, slot))
    for name in kernels:
        read, tensor = uses.get(name, []), initial.get(name)
        if tensor is None or name in outputs:
            layers.reasons[name] = "is computed, or is an output itself"
        elif tensor.data_type != TensorProto.FLOAT:
            layers.reasons[name] = f"is of type {type_name(tensor.data_type)}"
        elif name in nested:
            layers.reasons[name] = "is read in a nested graph"
        elif not read:
            layers.reasons[name] = "is read by nothing"
        elif problem := next(
            (p for node, slot in read if (p := _problem(node, slot, tensor, initial))), None
        ):
            layers.reasons[name] = problem
        elif named := next((name + end for end in ADDED_TO_KERNELS if name + end in initial), None):
            layers.reasons[name] = f"would need the name of '{named}'"
        elif any(node.input[0] in initial for node, _ in read):
            layers.reasons[name] = "multiplies another weight"
        elif len(axes := {output_axis(node) % len(tensor.dims) for node, _ in read}) > 1:
            layers.reasons[name] = "is read by nodes that take other axes of it for outputs"
        else:
            nodes = tuple(node for node, _ in read)
            layers.found.append(QuantizableLayer(name, nodes, axes.pop(), elements(tensor)))
    return layers


def _problem(
    node: NodeProto, slot: int, tensor: TensorProto, initial: Mapping[str, TensorProto]
) -> str | None:
    if node.op_type in RECURRENT:
        return f"is the weight of {label(node)}: recurrent layers stay float"
    if not is_standard(node, *STATIC):
        return f"is read by {label(node)}, which onnxruntime does not run in 8 bits"
    if slot != 1:
        return f"is input {slot} of {label(node)}, where only activations are quantised"
    if node.op_type != "Conv" and len(tensor.dims) != 2:
        return f"is no matrix, at {label(node)}"
    if node.op_type == "Gemm" and attribute(node, "transA", 0):
        return f"is multiplied from the other side at {label(node)}"
    if node.op_type == "Gemm" and (attribute(node, "alpha", 1.0), attribute(node, "beta", 1.0)) != (
        1.0,
        1.0,
    ):
        return f"is multiplied by a factor besides, at {label(node)}"
    bias = node.input[2] if len(node.input) > 2 else ""
    if bias and (
        bias not in initial or list(initial[bias].dims) != [tensor.dims[output_axis(node)]]
    ):
        return f"has a bias that is computed, or no row of numbers, at {label(node)}"
    return None
