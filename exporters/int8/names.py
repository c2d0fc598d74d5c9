"""Names in a graph that is quantized: unique for onnxruntime's tool, and short in the file."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from onnx import TensorProto

from ltp_pipeline.exporters.int8.layers import QUANTIZED_SUFFIX
from ltp_pipeline.graph.edit import UniqueNames, rename_inputs, rename_outputs, set_initializers
from ltp_pipeline.graph.model import OnnxModel, copy_proto
from ltp_pipeline.graph.nodes import is_standard, iter_nodes

# Suffixes that the tool appends to the name of a value or a weight for what it adds.
TOOL_SUFFIXES = (
    *(QUANTIZED_SUFFIX, "_scale", "_zero_point"),
    *(f"{QUANTIZED_SUFFIX}_scale", f"{QUANTIZED_SUFFIX}_zero_point"),
    *("_QuantizeLinear", "_QuantizeLinear_Input", "_QuantizeLinear_Output"),
    *("_DequantizeLinear", "_DequantizeLinear_Output"),
)
COMPACT_PREFIX = "int8/"  # begins the short names of what quantization adds


def rename_values(model: OnnxModel, new_names: Mapping[str, str]) -> OnnxModel:
    """Return the model with new names for some values and tensors."""
    proto = copy_proto(model.proto)
    rename_inputs(iter_nodes(proto.graph), new_names)
    rename_outputs(iter_nodes(proto.graph), new_names)
    for tensor in proto.graph.initializer:
        tensor.name = new_names.get(tensor.name, tensor.name)
    # Weights also have the values of Constant nodes.
    weights = {new_names.get(name, name): array for name, array in model.weights.items()}
    return replace(model, proto=proto, weights=weights)


def name_nodes(model: OnnxModel) -> OnnxModel:
    """Return the model with a unique name for every node; nodes keep names that are unique."""
    node_names = [node.name for node in model.graph.node]
    if len(set(node_names)) == len(node_names) and "" not in node_names:
        return model
    names = UniqueNames()
    proto = copy_proto(model.proto)
    for node in proto.graph.node:
        name = node.name or next(filter(None, node.output), node.op_type)
        node.name = names.make_unique(name)
    return replace(model, proto=proto)


def rename_conflicts(model: OnnxModel, weight_names: Collection[str]) -> OnnxModel:
    """Return the model with new names for what the tool could name otherwise.

    Layer weights, inputs and outputs keep their names.
    """
    graph = model.graph
    names = UniqueNames.from_graph(graph)
    used_names = set(names.taken)
    fixed_names = {*weight_names, *(value.name for value in (*graph.input, *graph.output))}
    value_names = [tensor.name for tensor in graph.initializer]
    value_names += [name for node in graph.node for name in node.output]
    new_names = {}
    for name in dict.fromkeys(value_names):
        if name not in fixed_names and _is_tool_name(name, used_names):
            new_names[name] = names.make_unique(f"{name}/")
    node_conflicts = {n.name for n in graph.node if _is_tool_name(n.name, used_names)}
    if not new_names and not node_conflicts:
        return model
    renamed = rename_values(model, new_names)
    for node in renamed.graph.node:
        if node.name in node_conflicts:
            node.name = f"{node.name}/"
    del renamed.graph.value_info[:]
    return renamed


def _is_tool_name(name: str, names: Collection[str]) -> bool:
    """Return true if the tool could add something called `name` for one of `names`."""
    return any(name.endswith(end) and name.removesuffix(end) in names for end in TOOL_SUFFIXES)


def compact_names(model: OnnxModel, original: OnnxModel) -> OnnxModel:
    """Return a quantized graph with short names for what quantization added, and constants once.

    Names of the original graph and of quantized weights stay. If one of them would be taken twice,
    all names stay.
    """
    original_names = UniqueNames.from_graph(original.graph).taken
    new_names: dict[str, str] = {}
    constants: dict[tuple[int, tuple[int, ...], bytes], str] = {}  # new names by content
    for tensor in model.graph.initializer:
        if tensor.name in original_names or tensor.name.endswith(QUANTIZED_SUFFIX):
            continue
        array = model.get_array(tensor.name)
        content = (tensor.data_type, tuple(tensor.dims), array.tobytes())
        new_names[tensor.name] = constants.setdefault(
            content, f"{COMPACT_PREFIX}{len(constants):x}"
        )
    number = len(constants)
    for node in model.graph.node:
        for name in node.output:
            if name and name not in original_names and name not in new_names:
                new_names[name] = f"{COMPACT_PREFIX}{number:x}"
                number += 1
    if original_names.intersection(new_names.values()):
        return model
    compact = rename_values(model, new_names)
    for node in iter_nodes(compact.graph):
        if is_standard(node, "QuantizeLinear", "DequantizeLinear"):
            node.ClearField("name")
    tensors: dict[str, TensorProto] = {}
    for tensor in compact.graph.initializer:
        tensors.setdefault(tensor.name, tensor)
    set_initializers(compact.graph, tensors.values())
    return compact
