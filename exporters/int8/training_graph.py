"""Where an int8 graph rounds, as training needs it: the same graph in float, with a mark at every such place.

The graph in training reads float kernels and biases by their own names. What they have become in training is put back
into the int8 graph, tensor by tensor, so that the file computes what was trained.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import NodeProto, TensorProto, helper

from ltp_pipeline.exporters.int8.layers import QUANTIZED_SUFFIX, QuantizableLayer
from ltp_pipeline.exporters.int8.ranges import ValueRange
from ltp_pipeline.graph.edit import UniqueNames, set_initializers, set_nodes
from ltp_pipeline.graph.model import OnnxModel, copy_proto
from ltp_pipeline.graph.nodes import is_standard
from ltp_pipeline.graph.tensors import Weights, collect_stored_tensors, make_empty_tensor
from ltp_pipeline.system.arrays import Array

MARK_OPERATOR = (
    "Dropout"  # an operator that keeps the shape of what it reads, and that no deploy graph has
)


@dataclass(frozen=True)
class FakeQuantPoint:
    """An activation that is rounded."""

    node_name: str  # name of the node
    scale: str = ""  # tensors of the int8 graph; none where the range is found at every run
    zero_point: str = ""
    extremes_fraction: ValueRange | None = (
        None  # the range is this share of the extremes of this activation; None: it does not follow
    )

    @property
    def is_dynamic(self) -> bool:
        """Whether the range is found at every run."""
        return not self.scale


@dataclass(frozen=True)
class QuantizedBias:
    """A bias in steps of the scales of the two factors that it is added to the product of."""

    name: str
    weight_name: str
    quantized_name: str  # tensors of the int8 graph
    scale: str
    input_scale: str  # scale of the activation


@dataclass(frozen=True)
class FakeQuantGraph:
    """The float graph with its marks."""

    model: OnnxModel
    points: tuple[FakeQuantPoint, ...]
    biases: tuple[QuantizedBias, ...]
    ranges: Mapping[str, ValueRange]  # of the int8 graph, by the scale they give
    frozen_names: tuple[
        str, ...
    ]  # tensors in 8 bits beside kernels and biases, as the int8 graph has them


@dataclass(frozen=True)
class QatResult:
    """What training has made of it."""

    int8_tensors: Mapping[str, Array]  # by the names that tensors have in the int8 graph
    float_tensors: Weights  # what was trained, kernels among it
    epochs: int


def build_training_graph(
    made: OnnxModel,
    plain: OnnxModel,
    layers: Sequence[QuantizableLayer],
    extremes: Mapping[str, ValueRange],
) -> FakeQuantGraph:
    """Of an int8 graph and the float one that it was made of; extremes by the names of activations."""
    if any(is_standard(node, "DynamicQuantizeLinear") for node in made.graph.node):
        return _build_dynamic(plain, layers)
    return _build_static(made, plain, layers, extremes)


def _build_dynamic(plain: OnnxModel, layers: Sequence[QuantizableLayer]) -> FakeQuantGraph:
    proto = copy_proto(plain.proto)
    names, inside = (
        UniqueNames.from_graph(proto.graph),
        {name for layer in layers for name in layer.node_names},
    )
    nodes, marked, places = list[NodeProto](), dict[str, str](), list[FakeQuantPoint]()
    for node in proto.graph.node:
        if node.name in inside:
            given = node.input[0]
            if given not in marked:
                marked[given] = names.make_unique(f"{given}/rounded")
                nodes.append(_make_mark(given, marked[given]))
                places.append(FakeQuantPoint(marked[given]))
            node.input[0] = marked[given]
        nodes.append(node)
    set_nodes(proto.graph, nodes)
    return FakeQuantGraph(OnnxModel(proto, plain.weights), tuple(places), (), {}, ())


def _build_static(
    made: OnnxModel,
    plain: OnnxModel,
    layers: Sequence[QuantizableLayer],
    extremes: Mapping[str, ValueRange],
) -> FakeQuantGraph:
    proto = copy_proto(made.proto)
    graph, initial = proto.graph, collect_stored_tensors(made.graph)
    outputs = {value.name for value in graph.output}
    scales = {n.output[0]: n.input[1] for n in graph.node if is_standard(n, "DequantizeLinear")}
    biases = _find_biases(made, plain, layers, scales)
    floats = {layer.weight_name: plain.get_array(layer.weight_name) for layer in layers}
    floats.update((bias.name, plain.get_array(bias.name)) for bias in biases)
    renamed, frozen = dict[str, str](), list[str]()
    nodes, places, ranges = list[NodeProto](), list[FakeQuantPoint](), dict[str, ValueRange]()
    kernels = {layer.weight_name + QUANTIZED_SUFFIX: layer.weight_name for layer in layers} | {
        bias.quantized_name: bias.name for bias in biases
    }
    for node in graph.node:
        if is_standard(node, "QuantizeLinear"):
            scale, follows = node.input[1], None
            if scale not in ranges:  # others share it
                ranges[scale] = _read_range(made, node)
                name = next(
                    (n for n in (node.input[0], *_iter_dequantized(made, node)) if n in extremes),
                    None,
                )
                follows = None if name is None else _divide_range(ranges[scale], extremes[name])
            places.append(FakeQuantPoint(node.output[0], scale, node.input[2], follows))
            nodes.append(_make_mark(node.input[0], node.output[0]))
        elif not is_standard(node, "DequantizeLinear"):
            nodes.append(node)
        elif node.input[0] in kernels:
            renamed[node.output[0]] = kernels[node.input[0]]
        elif node.input[0] in initial:
            floats[node.output[0]] = _dequantize(made, node)
            frozen.append(node.output[0])
        elif node.output[0] in outputs:
            nodes.append(helper.make_node("Identity", [node.input[0]], [node.output[0]]))
        else:
            renamed[node.output[0]] = node.input[0]
    for node in nodes:
        node.input[:] = [renamed.get(name, name) for name in node.input]
    set_nodes(graph, nodes)
    read = {name for node in nodes for name in node.input} | outputs
    kept = [t for t in graph.initializer if t.name in read and t.name not in floats]
    set_initializers(
        graph,
        [*kept, *(make_empty_tensor(n, TensorProto.FLOAT, a.shape) for n, a in floats.items())],
    )
    weights = {name: array for name, array in made.weights.items() if name in read}
    return FakeQuantGraph(
        OnnxModel(proto, {**weights, **floats}), tuple(places), tuple(biases), ranges, tuple(frozen)
    )


def _make_mark(given: str, output: str) -> NodeProto:
    return helper.make_node(MARK_OPERATOR, [given], [output], output)


def _iter_dequantized(made: OnnxModel, node: NodeProto) -> Iterable[str]:
    """What the file calls a rounded value that is an output."""
    return (
        n.output[0]
        for n in made.graph.node
        if is_standard(n, "DequantizeLinear") and n.input[0] == node.output[0]
    )


def _read_range(made: OnnxModel, node: NodeProto) -> ValueRange:
    """What scale and zero point of a node stand for."""
    scale, zero = float(made.get_array(node.input[1])), int(made.get_array(node.input[2]))
    return ValueRange(-zero * scale, (255 - zero) * scale)


def _divide_range(held: ValueRange, extremes: ValueRange) -> ValueRange:
    """Which share of the extremes of all values a range is.

    A side that is zero stays zero: the file cuts off what lies below, as a Relu does that is part of the rounding.
    """
    return ValueRange(
        *(
            min(part / whole, 1.0) if part and whole else 0.0
            for part, whole in zip(held, extremes, strict=True)
        )
    )


def _find_biases(
    made: OnnxModel, plain: OnnxModel, layers: Sequence[QuantizableLayer], scales: Mapping[str, str]
) -> list[QuantizedBias]:
    """Biases of quantised layers; one that several layers share is left out."""
    reads = [name for node in made.graph.node for name in node.input]
    held = {n.output[0]: n for n in made.graph.node if is_standard(n, "DequantizeLinear")}
    own = {name: layer for layer in layers for name in layer.node_names}
    found = []
    for node in made.graph.node:
        layer, name = own.get(node.name), node.input[2] if len(node.input) > 2 else ""
        source = held.get(name)
        if layer is None or source is None or reads.count(name) > 1 or name not in plain.tensors:
            continue
        if (
            node.input[0] in scales
            and plain.get_array(name).size == made.get_array(source.input[1]).size
        ):
            found.append(
                QuantizedBias(
                    name, layer.weight_name, source.input[0], source.input[1], scales[node.input[0]]
                )
            )
    return found


def _dequantize(made: OnnxModel, node: NodeProto) -> Array:
    """A stored tensor that a node turns to float."""
    whole, scale = made.get_array(node.input[0]), made.get_array(node.input[1])
    zero = made.get_array(node.input[2]) if len(node.input) > 2 else np.zeros_like(scale)
    axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
    shape = (
        [-1 if i == axis % max(whole.ndim, 1) else 1 for i in range(whole.ndim)]
        if scale.size > 1
        else []
    )
    steps = whole.astype(np.int64) - zero.reshape(shape).astype(np.int64)
    return np.asarray(steps * scale.reshape(shape), np.float32)


def insert_trained_tensors(made: OnnxModel, values: Mapping[str, Array]) -> OnnxModel:
    """The int8 graph with other values in its tensors, each in the shape and type that it has there."""
    arrays = {
        n: np.asarray(a).reshape(tuple(made.tensors[n].dims))
        for n, a in values.items()
        if n in made.tensors
    }
    return made.with_weights(arrays)
