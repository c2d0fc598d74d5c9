"""Quantize products with weights so that the ranges of activations are computed at every run.

The graph gets DynamicQuantizeLinear and MatMulInteger, which onnxruntime fuses. Everything between
the products stays float.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper

from ltp_pipeline.exporters.files.rounding import compute_channel_scale, round_to_steps
from ltp_pipeline.exporters.int8.layers import QUANTIZED_SUFFIX, QuantizableLayer, map_node_names
from ltp_pipeline.graph.edit import UniqueNames, drop_initializers, set_nodes
from ltp_pipeline.graph.model import OnnxModel, copy_proto
from ltp_pipeline.graph.tensors import make_tensor
from ltp_pipeline.system.arrays import Array

# Largest absolute value of a weight, by its bits. The sum of two products, 255 · 64 · 2, fits into
# the 16 bits of processors without VNNI.
LARGEST_STEPS = {7: 64, 8: 127}


def quantize_dynamic(model: OnnxModel, layers: Sequence[QuantizableLayer], bits: int) -> OnnxModel:
    """Return the float model, whose nodes have unique names, with layers in 8 bits."""
    builder = _DynamicGraphBuilder(model, bits)
    layer_of = map_node_names(layers)
    for node in builder.proto.graph.node:
        layer = layer_of.get(node.name)
        if layer is None:
            builder.nodes.append(node)
        else:
            builder.add_layer(node, layer)
    return builder.finish({layer.weight_name for layer in layers})


class _DynamicGraphBuilder:
    """Collects the nodes and tensors of a dynamically quantized graph."""

    def __init__(self, model: OnnxModel, bits: int) -> None:
        self.model = model
        self.bits = bits
        self.proto = copy_proto(model.proto)
        self.names = UniqueNames.from_graph(self.proto.graph)
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, TensorProto] = {}
        self.activations: dict[str, Sequence[str]] = {}  # in 8 bits, with scale and zero point

    def add_layer(self, node: NodeProto, layer: QuantizableLayer) -> None:
        """Add the nodes of a quantized layer in place of a float node."""
        weight_name = layer.weight_name
        output = node.output[0]
        steps, scale = quantize_weight(self.model.get_array(weight_name), layer.axis, self.bits)
        zeros = np.zeros(scale.shape, np.int8)
        weight = self._add_constant(weight_name + QUANTIZED_SUFFIX, TensorProto.INT8, steps)
        weight_scale = self._add_constant(f"{weight_name}_scale", TensorProto.FLOAT, scale)
        weight_zero = self._add_constant(f"{weight_name}_zero_point", TensorProto.INT8, zeros)
        x, x_scale, x_zero = self._quantize_activation(node.input[0])
        if layer.axis == 0:  # transposed when the file is loaded
            weight = self._add_node("Transpose", [weight], f"{weight_name}/turned", perm=[1, 0])
        product_inputs = [x, weight, x_zero, weight_zero]
        integers = self._add_node("MatMulInteger", product_inputs, f"{output}/int32")
        floats = self._add_node("Cast", [integers], f"{output}/cast", to=TensorProto.FLOAT)
        factor = self._add_node("Mul", [x_scale, weight_scale], f"{output}/scale")
        bias = node.input[2] if node.op_type == "Gemm" and len(node.input) > 2 else ""
        if bias:
            product = self._add_node("Mul", [floats, factor], f"{output}/product")
            self.nodes.append(helper.make_node("Add", [product, bias], [output]))
        else:
            self.nodes.append(helper.make_node("Mul", [floats, factor], [output]))

    def finish(self, removed: set[str]) -> OnnxModel:
        """Return the model without the tensors that were quantized."""
        graph = self.proto.graph
        set_nodes(graph, self.nodes)
        drop_initializers(graph, removed)
        graph.initializer.extend(self.constants.values())
        del graph.value_info[:]
        return OnnxModel(self.proto, self.model.weights).drop_unstored_weights()

    def _quantize_activation(self, name: str) -> Sequence[str]:
        """Return an activation in 8 bits, its scale and its zero point; add a node if needed."""
        if name not in self.activations:
            outputs = [f"{name}/int8", f"{name}/scale", f"{name}/zero"]
            self._add_node("DynamicQuantizeLinear", [name], *outputs)
            self.activations[name] = tuple(self.nodes[-1].output)
        return self.activations[name]

    def _add_node(self, op: str, inputs: Sequence[str], *outputs: str, **attributes: Any) -> str:
        """Add a node and return its first output."""
        unique_outputs = [self.names.make_unique(output) for output in outputs]
        self.nodes.append(helper.make_node(op, inputs, unique_outputs, **attributes))
        return unique_outputs[0]

    def _add_constant(self, name: str, data_type: int, array: Array) -> str:
        """Add a tensor unless it was added before, and return its name."""
        if name not in self.constants:
            unique_name = self.names.make_unique(name)
            self.constants[name] = make_tensor(unique_name, data_type, array)
        return self.constants[name].name


def quantize_weight(weight: Array, axis: int, bits: int) -> tuple[Array, Array]:
    """Return a weight as int8 multiples of a scale per output channel, and the scales.

    Channels that are too small for a scale become zero.
    """
    scale = compute_channel_scale(weight, axis, LARGEST_STEPS[bits])
    scale = np.where(scale >= np.finfo(np.float32).tiny, scale, np.float32(1))
    return round_to_steps(weight, scale, LARGEST_STEPS[bits]), scale.reshape(-1)
