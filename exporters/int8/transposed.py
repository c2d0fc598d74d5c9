"""Layer weights behind a Transpose: quantized as products read them, then restored for the file."""

from collections.abc import Collection

import numpy as np
from onnx import NodeProto, helper

from ltp_pipeline.exporters.int8.layers import (
    DYNAMIC_OPERATORS,
    QUANTIZED_SUFFIX,
    collect_nested_reads,
)
from ltp_pipeline.graph.edit import UniqueNames, rename_inputs, set_nodes
from ltp_pipeline.graph.model import OnnxModel, copy_proto
from ltp_pipeline.graph.nodes import get_attribute, is_standard
from ltp_pipeline.graph.tensors import make_empty_tensor
from ltp_pipeline.graph.view import GraphView, ValueUse


def transpose_weights(
    model: OnnxModel, weight_names: Collection[str]
) -> tuple[OnnxModel, frozenset[str]]:
    """Remove the Transpose of layer weights and transpose their values instead.

    Args:
        model: The model.
        weight_names: Names of the layer weights.

    Returns:
        The model, and the names of the layer weights that are transposed in it.
    """
    graph = model.graph
    view = GraphView(graph)
    kept_names = {value.name for value in graph.output} | collect_nested_reads(graph)
    matrices = {tensor.name for tensor in graph.initializer if len(tensor.dims) == 2}
    weight_of: dict[str, str] = {}  # by the output of its Transpose
    for name in matrices.intersection(weight_names) - kept_names:
        uses = view.consumers.get(name, [])
        if not uses or not all(_is_matrix_transpose(use.node) for use in uses):
            continue
        outputs = [use.node.output[0] for use in uses]
        readers = [use for output in outputs for use in view.consumers.get(output, [])]
        if all(map(_is_product_weight, readers)) and kept_names.isdisjoint(outputs):
            weight_of.update(dict.fromkeys(outputs, name))
    if not weight_of:
        return model, frozenset()
    proto = copy_proto(model.proto)
    rename_inputs(proto.graph.node, weight_of)
    set_nodes(proto.graph, [node for node in proto.graph.node if node.output[0] not in weight_of])
    transposed = frozenset(weight_of.values())
    return _swap_axes(OnnxModel(proto, model.weights, model.sparse), transposed), transposed


def restore_transposes(model: OnnxModel, weight_names: Collection[str]) -> OnnxModel:
    """Return a quantized model with a Transpose behind layer weights, as in the float model.

    Args:
        model: The quantized model.
        weight_names: Names of the layer weights that `transpose_weights` has transposed.
    """
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
    proto = copy_proto(model.proto)
    arrays = {name: np.ascontiguousarray(model.get_array(name).T) for name in names}
    for tensor in proto.graph.initializer:
        if tensor.name in arrays:
            shape = arrays[tensor.name].shape
            tensor.CopyFrom(make_empty_tensor(tensor.name, tensor.data_type, shape))
    return OnnxModel(proto, {**model.weights, **arrays}, model.sparse)


def _is_matrix_transpose(node: NodeProto) -> bool:
    """Return true if a node transposes a matrix."""
    return is_standard(node, "Transpose") and list(get_attribute(node, "perm", [1, 0])) == [1, 0]


def _is_product_weight(use: ValueUse) -> bool:
    """Return true if a value is used as the weight of a matrix product."""
    return is_standard(use.node, *DYNAMIC_OPERATORS) and use.slot == 1
