"""Shorten what quantization adds to a graph: short names, and equal constants only once."""

from onnx import GraphProto, TensorProto

from ltp_pipeline.exporters.int8.layers import QUANTIZED_SUFFIX
from ltp_pipeline.graph.edit import rename_inputs, rename_outputs, set_initializers
from ltp_pipeline.graph.model import OnnxModel, copy_proto
from ltp_pipeline.graph.nodes import is_standard, iter_graphs, iter_nodes

PREFIX = "int8/"  # begins the names that quantization adds


def compact_names(model: OnnxModel, original: OnnxModel) -> OnnxModel:
    """Return the same graph with short names for what quantization added.

    Names of the original graph and of quantized weights stay. If one of them would be taken twice,
    all names stay.

    Args:
        model: The quantized graph.
        original: The graph before quantization.
    """
    proto = copy_proto(model.proto)
    graph = proto.graph
    original_names = _collect_names(original.graph)
    renamed: dict[str, str] = {}
    constants: dict[tuple[int, tuple[int, ...], bytes], str] = {}  # new names by content
    for tensor in graph.initializer:
        if tensor.name in original_names or tensor.name.endswith(QUANTIZED_SUFFIX):
            continue
        array = model.get_array(tensor.name)
        content = (tensor.data_type, tuple(tensor.dims), array.tobytes())
        renamed[tensor.name] = constants.setdefault(content, f"{PREFIX}{len(constants):x}")
    number = len(constants)
    for node in graph.node:
        for name in node.output:
            if name and name not in original_names and name not in renamed:
                renamed[name] = f"{PREFIX}{number:x}"
                number += 1
    if original_names.intersection(renamed.values()):
        return model
    rename_inputs(iter_nodes(graph), renamed)
    rename_outputs(iter_nodes(graph), renamed)
    for node in iter_nodes(graph):
        if is_standard(node, "QuantizeLinear", "DequantizeLinear"):
            node.ClearField("name")
    tensors: dict[str, TensorProto] = {}
    for tensor in graph.initializer:
        tensor.name = renamed.get(tensor.name, tensor.name)
        tensors.setdefault(tensor.name, tensor)
    set_initializers(graph, tensors.values())
    # Weights also have the values of Constant nodes.
    weights = {renamed.get(name, name): array for name, array in model.weights.items()}
    return OnnxModel(proto, weights)


def _collect_names(graph: GraphProto) -> set[str]:
    """Return all names of tensors and values of a graph and of graphs nested in it."""
    names: set[str] = set()
    for nested in iter_graphs(graph):
        names.update(tensor.name for tensor in nested.initializer)
        names.update(value.name for value in (*nested.input, *nested.output))
        for node in nested.node:
            names.update(node.input)
            names.update(node.output)
    return names
