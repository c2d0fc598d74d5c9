"""Normalize a graph for training by a few edits that do not change its outputs.

Nodes in training mode are put back into inference mode, as exported models are meant to infer. A
weight that the graph computes by ConstantOfShape becomes a stored tensor, so that it can be
trained and written back. A tensor that exporters merged because two equal ones played different
roles, such as a BatchNormalization's bias and its mean, is stored twice again.
"""

import math
from collections import Counter
from collections.abc import Callable

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from ltp_pipeline.graph.constants import collect_constants, get_small_value
from ltp_pipeline.graph.edit import UniqueNames, set_nodes
from ltp_pipeline.graph.model import OnnxModel, copy_proto
from ltp_pipeline.graph.nodes import VIEW_OPERATORS, format_node, is_standard, iter_nodes
from ltp_pipeline.graph.tensors import (
    FLOAT_TYPES,
    MAX_CONSTANT_ELEMENTS,
    make_empty_tensor,
    to_array,
)
from ltp_pipeline.graph.view import find_identity_sources, iter_read_names, iter_uses
from ltp_pipeline.system.arrays import Array

_STATISTIC_INPUTS = (3, 4)  # mean and variance of a BatchNormalization
_TRAINED_INPUTS = {
    "Conv": (1, 2),
    "ConvTranspose": (1, 2),
    "Gemm": (0, 1, 2),
    "MatMul": (0, 1),
    "BatchNormalization": (1, 2, 3, 4),
}
_FREE_INITIALIZERS_VERSION = 4  # IR version from which an initializer need not be an input


def normalize_model(model: OnnxModel) -> tuple[OnnxModel, list[str]]:
    """Return a model ready for training and notes about what was done.

    A model that needs no edit is returned as it is; a second call never finds anything to do.
    """
    proto = copy_proto(model.proto)
    weights = dict(model.weights)
    notes: list[str] = []
    operators: set[str] = set()
    for part in (proto.graph, *proto.functions):
        operators.update(node.op_type for node in iter_nodes(part))
    for edit, edited_operators, note in _EDITS:
        if operators.isdisjoint(edited_operators):
            continue
        count = edit(proto, weights)
        if count:
            notes.append(note.format(count))
    if notes:
        model = OnnxModel(proto, weights)
    return model, notes


def _leave_training_mode(model: ModelProto, _weights: dict[str, Array]) -> int:
    """Put BatchNormalization and Dropout into inference mode and return the number of nodes."""
    graph = model.graph
    nodes: list[NodeProto] = []
    for part in (graph, *model.functions):
        nodes += filter(_may_be_in_training_mode, iter_nodes(part))
    constants = collect_constants(graph)
    reads = set(iter_read_names(graph))
    for function in model.functions:
        reads.update(function.output)
        for node in function.node:
            reads.update(node.input)
    count = 0
    for node in nodes:
        if node.op_type == "Dropout":
            mode = get_small_value(constants, node.input[2])
            if mode is not None and mode.all():
                node.input[2] = ""
                count += 1
        elif not any(name and name in reads for name in node.output[1:]):
            for attribute in node.attribute:
                if attribute.name == "training_mode":
                    attribute.i = 0
            del node.output[1:]
            count += 1
    return count


def _may_be_in_training_mode(node: NodeProto) -> bool:
    """Return True for a BatchNormalization in training mode, or a Dropout with an input for it."""
    if not is_standard(node, "BatchNormalization"):
        return is_standard(node, "Dropout") and len(node.input) > 2
    if len(node.output) > 1:  # before opset 14, further outputs are what switches the mode on
        return True
    return any(attribute.name == "training_mode" and attribute.i for attribute in node.attribute)


