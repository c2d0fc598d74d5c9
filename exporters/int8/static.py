"""Quantisation with ranges that are part of the file: QuantizeLinear and DequantizeLinear, by onnxruntime's tool."""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from ltp_pipeline.errors import ExportFailed, summarize_error
from ltp_pipeline.exporters.int8.layers import SKIP_HINT, QuantizableLayer
from ltp_pipeline.exporters.int8.ranges import ValueRange
from ltp_pipeline.graph.edit import set_initializers, set_nodes, sort_topologically
from ltp_pipeline.graph.layer_kinds import has_layer_norm_or_attention
from ltp_pipeline.graph.model import OnnxModel, copy_proto
from ltp_pipeline.graph.nodes import is_standard
from ltp_pipeline.graph.schemas import get_opsets
from ltp_pipeline.graph.tensors import collect_stored_tensors
from ltp_pipeline.graph.view import GraphView

# Between quantised layers these run in 8 bits too, so that values need not become float and 8 bits again.
_INTERMEDIATE_OPERATORS = (
    *("Add", "Mul", "Concat", "Relu", "Clip", "LeakyRelu", "Sigmoid"),
    *("MaxPool", "AveragePool", "GlobalAveragePool", "Resize", "Pad"),
    *("Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Split", "Slice"),
)


def find_intermediate_nodes(model: OnnxModel) -> list[NodeProto]:
    """The nodes that run in 8 bits between layers; in a transformer none, whose sums need more."""
    if has_layer_norm_or_attention(model):
        return []
    fixed, found = set(collect_stored_tensors(model.graph)), list[NodeProto]()
    for node in model.graph.node:
        if all(name in fixed for name in node.input if name):
            fixed.update(node.output)  # computed once, at load
        elif is_standard(node, *_INTERMEDIATE_OPERATORS):
            found.append(node)
    return found


def list_observed_values(
    model: OnnxModel, layers: Sequence[QuantizableLayer], others: Sequence[NodeProto]
) -> list[str]:
    """The values whose ranges have to be known: all that these nodes read and make, but for weights."""
    nodes, weights = (
        [*(node for layer in layers for node in layer.nodes), *others],
        collect_stored_tensors(model.graph),
    )
    names = dict.fromkeys(name for node in nodes for name in (*node.input, *node.output))
    return [name for name in names if name and name not in weights]


def quantize_static(
    model: OnnxModel,
    layers: Sequence[QuantizableLayer],
    others: Sequence[NodeProto],
    ranges: Mapping[str, ValueRange],
    bits: int,
    rounded: Collection[str] = (),
) -> OnnxModel:
    """The model with these layers and nodes in 8 bits; weights have so many `bits`.

    Products that only float nodes read stay float, unless they are those of the kernels in `rounded`.
    """
    from onnxruntime.quantization import QuantType
    from onnxruntime.quantization.calibrate import TensorData
    from onnxruntime.quantization.qdq_quantizer import QDQQuantizer

    known = {
        name: TensorData(lowest=np.array(low, np.float32), highest=np.array(high, np.float32))
        for name, (low, high) in ranges.items()
    }
    products = {
        node.output[0]
        for layer in layers
        if layer.weight_name not in rounded
        for node in layer.nodes
    }
    nodes = _select_nodes(model, [node for layer in layers for node in layer.nodes], others)
    options = {
        "WeightSymmetric": True,
        "MatMulConstBOnly": True,
        "TensorQuantOverrides": _override_dead_channels(model, layers),
    }
    with _silence_logging():
        try:
            quantizer = QDQQuantizer(
                _declare_float_values(model, ranges),
                per_channel=True,
                reduce_range=bits < 8,
                weight_qType=QuantType.QInt8,
                activation_qType=QuantType.QUInt8,
                tensors_range=known,
                nodes_to_quantize=[node.name for node in nodes],
                nodes_to_exclude=[],
                op_types_to_quantize=list(dict.fromkeys(node.op_type for node in nodes)),
                extra_options=options,
            )
            quantizer.quantize_model()
        except Exception as error:  # noqa: BLE001 (whatever that tool raises)
            reason = summarize_error(error)
            raise ExportFailed(
                f"onnxruntime cannot quantise the model: {reason}", SKIP_HINT
            ) from None
    return _restore_model(model, quantizer.model.model, {node.name for node in nodes}, products)


def _declare_float_values(model: OnnxModel, floats: Collection[str]) -> ModelProto:
    """The whole model, with the type of values that are floats: the tool knows it only of the standard's nodes.

    It also stumbles over operators that are imported twice, which some exporters write.
    """
    proto = model.to_proto()
    versions = get_opsets(proto)
    del proto.opset_import[:]
    proto.opset_import.extend(
        helper.make_opsetid(domain, version) for domain, version in versions.items()
    )
    known = {
        value.name for value in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info)
    }
    new = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
        for name in floats
        if name not in known
    )
    proto.graph.value_info.extend(new)
    return proto


