"""The float graph that quantization-aware training uses, with a mark at every rounded activation.

The training graph reads layer weights and biases by their own names. After training, their values
are put back into the int8 graph, tensor by tensor, so that the file computes what was trained.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import NodeProto, TensorProto, helper

from ltp_pipeline.exporters.int8.layers import QUANTIZED_SUFFIX, QuantizableLayer, map_node_names
from ltp_pipeline.exporters.int8.ranges import ValueRange
from ltp_pipeline.graph.edit import UniqueNames, rename_inputs, set_initializers, set_nodes
from ltp_pipeline.graph.model import OnnxModel, copy_proto
from ltp_pipeline.graph.nodes import collect_names, get_attribute, is_standard
from ltp_pipeline.graph.tensors import Weights, collect_stored_tensors, make_empty_tensor
from ltp_pipeline.graph.view import GraphView
from ltp_pipeline.system.arrays import Array

# Operator of the marks: it keeps the shape of its input, and no deploy graph has it.
MARK_OPERATOR = "Dropout"
HIGHEST_STEP = 255  # of an activation in 8 bits; the lowest is 0


@dataclass(frozen=True)
class FakeQuantPoint:
    """An activation that is rounded, and the tensors of the int8 graph that hold its range."""

    node_name: str  # of the mark
    scale: str = ""  # empty if the range is computed at every run
    zero_point: str = ""
    # The range follows this fraction of the extremes of the activation; None if it stays.
    extremes_fraction: ValueRange | None = None

    @property
    def is_dynamic(self) -> bool:
        """True if the range is computed at every run."""
        return not self.scale


@dataclass(frozen=True)
class QuantizedBias:
    """A bias that is stored in steps of the product of two scales, and where."""

    name: str  # in the float graph
    weight_name: str  # of its layer
    quantized_name: str  # in the int8 graph
    scale: str  # of the bias
    input_scale: str  # of the activation that its layer reads


@dataclass(frozen=True)
class FakeQuantGraph:
    """The float graph with its marks."""

    model: OnnxModel
    points: tuple[FakeQuantPoint, ...]
    biases: tuple[QuantizedBias, ...]
    ranges: Mapping[str, ValueRange]  # of the int8 graph, by the tensor of their scale
    frozen_names: tuple[str, ...]  # tensors that are not trained, rounded as in the int8 graph


@dataclass(frozen=True)
class QatResult:
    """Result of quantization-aware training."""

    int8_tensors: Mapping[str, Array]  # by the names in the int8 graph
    float_tensors: Weights  # what was trained, layer weights included
    epochs: int


def build_training_graph(
    int8_model: OnnxModel,
    float_model: OnnxModel,
    layers: Sequence[QuantizableLayer],
    extremes: Mapping[str, ValueRange],
) -> FakeQuantGraph:
    """Build the training graph of an int8 graph from the float graph that it was made of.

    `extremes` are the smallest and largest values of activations by name.
    """
    if any(is_standard(node, "DynamicQuantizeLinear") for node in int8_model.graph.node):
        return _build_dynamic(float_model, layers)
    return _build_static(int8_model, float_model, layers, extremes)


def _build_dynamic(float_model: OnnxModel, layers: Sequence[QuantizableLayer]) -> FakeQuantGraph:
    """Build the training graph of an int8 graph whose ranges are computed at every run."""
    proto = copy_proto(float_model.proto)
    names = UniqueNames.from_graph(proto.graph)
    layer_of = map_node_names(layers)
    nodes: list[NodeProto] = []
    marks: dict[str, str] = {}  # output of its mark, by activation
    for node in proto.graph.node:
        if node.name in layer_of:
            activation = node.input[0]
            if activation not in marks:
                marks[activation] = names.make_unique(f"{activation}/rounded")
                nodes.append(_make_mark(activation, marks[activation]))
            node.input[0] = marks[activation]
        nodes.append(node)
    set_nodes(proto.graph, nodes)
    points = tuple(FakeQuantPoint(output) for output in marks.values())
    return FakeQuantGraph(OnnxModel(proto, float_model.weights), points, (), {}, ())


def _build_static(
    int8_model: OnnxModel,
    float_model: OnnxModel,
    layers: Sequence[QuantizableLayer],
    extremes: Mapping[str, ValueRange],
) -> FakeQuantGraph:
    """Build the training graph of an int8 graph with stored ranges, see `build_training_graph`."""
    proto = copy_proto(int8_model.proto)
    graph = proto.graph
    stored_names = collect_stored_tensors(int8_model.graph)
    output_names = collect_names(graph.output)
    consumers = GraphView(int8_model.graph).consumers
    biases = _find_biases(int8_model, float_model, layers)
    float_names = {layer.weight_name + QUANTIZED_SUFFIX: layer.weight_name for layer in layers}
    float_names.update((bias.quantized_name, bias.name) for bias in biases)
    floats = float_model.get_arrays(float_names.values())
    renamed: dict[str, str] = {}
    frozen_names: list[str] = []
    nodes: list[NodeProto] = []
    points: list[FakeQuantPoint] = []
    ranges: dict[str, ValueRange] = {}
    for node in graph.node:
        if is_standard(node, "QuantizeLinear"):
            scale = node.input[1]
            fraction = None
            if scale not in ranges:  # the first point of a shared scale moves the range
                ranges[scale] = _read_range(int8_model, node)
                # An output of the graph has the name of a dequantized value.
                uses = consumers.get(node.output[0], [])
                for name in (node.input[0], *(use.node.output[0] for use in uses)):
                    if name in extremes:
                        fraction = _divide_range(ranges[scale], extremes[name])
                        break
            points.append(FakeQuantPoint(node.output[0], scale, node.input[2], fraction))
            nodes.append(_make_mark(node.input[0], node.output[0]))
        elif not is_standard(node, "DequantizeLinear"):
            nodes.append(node)
        elif node.input[0] in float_names:
            renamed[node.output[0]] = float_names[node.input[0]]
        elif node.input[0] in stored_names:
            floats[node.output[0]] = _dequantize(int8_model, node)
            frozen_names.append(node.output[0])
        elif node.output[0] in output_names:
            nodes.append(helper.make_node("Identity", [node.input[0]], [node.output[0]]))
        else:
            renamed[node.output[0]] = node.input[0]
    rename_inputs(nodes, renamed)
    read_names = set(output_names)
    for node in nodes:
        read_names.update(node.input)
    set_nodes(graph, nodes)
    tensors = [t for t in graph.initializer if t.name in read_names and t.name not in floats]
    for name, array in floats.items():
        tensors.append(make_empty_tensor(name, TensorProto.FLOAT, array.shape))
    set_initializers(graph, tensors)
    model = OnnxModel(proto, {**int8_model.weights, **floats}).drop_unstored_weights()
    return FakeQuantGraph(model, tuple(points), tuple(biases), ranges, tuple(frozen_names))


def _make_mark(activation: str, output: str) -> NodeProto:
    """Return the node that marks a rounded activation."""
    return helper.make_node(MARK_OPERATOR, [activation], [output], output)


def _read_range(model: OnnxModel, quantize_node: NodeProto) -> ValueRange:
    """Return the range that the scale and the zero point of a node stand for."""
    scale = float(model.get_array(quantize_node.input[1]))
    zero_point = int(model.get_array(quantize_node.input[2]))
    return ValueRange(-zero_point * scale, (HIGHEST_STEP - zero_point) * scale)


def _divide_range(part: ValueRange, extremes: ValueRange) -> ValueRange:
    """Return a range as a fraction of the extremes of all values.

    A side that is zero stays zero: the file cuts off what is below, like a Relu that is part of the
    rounding.
    """
    fractions = []
    for limit, extreme in zip(part, extremes, strict=True):
        fractions.append(min(limit / extreme, 1.0) if limit and extreme else 0.0)
    return ValueRange(*fractions)


def _find_biases(
    int8_model: OnnxModel, float_model: OnnxModel, layers: Sequence[QuantizableLayer]
) -> list[QuantizedBias]:
    """Return the biases of quantized layers, except those that several layers share."""
    graph = int8_model.graph
    consumers = GraphView(graph).consumers
    dequantizers = {n.output[0]: n for n in graph.node if is_standard(n, "DequantizeLinear")}
    layer_of = map_node_names(layers)
    biases = []
    for node in graph.node:
        layer = layer_of.get(node.name)
        if layer is None or len(node.input) < 3 or node.input[0] not in dequantizers:
            continue
        name = node.input[2]
        bias = dequantizers.get(name)
        if bias is None or len(consumers[name]) > 1 or name not in float_model.tensors:
            continue
        if float_model.get_array(name).size != int8_model.get_array(bias.input[1]).size:
            continue
        input_scale = dequantizers[node.input[0]].input[1]
        scale = bias.input[1]
        biases.append(QuantizedBias(name, layer.weight_name, bias.input[0], scale, input_scale))
    return biases


def _dequantize(model: OnnxModel, dequantize_node: NodeProto) -> Array:
    """Return the float values that a node computes of a stored tensor."""
    stored, scale, *zero_points = (model.get_array(name) for name in dequantize_node.input)
    zero_point = zero_points[0] if zero_points else np.zeros_like(scale)
    shape: list[int] = []
    if scale.size > 1:
        axis = get_attribute(dequantize_node, "axis", 1)
        shape = [1] * stored.ndim
        shape[axis % stored.ndim] = -1
    steps = stored.astype(np.int64) - zero_point.reshape(shape).astype(np.int64)
    return np.asarray(steps * scale.reshape(shape), np.float32)


def insert_trained_tensors(model: OnnxModel, tensors: Mapping[str, Array]) -> OnnxModel:
    """Return the int8 graph with new values for those of the tensors that it has.

    The tensors keep their shapes and types.
    """
    arrays = {}
    for name, array in tensors.items():
        if name in model.tensors:
            arrays[name] = np.asarray(array).reshape(tuple(model.tensors[name].dims))
    return model.with_weights(arrays)