def _store_constant_shapes(model: ModelProto, weights: dict[str, Array]) -> int:
    """Store weights that the graph computes by ConstantOfShape, and return their number."""
    graph = model.graph
    constants = collect_constants(graph)
    trained = _find_trained_values(graph)
    remaining: list[NodeProto] = []
    free_elements = MAX_CONSTANT_ELEMENTS
    for node in graph.node:
        array = None
        if is_standard(node, "ConstantOfShape") and trained.intersection(node.output):
            shape = get_small_value(constants, node.input[0])
            if shape is not None:
                dims = [int(dim) for dim in shape.reshape(-1)]
                array = _make_filled_array(node, dims, free_elements)
        if array is None:
            remaining.append(node)
            continue
        name = node.output[0]
        free_elements -= array.size
        weights[name] = array
        data_type = helper.np_dtype_to_tensor_dtype(array.dtype)
        _add_initializer(model, make_empty_tensor(name, data_type, array.shape))
    count = len(graph.node) - len(remaining)
    if count:
        set_nodes(graph, remaining)
    return count


def _find_trained_values(graph: GraphProto) -> set[str]:
    """Return the values that feed an input slot for weights, directly or through a view."""
    names: set[str] = set()
    for node in reversed(graph.node):
        if is_standard(node, *_TRAINED_INPUTS):
            slots = _TRAINED_INPUTS[node.op_type]
            names.update(name for slot, name in enumerate(node.input) if slot in slots)
        elif is_standard(node, "Mul", "Add"):  # scale and shift per channel, shaped by Unsqueeze
            names.update(name for name in node.input if name)
        elif is_standard(node, *VIEW_OPERATORS) and names.intersection(node.output):
            names.update(node.input[:1])
    return names


def _make_filled_array(node: NodeProto, dims: list[int], max_elements: int) -> Array | None:
    """Return what a ConstantOfShape computes; None unless it is a float array of fair size."""
    if any(dim < 1 for dim in dims) or not 1 < math.prod(dims) <= max_elements:
        return None
    value = TensorProto(data_type=TensorProto.FLOAT, float_data=[0.0], dims=[1])
    if node.attribute:
        value = node.attribute[0].t
    if value.data_type not in FLOAT_TYPES:
        return None
    filler = to_array(value).reshape(-1)[:1]
    return np.broadcast_to(filler, dims) if filler.size else None


def _separate_statistics(model: ModelProto, weights: dict[str, Array]) -> int:
    """Store each running statistic that something else reads too once more, and count them."""
    graph = model.graph
    sources = find_identity_sources(graph)
    use_counts = Counter(name for _, _, name in iter_uses(graph, outputs=True))
    constants = collect_constants(graph)
    names = UniqueNames.from_graph(graph)
    count = 0
    for node in graph.node:
        if not is_standard(node, "BatchNormalization"):
            continue
        for slot in _STATISTIC_INPUTS:
            value = node.input[slot]
            name = sources.get(value, value)
            tensor = constants.get(name)
            is_shared = use_counts[name] > 1 or value in sources
            if not isinstance(tensor, TensorProto) or not is_shared:
                continue
            copy = TensorProto()
            copy.CopyFrom(tensor)
            copy.name = names.make_unique(f"{value}.{format_node(node)}.{slot}")
            _add_initializer(model, copy)
            if name in weights:
                weights[copy.name] = weights[name]
            use_counts[name] -= 1
            node.input[slot] = copy.name
            count += 1
    return count


def _add_initializer(model: ModelProto, tensor: TensorProto) -> None:
    model.graph.initializer.append(tensor)
    if model.ir_version < _FREE_INITIALIZERS_VERSION:
        value = helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        model.graph.input.append(value)


# Each edit, the operators that it changes, and a note about the number of changes.
_EDITS: tuple[tuple[Callable[[ModelProto, dict[str, Array]], int], tuple[str, ...], str], ...] = (
    (
        _leave_training_mode,
        ("BatchNormalization", "Dropout"),
        "{} training-mode nodes put into inference mode",
    ),
    (
        _store_constant_shapes,
        ("ConstantOfShape",),
        "{} weights made by ConstantOfShape turned into initializers",
    ),
    (
        _separate_statistics,
        ("BatchNormalization",),
        "{} running statistics that shared a tensor given their own",
    ),
)
