"""Fewer bytes for what quantising adds to a graph: long names become short ones, and equal constants are kept once."""

from collections.abc import Collection

from onnx import GraphProto, TensorProto

from ltp_pipeline.exporters.int8.layers import QUANTIZED_SUFFIX
from ltp_pipeline.graph.edit import set_initializers
from ltp_pipeline.graph.model import OnnxModel, copy_proto
from ltp_pipeline.graph.nodes import is_standard, iter_graphs, iter_nodes

PREFIX = "int8/"  # of names that quantising adds


def compact_names(model: OnnxModel, original: OnnxModel) -> OnnxModel:
    """The same graph; names that were there `before`, and those of quantised weights, stay."""
    proto = copy_proto(model.proto)
    graph = proto.graph
    kept = _collect_names(original.graph)
    added = [
        t for t in graph.initializer if t.name not in kept and not t.name.endswith(QUANTIZED_SUFFIX)
    ]
    renamed, known = dict[str, str](), dict[tuple[int, tuple[int, ...], bytes], str]()
    for tensor in added:
        content = (tensor.data_type, tuple(tensor.dims), model.get_array(tensor.name).tobytes())
        renamed[tensor.name] = known.setdefault(content, _short(known))
    values = dict.fromkeys(
        name for node in graph.node for name in node.output if name and name not in kept
    )
    renamed.update(
        (name, f"{PREFIX}{number:x}") for number, name in enumerate(values, start=len(known))
    )
    if kept.intersection(renamed.values()):
        return model
    for node in iter_nodes(graph):
        node.input[:] = [renamed.get(name, name) for name in node.input]
        node.output[:] = [renamed.get(name, name) for name in node.output]
        if is_standard(node, "QuantizeLinear", "DequantizeLinear"):
            node.ClearField("name")
    tensors: dict[str, TensorProto] = {}
    for tensor in graph.initializer:
        tensor.name = renamed.get(tensor.name, tensor.name)
        tensors.setdefault(tensor.name, tensor)
    arrays = {
        renamed.get(name, name): array for name, array in model.weights.items()
    }  # also of Constant nodes
    set_initializers(graph, tensors.values())
    return OnnxModel(proto, arrays)


def _short(known: Collection[object]) -> str:
    return f"{PREFIX}{len(known):x}"


def _collect_names(graph: GraphProto) -> set[str]:
    found: set[str] = set()
    for nested in iter_graphs(graph):
        found.update(t.name for t in nested.initializer)
        found.update(value.name for value in (*nested.input, *nested.output))
        found.update(name for node in nested.node for name in (*node.input, *node.output))
    return found
