"""Prepare a graph for onnxruntime's quantization tool, without a change of what it computes.

Every node gets a name, biases of Gemm become vectors, and layer weights behind a Transpose are
transposed. No value keeps a name that the tool would give to what it adds.
"""

from collections.abc import Collection
from dataclasses import replace

import numpy as np
from onnx import NodeProto, helper

from ltp_pipeline.exporters.int8.layers import (
    DYNAMIC_OPERATORS,
    QUANTIZED_SUFFIX,
    collect_nested_reads,
)
from ltp_pipeline.exporters.int8.names import name_nodes, rename_conflicts
from ltp_pipeline.graph.edit import UniqueNames, drop_inputs, rename_inputs, set_nodes
from ltp_pipeline.graph.model import OnnxModel, copy_proto
from ltp_pipeline.graph.nodes import collect_names, get_attribute, is_standard
from ltp_pipeline.graph.readers import get_output_axis
from ltp_pipeline.graph.tensors import Weights, make_empty_tensor
from ltp_pipeline.graph.view import GraphView, ValueUse


def prepare_graph(
    model: OnnxModel, weight_names: Collection[str]
) -> tuple[OnnxModel, frozenset[str]]:
    """Prepare a graph; layer weights, inputs and outputs keep their names.

    Returns:
        The prepared model, and the names of the layer weights that are transposed in it.
    """
    proto = copy_proto(model.proto)
    # Inputs that can override weights would keep these from being quantized.
    drop_inputs(proto.graph, collect_names(proto.graph.initializer))
    flat = _flatten_biases(replace(model, proto=proto))
    return transpose_weights(name_nodes(rename_conflicts(flat, weight_names)), weight_names)


def _flatten_biases(model: OnnxModel) -> OnnxModel:
    """Return the model with vectors for biases of Gemm that are matrices of one row."""
    consumers = GraphView(model.graph).consumers
    output_names = collect_names(model.graph.output)
    vectors = {}
    for tensor in model.graph.initializer:
        uses = consumers.get(tensor.name, [])
        if not uses or tensor.name in output_names or not all(map(_is_gemm_bias, uses)):
            continue
        if {(1, _count_outputs(model, use.node)) for use in uses} == {tuple(tensor.dims)}:
            vectors[tensor.name] = model.get_array(tensor.name).reshape(-1)
    return _replace_arrays(model, vectors) if vectors else model


def _is_gemm_bias(use: ValueUse) -> bool:
    """Return true if a value is used as the bias of a Gemm."""
    return is_standard(use.node, "Gemm") and use.slot == 2


def _count_outputs(model: OnnxModel, gemm: NodeProto) -> int:
    """Return the number of outputs of a Gemm with a stored weight, or 0 if that is not known."""
    tensor = model.tensors.get(gemm.input[1])
    if tensor is None or len(tensor.dims) != 2:
        return 0
    return int(tensor.dims[get_output_axis(gemm)])


def transpose_weights(
    model: OnnxModel, weight_names: Collection[str]
) -> tuple[OnnxModel, frozenset[str]]:
    """Remove the Transpose of layer weights and transpose their values instead.

    Returns:
        The model, and the names of the layer weights that are transposed in it.
    """
    graph = model.graph
    view = GraphView(graph)
    fixed_names = collect_names(graph.output) | collect_nested_reads(graph)
    matrices = {tensor.name for tensor in graph.initializer if len(tensor.dims) == 2}
    weight_of: dict[str, str] = {}  # by the output of its Transpose
    for name in matrices.intersection(weight_names) - fixed_names:
        uses = view.consumers.get(name, [])
        if not uses or not all(_is_matrix_transpose(use.node) for use in uses):
            continue
        outputs = [use.node.output[0] for use in uses]
        readers = [use for output in outputs for use in view.consumers.get(output, [])]
        if all(map(_is_product_weight, readers)) and fixed_names.isdisjoint(outputs):
            weight_of.update(dict.fromkeys(outputs, name))
    if not weight_of:
        return model, frozenset()
    transposed = frozenset(weight_of.values())
    turned = _swap_axes(model, transposed)
    rename_inputs(turned.graph.node, weight_of)
    set_nodes(turned.graph, [n for n in turned.graph.node if n.output[0] not in weight_of])
    return turned, transposed


def restore_transposes(model: OnnxModel, weight_names: Collection[str]) -> OnnxModel:
    """Return a quantized model with a Transpose behind layer weights, as in the float model."""
    if not weight_names:
        return model
    tensor_names = []
    for name in sorted(weight_names):
        int8_name = name + QUANTIZED_SUFFIX
        tensor_names.append(int8_name if int8_name in model.tensors else name)
    restored = _swap_axes(model, tensor_names)
    graph = restored.graph
    names = UniqueNames.from_graph(graph)
    transposed = {name: names.make_unique(f"{name}/turned") for name in tensor_names}
    rename_inputs(graph.node, transposed)
    transposes = [
        helper.make_node("Transpose", [name], [output], perm=[1, 0])
        for name, output in transposed.items()
    ]
    set_nodes(graph, [*transposes, *graph.node])
    return restored


def _swap_axes(model: OnnxModel, names: Collection[str]) -> OnnxModel:
    """Return a copy of a model with matrices transposed, without a change of their readers."""
    arrays = {name: np.ascontiguousarray(model.get_array(name).T) for name in names}
    return _replace_arrays(model, arrays)


def _replace_arrays(model: OnnxModel, arrays: Weights) -> OnnxModel:
    """Return a copy of a model with new values, also of another shape, for initializers."""
    proto = copy_proto(model.proto)
    for tensor in proto.graph.initializer:
        if tensor.name in arrays:
            shape = arrays[tensor.name].shape
            tensor.CopyFrom(make_empty_tensor(tensor.name, tensor.data_type, shape))
    return replace(model, proto=proto, weights={**model.weights, **arrays})


def _is_matrix_transpose(node: NodeProto) -> bool:
    """Return true if a node transposes a matrix."""
    return is_standard(node, "Transpose") and list(get_attribute(node, "perm", [1, 0])) == [1, 0]


def _is_product_weight(use: ValueUse) -> bool:
    """Return true if a value is used as the weight of a matrix product."""
    return is_standard(use.node, *DYNAMIC_OPERATORS) and use.slot == 1
