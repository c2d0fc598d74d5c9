"""Kernels behind a Transpose: quantised as their products read them, and put back as the file has them."""

from collections.abc import Collection

import numpy as np
from onnx import NodeProto, helper

from ltp_pipeline.exporters.int8.layers import DYNAMIC_OPERATORS, QUANTIZED_SUFFIX
from ltp_pipeline.graph.edit import UniqueNames, set_nodes
from ltp_pipeline.graph.model import OnnxModel, copy_proto
from ltp_pipeline.graph.nodes import get_attribute, get_subgraphs, is_standard
from ltp_pipeline.graph.tensors import make_empty_tensor
from ltp_pipeline.graph.view import GraphView, ValueUse, iter_read_names


def transpose_weights(
    model: OnnxModel, weight_names: Collection[str]
) -> tuple[OnnxModel, frozenset[str]]:
    """The model without the Transpose of kernels, whose values are turned instead; and which kernels those are."""
    view, outputs = GraphView(model.graph), {value.name for value in model.graph.output}
    nested = {
        name
        for node in model.graph.node
        for graph in get_subgraphs(node)
        for name in iter_read_names(graph)
    }
    taken = {tensor.name for tensor in model.graph.initializer if len(tensor.dims) == 2}
    sources = dict[str, str]()  # of what a Transpose puts out
    for kernel in taken.intersection(weight_names) - outputs - nested:
        found = view.consumers.get(kernel, [])
        made = [use.node.output[0] for use in found if _is_matrix_transpose(use.node)]
        read = [use for name in made for use in view.consumers.get(name, [])]
        if (
            found
            and len(made) == len(found)
            and all(map(_is_product_weight, read))
            and not {*made} & (outputs | nested)
        ):
            sources.update(dict.fromkeys(made, kernel))
    if not sources:
        return model, frozenset()
    proto, kept = copy_proto(model.proto), frozenset(sources.values())
    for node in proto.graph.node:
        node.input[:] = [sources.get(name, name) for name in node.input]
    set_nodes(proto.graph, [node for node in proto.graph.node if node.output[0] not in sources])
    return _swap_axes(OnnxModel(proto, model.weights, model.sparse), kept), kept


def restore_transposes(model: OnnxModel, weight_names: Collection[str]) -> OnnxModel:
    """The quantised model with these kernels as they were, each behind a Transpose."""
    if not weight_names:
        return model
    held = [
        name + QUANTIZED_SUFFIX if name + QUANTIZED_SUFFIX in model.tensors else name
        for name in sorted(weight_names)
    ]
    back = _swap_axes(model, held)
    proto, names = back.proto, UniqueNames.from_graph(back.graph)
    new = {name: names.make_unique(f"{name}/turned") for name in held}
    for node in proto.graph.node:
        node.input[:] = [new.get(name, name) for name in node.input]
    first = [
        helper.make_node("Transpose", [name], [output], perm=[1, 0]) for name, output in new.items()
    ]
    set_nodes(proto.graph, [*first, *proto.graph.node])
    return back


def _swap_axes(model: OnnxModel, names: Collection[str]) -> OnnxModel:
    """The model with rows for columns in these matrices, whatever reads them."""
    proto, arrays = (
        copy_proto(model.proto),
        {name: np.ascontiguousarray(model.get_array(name).T) for name in names},
    )
    for tensor in proto.graph.initializer:
        if tensor.name in arrays:
            tensor.CopyFrom(
                make_empty_tensor(tensor.name, tensor.data_type, arrays[tensor.name].shape)
            )
    return OnnxModel(proto, {**model.weights, **arrays}, model.sparse)


def _is_matrix_transpose(node: NodeProto) -> bool:
    return is_standard(node, "Transpose") and list(get_attribute(node, "perm", [1, 0])) == [1, 0]


def _is_product_weight(use: ValueUse) -> bool:
    return is_standard(use.node, *DYNAMIC_OPERATORS) and use.slot == 1
