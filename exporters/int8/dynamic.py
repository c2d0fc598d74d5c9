"""Quantisation with ranges found at every run: DynamicQuantizeLinear and MatMulInteger, which onnxruntime fuses.

Only products with weights are quantised; everything between stays float.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper

from ltp_pipeline.exporters.files.rounding import compute_channel_scale, round_to_steps
from ltp_pipeline.exporters.int8.layers import QUANTIZED_SUFFIX, QuantizableLayer
from ltp_pipeline.graph.edit import UniqueNames, set_initializers, set_nodes
from ltp_pipeline.graph.model import OnnxModel, copy_proto
from ltp_pipeline.graph.tensors import make_tensor
from ltp_pipeline.system.arrays import Array

LARGEST_STEPS = {
    7: 64,
    8: 127,
}  # weight in so many bits; 255 · 64 · 2 is within the 16 bits of processors without VNNI


def quantize_dynamic(model: OnnxModel, layers: Sequence[QuantizableLayer], bits: int) -> OnnxModel:
    """The model with these layers in 8 bits; weights have so many `bits`."""
    proto = copy_proto(model.proto)
    graph, names = proto.graph, UniqueNames.from_graph(proto.graph)
    layer_of = {name: layer for layer in layers for name in layer.node_names}
    weights, added = dict(model.weights), dict[str, TensorProto]()
    rounded: dict[
        str, tuple[str, str, str]
    ] = {}  # an activation in 8 bits, its scale and its zero point
    nodes = list[NodeProto]()

    def add(op: str, inputs: Sequence[str], *outputs: str, **attributes: Any) -> str:
        fresh = [names.make_unique(output) for output in outputs]
        nodes.append(helper.make_node(op, inputs, fresh, **attributes))
        return fresh[0]

    def constant(name: str, data_type: int, array: Array) -> str:
        if name not in added:
            added[name] = make_tensor(names.make_unique(name), data_type, array)
        return added[name].name

    for node in graph.node:
        layer = layer_of.get(node.name)
        if layer is None:
            nodes.append(node)
            continue
        given, kernel, output = node.input[0], layer.weight_name, node.output[0]
        stored, scale = quantize_weight(model.get_array(kernel), layer.axis, bits)
        held = constant(kernel + QUANTIZED_SUFFIX, TensorProto.INT8, stored)
        scales = constant(f"{kernel}_scale", TensorProto.FLOAT, scale)
        zeros = constant(f"{kernel}_zero_point", TensorProto.INT8, np.zeros(scale.shape, np.int8))
        if given not in rounded:
            parts = [f"{given}/int8", f"{given}/scale", f"{given}/zero"]
            add("DynamicQuantizeLinear", [given], *parts)
            rounded[given] = tuple(nodes[-1].output)
        x, x_scale, x_zero = rounded[given]
        if layer.axis == 0:  # turned when the file is loaded
            held = add("Transpose", [held], f"{kernel}/turned", perm=[1, 0])
        whole = add("MatMulInteger", [x, held, x_zero, zeros], f"{output}/int32")
        floats = add("Cast", [whole], f"{output}/cast", to=TensorProto.FLOAT)
        factor = add("Mul", [x_scale, scales], f"{output}/scale")
        bias = node.input[2] if node.op_type == "Gemm" and len(node.input) > 2 else ""
        if not bias:
            nodes.append(helper.make_node("Mul", [floats, factor], [output]))
            continue
        product = add("Mul", [floats, factor], f"{output}/product")
        nodes.append(helper.make_node("Add", [product, bias], [output]))
    gone = {layer.weight_name for layer in layers}
    set_nodes(graph, nodes)
    set_initializers(
        graph, [*(t for t in graph.initializer if t.name not in gone), *added.values()]
    )
    del graph.value_info[:]
    return OnnxModel(proto, {name: array for name, array in weights.items() if name not in gone})


def quantize_weight(weight: Array, axis: int, bits: int) -> tuple[Array, Array]:
    """A weight in steps of a scale per output channel, and the scales; channels too small for one become zero."""
    scale = compute_channel_scale(weight, axis, LARGEST_STEPS[bits])
    scale = np.where(scale >= np.finfo(np.float32).tiny, scale, np.float32(1))
    return round_to_steps(weight, scale, LARGEST_STEPS[bits]), scale.reshape(-1)
