"""Prepare a graph for onnxruntime's quantization tool, without a change of what it computes.

Every node gets a name, biases of Gemm become vectors, and layer weights behind a Transpose are
transposed. No value keeps a name that the tool would give to what it adds.
"""

from collections.abc import Collection

from onnx import NodeProto

from ltp_pipeline.exporters.int8.layers import QUANTIZED_SUFFIX
from ltp_pipeline.exporters.int8.transposed import transpose_weights
from ltp_pipeline.graph.edit import UniqueNames, drop_inputs, rename_inputs, rename_outputs
from ltp_pipeline.graph.model import OnnxModel, copy_proto
from ltp_pipeline.graph.nodes import is_standard, iter_nodes
from ltp_pipeline.graph.readers import get_output_axis
from ltp_pipeline.graph.tensors import make_empty_tensor
from ltp_pipeline.graph.view import GraphView, ValueUse
from ltp_pipeline.system.arrays import Array

# Suffixes that the tool appends to the name of a value or a weight for what it adds.
TOOL_SUFFIXES = (
    *(QUANTIZED_SUFFIX, "_scale", "_zero_point"),
    *(f"{QUANTIZED_SUFFIX}_scale", f"{QUANTIZED_SUFFIX}_zero_point"),
    *("_QuantizeLinear", "_QuantizeLinear_Input", "_QuantizeLinear_Output"),
    *("_DequantizeLinear", "_DequantizeLinear_Output"),
)


def prepare_graph(
    model: OnnxModel, weight_names: Collection[str]
) -> tuple[OnnxModel, frozenset[str]]:
    """Prepare a graph; layer weights, inputs and outputs keep their names.

    Args:
        model: The model.
        weight_names: Names of the layer weights.

    Returns:
        The prepared model, and the names of the layer weights that are transposed in it.
    """
    fixed = _flatten_biases(_fix_weights(model))
    named = name_nodes(_rename_conflicts(fixed, weight_names))
    return transpose_weights(named, weight_names)


def name_nodes(model: OnnxModel) -> OnnxModel:
    """Return the model with a unique name for every node; nodes keep names that are unique."""
    node_names = [node.name for node in model.graph.node]
    if len(set(node_names)) == len(node_names) and "" not in node_names:
        return model
    names = UniqueNames()
    proto = copy_proto(model.proto)
    for node in proto.graph.node:
        name = node.name or next((output for output in node.output if output), node.op_type)
        node.name = names.make_unique(name)
    return OnnxModel(proto, model.weights, model.sparse)


def _fix_weights(model: OnnxModel) -> OnnxModel:
    """Return the model without inputs that can override weights."""
    proto = copy_proto(model.proto)
    drop_inputs(proto.graph, {tensor.name for tensor in proto.graph.initializer})
    return OnnxModel(proto, model.weights, model.sparse)


def _flatten_biases(model: OnnxModel) -> OnnxModel:
    """Return the model with vectors for biases of Gemm that are matrices of one row."""
    consumers = GraphView(model.graph).consumers
    output_names = {value.name for value in model.graph.output}
    vectors: dict[str, Array] = {}
    for tensor in model.graph.initializer:
        uses = consumers.get(tensor.name, [])
        if not uses or tensor.name in output_names or not all(map(_is_gemm_bias, uses)):
            continue
        if {(1, _count_outputs(model, use.node)) for use in uses} == {tuple(tensor.dims)}:
            vectors[tensor.name] = model.get_array(tensor.name).reshape(-1)
    if not vectors:
        return model
    proto = copy_proto(model.proto)
    for tensor in proto.graph.initializer:
        if tensor.name in vectors:
            shape = vectors[tensor.name].shape
            tensor.CopyFrom(make_empty_tensor(tensor.name, tensor.data_type, shape))
    return OnnxModel(proto, {**model.weights, **vectors}, model.sparse)


def _is_gemm_bias(use: ValueUse) -> bool:
    """Return true if a value is used as the bias of a Gemm."""
    return is_standard(use.node, "Gemm") and use.slot == 2


def _count_outputs(model: OnnxModel, gemm: NodeProto) -> int:
    """Return the number of outputs of a Gemm with a stored weight, or 0 if that is not known."""
    tensor = model.tensors.get(gemm.input[1])
    if tensor is None or len(tensor.dims) != 2:
        return 0
    return int(tensor.dims[get_output_axis(gemm)])


def _rename_conflicts(model: OnnxModel, weight_names: Collection[str]) -> OnnxModel:
    """Return the model with new names for what the tool could name otherwise."""
    graph = model.graph
    names = UniqueNames.from_graph(graph)
    used_names = set(names.taken)
    kept_names = {*weight_names, *(value.name for value in (*graph.input, *graph.output))}
    value_names = [tensor.name for tensor in graph.initializer]
    value_names += [name for node in graph.node for name in node.output]
    conflicts = []
    for name in value_names:
        if name not in kept_names and find_name_base(name, used_names):
            conflicts.append(name)
    node_conflicts = {n.name for n in graph.node if find_name_base(n.name, used_names)}
    if not conflicts and not node_conflicts:
        return model
    renamed = {name: names.make_unique(f"{name}/") for name in dict.fromkeys(conflicts)}
    proto = copy_proto(model.proto)
    rename_inputs(iter_nodes(proto.graph), renamed)
    rename_outputs(iter_nodes(proto.graph), renamed)
    for node in proto.graph.node:
        if node.name in node_conflicts:
            node.name = f"{node.name}/"
    for tensor in proto.graph.initializer:
        tensor.name = renamed.get(tensor.name, tensor.name)
    del proto.graph.value_info[:]
    weights = {renamed.get(name, name): array for name, array in model.weights.items()}
    return OnnxModel(proto, weights, model.sparse)


def find_name_base(name: str, names: Collection[str]) -> str | None:
    """Return the one of `names` for which the tool could add something called `name`, or None."""
    for suffix in TOOL_SUFFIXES:
        base = name.removesuffix(suffix)
        if base != name and base in names:
            return base
    return None