def _select_nodes(
    model: OnnxModel, layers: list[NodeProto], others: Sequence[NodeProto]
) -> list[NodeProto]:
    """The nodes of layers, and those between them whose results another quantised node reads."""
    users, kept = GraphView(model.graph).consumers, {node.name: node for node in (*layers, *others)}
    fixed = {node.name for node in layers}
    for node in reversed(others):
        readers = (use.node.name for output in node.output for use in users.get(output, ()))
        if node.name not in fixed and not any(name in kept for name in readers):
            del kept[node.name]
    return list(kept.values())


def _override_dead_channels(
    model: OnnxModel, layers: Sequence[QuantizableLayer]
) -> dict[str, list[dict[str, Any]]]:
    """Scales for channels without weights, for the sake of their biases, which are counted in steps of that scale."""
    found: dict[str, list[dict[str, Any]]] = {}
    for layer in layers:
        weight = np.abs(model.get_array(layer.weight_name))
        largest = weight.max(axis=tuple(i for i in range(weight.ndim) if i != layer.axis))
        if (largest > 0).all() or not weight.size:
            continue
        usual = float(largest[largest > 0].mean()) if largest.any() else 1e-3
        spans = [float(value) or usual for value in largest]
        found[layer.weight_name] = [
            {"axis": layer.axis, "rmin": -span, "rmax": span} for span in spans
        ]
    return found


def _restore_model(
    model: OnnxModel, made: ModelProto, quantised: Collection[str], products: Collection[str]
) -> OnnxModel:
    """The new graph in the model that was given."""
    proto = copy_proto(model.proto)
    graph = proto.graph
    set_nodes(graph, made.graph.node)
    set_initializers(graph, made.graph.initializer)
    del graph.value_info[:]
    used = {node.domain for node in graph.node}
    for domain, version in get_opsets(made).items():
        if domain in used and domain not in get_opsets(proto):
            proto.opset_import.add(domain=domain, version=version)
    _keep_float_products(graph, quantised, products)
    sort_topologically(graph)
    _remove_unread(graph)
    return OnnxModel.from_proto(proto)


def _keep_float_products(
    graph: GraphProto, quantised: Collection[str], products: Collection[str]
) -> None:
    """Leave products as floats where no quantised node reads them: 8 bits of an output would make equal scores."""
    view = GraphView(graph)
    outputs = {value.name for value in graph.output}
    gone, renamed = set[str](), dict[str, str]()
    for node in graph.node:
        if not is_standard(node, "QuantizeLinear"):
            continue
        source = view.producers.get(node.input[0])
        readers = [use.node for use in view.consumers.get(node.output[0], [])]
        names = {
            node.input[0],
            *(reader.output[0] for reader in readers),
        }  # an output's own name is behind the pair
        if (
            source is None
            or not is_standard(source, "Gemm", "MatMul")
            or not names.intersection(products)
        ):
            continue
        if len(view.consumers[node.input[0]]) > 1:
            continue
        after = [use.node for reader in readers for use in view.consumers.get(reader.output[0], [])]
        if any(reader.name in quantised for reader in after) or node.input[0] in outputs:
            continue
        if len(readers) > 1 and any(reader.output[0] in outputs for reader in readers):
            continue
        gone.update((node.output[0], *(reader.output[0] for reader in readers)))
        final = next((r.output[0] for r in readers if r.output[0] in outputs), node.input[0])
        renamed.update({node.input[0]: final, **{reader.output[0]: final for reader in readers}})
    kept = [
        n
        for n in graph.node
        if not (is_standard(n, "QuantizeLinear", "DequantizeLinear") and n.output[0] in gone)
    ]
    for node in kept:
        node.output[:] = [renamed.get(name, name) for name in node.output]
        node.input[:] = [renamed.get(name, name) for name in node.input]
    set_nodes(graph, kept)


def _remove_unread(graph: GraphProto) -> None:
    """Take out what nothing reads any more: scales of values that stay float."""
    read = {name for node in graph.node for name in node.input} | {
        value.name for value in graph.output
    }
    if any(a.HasField("g") or a.graphs for node in graph.node for a in node.attribute):
        return
    set_initializers(graph, [tensor for tensor in graph.initializer if tensor.name in read])


@contextmanager
def _silence_logging() -> Iterator[None]:
    """Have the tool say nothing: it warns of what was done already."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
