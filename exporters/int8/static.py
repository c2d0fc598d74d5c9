"""Quantize with ranges that are stored in the file, by onnxruntime's tool.

The graph gets pairs of QuantizeLinear and DequantizeLinear, which onnxruntime fuses.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from ltp_pipeline.errors import ExportFailed, summarize_error
from ltp_pipeline.exporters.files.rounding import compute_channel_scale
from ltp_pipeline.exporters.int8.layers import EMPTY_WEIGHT_SPAN, SKIP_HINT, QuantizableLayer
from ltp_pipeline.exporters.int8.ranges import ValueRange
from ltp_pipeline.graph.edit import (
    rename_inputs,
    rename_outputs,
    set_initializers,
    set_nodes,
    sort_topologically,
)
from ltp_pipeline.graph.layer_kinds import has_layer_norm_or_attention
from ltp_pipeline.graph.model import OnnxModel, copy_proto
from ltp_pipeline.graph.nodes import collect_names, get_subgraphs, is_standard
from ltp_pipeline.graph.schemas import get_opsets
from ltp_pipeline.graph.tensors import collect_stored_tensors
from ltp_pipeline.graph.view import GraphView

# Between quantized layers these run in 8 bits too, so that values need not become float in between.
_INTERMEDIATE_OPERATORS = (
    *("Add", "Mul", "Concat", "Relu", "Clip", "LeakyRelu", "Sigmoid"),
    *("MaxPool", "AveragePool", "GlobalAveragePool", "Resize", "Pad"),
    *("Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Split", "Slice"),
)


def find_intermediate_nodes(model: OnnxModel) -> list[NodeProto]:
    """Return the nodes between layers that can run in 8 bits.

    A transformer has none, because its sums need a higher precision.
    """
    if has_layer_norm_or_attention(model):
        return []
    constant_names = set(collect_stored_tensors(model.graph))
    nodes = []
    for node in model.graph.node:
        if constant_names.issuperset(filter(None, node.input)):
            constant_names.update(node.output)  # computed once, at load
        elif is_standard(node, *_INTERMEDIATE_OPERATORS):
            nodes.append(node)
    return nodes


def list_observed_values(
    model: OnnxModel, layers: Sequence[QuantizableLayer], intermediate_nodes: Sequence[NodeProto]
) -> list[str]:
    """Return the names of values whose ranges are needed: inputs and outputs, but not weights."""
    weight_names = collect_stored_tensors(model.graph)
    nodes = [node for layer in layers for node in layer.nodes]
    names: dict[str, None] = {}
    for node in (*nodes, *intermediate_nodes):
        names.update(dict.fromkeys([*node.input, *node.output]))
    return [name for name in names if name and name not in weight_names]


def quantize_static(
    model: OnnxModel,
    layers: Sequence[QuantizableLayer],
    intermediate_nodes: Sequence[NodeProto],
    ranges: Mapping[str, ValueRange],
    bits: int,
    rounded: Collection[str] = (),
) -> OnnxModel:
    """Return the model with layers and the nodes between them in 8 bits.

    Args:
        model: The float model; its nodes have unique names.
        layers: Layers to quantize.
        intermediate_nodes: Nodes that may run in 8 bits, if another quantized node reads them.
        ranges: Ranges of values by name.
        bits: Bits of a weight, 7 or 8.
        rounded: Names of layer weights whose products are always rounded. Other products stay
            float if only float nodes read them.

    Raises:
        ExportFailed: If onnxruntime's tool fails.
    """
    from onnxruntime.quantization import QuantType
    from onnxruntime.quantization.calibrate import TensorData
    from onnxruntime.quantization.qdq_quantizer import QDQQuantizer

    tensor_ranges = {}
    for name, (low, high) in ranges.items():
        tensor_ranges[name] = TensorData(
            lowest=np.array(low, np.float32), highest=np.array(high, np.float32)
        )
    layer_nodes = [node for layer in layers for node in layer.nodes]
    nodes = _select_nodes(model, layer_nodes, intermediate_nodes)
    node_names = [node.name for node in nodes]
    logging_level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # the tool warns of preparation that was already done
    try:
        quantizer = QDQQuantizer(
            _declare_float_values(model, ranges),
            per_channel=True,
            reduce_range=bits < 8,
            weight_qType=QuantType.QInt8,
            activation_qType=QuantType.QUInt8,
            tensors_range=tensor_ranges,
            nodes_to_quantize=node_names,
            nodes_to_exclude=[],
            op_types_to_quantize=list(dict.fromkeys(node.op_type for node in nodes)),
            extra_options={
                "WeightSymmetric": True,
                "MatMulConstBOnly": True,
                "TensorQuantOverrides": _override_dead_channels(model, layers),
            },
        )
        quantizer.quantize_model()
    except Exception as error:  # noqa: BLE001 (the tool's errors have no common root)
        raise ExportFailed(
            f"onnxruntime cannot quantize the model: {summarize_error(error)}", SKIP_HINT
        ) from None
    finally:
        logging.disable(logging_level)
    products = set[str]()
    for layer in layers:
        if layer.weight_name not in rounded:
            products.update(node.output[0] for node in layer.nodes)
    return _restore_model(model, quantizer.model.model, set(node_names), products)


def _declare_float_values(model: OnnxModel, names: Collection[str]) -> ModelProto:
    """Return the full model with declarations of float values and without double opset imports.

    The tool infers types only for nodes of the standard, and stumbles over domains that some
    exporters import twice.
    """
    proto = model.to_proto()
    opsets = get_opsets(proto)
    del proto.opset_import[:]
    for domain, version in opsets.items():
        proto.opset_import.append(helper.make_opsetid(domain, version))
    graph = proto.graph
    declared = collect_names((*graph.input, *graph.output, *graph.value_info))
    for name in names:
        if name not in declared:
            graph.value_info.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
    return proto


def _select_nodes(
    model: OnnxModel, layer_nodes: list[NodeProto], intermediate_nodes: Sequence[NodeProto]
) -> list[NodeProto]:
    """Return the nodes of layers, and intermediate nodes that another selected node reads."""
    consumers = GraphView(model.graph).consumers
    selected = {node.name: node for node in (*layer_nodes, *intermediate_nodes)}
    layer_node_names = collect_names(layer_nodes)
    for node in reversed(intermediate_nodes):
        uses = [use for output in node.output for use in consumers.get(output, ())]
        is_read = any(use.node.name in selected for use in uses)
        if node.name not in layer_node_names and not is_read:
            del selected[node.name]
    return list(selected.values())


def _override_dead_channels(
    model: OnnxModel, layers: Sequence[QuantizableLayer]
) -> dict[str, list[dict[str, Any]]]:
    """Return ranges for layer weights with channels that are all zero.

    Such a channel needs a scale for its bias, which is stored in steps of that scale. It gets the
    average range of the other channels, as in quantization-aware training.
    """
    overrides: dict[str, list[dict[str, Any]]] = {}
    for layer in layers:
        weight = model.get_array(layer.weight_name)
        spans = compute_channel_scale(weight, layer.axis, 1).reshape(-1)
        if (spans > 0).all() or not weight.size:
            continue
        default = float(spans[spans > 0].mean()) if spans.any() else EMPTY_WEIGHT_SPAN
        channels = []
        for value in spans:
            span = float(value) or default
            channels.append({"axis": layer.axis, "rmin": -span, "rmax": span})
        overrides[layer.weight_name] = channels
    return overrides


def _restore_model(
    model: OnnxModel,
    quantized: ModelProto,
    quantized_names: Collection[str],
    products: Collection[str],
) -> OnnxModel:
    """Return the input model with the quantized graph, so that everything around it stays."""
    proto = copy_proto(model.proto)
    graph = proto.graph
    set_nodes(graph, quantized.graph.node)
    set_initializers(graph, quantized.graph.initializer)
    del graph.value_info[:]
    domains = {node.domain for node in graph.node}
    for domain, version in get_opsets(quantized).items():
        if domain in domains and domain not in get_opsets(proto):
            proto.opset_import.add(domain=domain, version=version)
    _keep_float_products(graph, quantized_names, products)
    sort_topologically(graph)
    _remove_unread(graph)
    return OnnxModel.from_proto(proto)


def _keep_float_products(
    graph: GraphProto, quantized_names: Collection[str], products: Collection[str]
) -> None:
    """Remove the rounding of `products` that no quantized node reads.

    Outputs of a network in 8 bits would often be equal, so that the order of scores is lost.
    """
    view = GraphView(graph)
    output_names = collect_names(graph.output)
    removed = set[str]()
    renamed: dict[str, str] = {}
    for node in graph.node:
        if not is_standard(node, "QuantizeLinear") or node.input[0] in output_names:
            continue
        product = node.input[0]
        producer = view.producers.get(product)
        if producer is None or not is_standard(producer, "Gemm", "MatMul"):
            continue
        # If the product is an output of the graph, its name is that of the dequantized value.
        dequantizers = [use.node for use in view.consumers.get(node.output[0], [])]
        dequantized = [dequantizer.output[0] for dequantizer in dequantizers]
        if len(view.consumers[product]) > 1 or not {product, *dequantized}.intersection(products):
            continue
        readers = [use.node for name in dequantized for use in view.consumers.get(name, [])]
        if any(reader.name in quantized_names for reader in readers):
            continue
        outputs = [name for name in dequantized if name in output_names]
        if outputs and len(dequantizers) > 1:
            continue
        removed.update((node.output[0], *dequantized))
        final = outputs[0] if outputs else product
        renamed.update(dict.fromkeys((product, *dequantized), final))
    # Only rounding gives values these names.
    nodes = [node for node in graph.node if removed.isdisjoint(node.output)]
    rename_outputs(nodes, renamed)
    rename_inputs(nodes, renamed)
    set_nodes(graph, nodes)


def _remove_unread(graph: GraphProto) -> None:
    """Remove initializers that nothing reads: scales of values that stay float."""
    if any(get_subgraphs(node) for node in graph.node):  # these may read some
        return
    read_names = collect_names(graph.output)
    for node in graph.node:
        read_names.update(node.input)
    set_initializers(graph, [tensor for tensor in graph.initializer if tensor.name in read_names])
