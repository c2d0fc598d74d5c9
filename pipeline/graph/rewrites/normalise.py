"""The few edits a file's graph needs before it can be trained and written back by name; none changes what it infers.

A training-mode export is put back into inference mode, a weight made by ConstantOfShape becomes an initializer, and a
tensor that exporters merged although it plays two roles (a BatchNormalization's bias and its mean) becomes two again.
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

_STATISTICS = (3, 4)  # BatchNormalization's mean and variance
_LEARNED = {
    "Conv": (1, 2),
    "ConvTranspose": (1, 2),
    "Gemm": (0, 1, 2),
    "MatMul": (0, 1),
    "BatchNormalization": (1, 2, 3, 4),
}


def normalize_model(model: OnnxModel) -> tuple[OnnxModel, list[str]]:
    """The model to train (itself where nothing has to change) and what was done; a second call finds nothing to do."""
    proto, weights, notes = copy_proto(model.proto), dict(model.weights), list[str]()
    edits: list[tuple[Callable[[ModelProto, dict[str, Array]], int], str]] = [
        (_leave_training_mode, "{} training-mode nodes put into inference mode"),
        (_fill_constant_shapes, "{} weights made by ConstantOfShape turned into initializers"),
        (_separate_statistics, "{} running statistics that shared a tensor given their own"),
    ]
    for edit, note in edits:
        count = edit(proto, weights)
        if count:
            notes.append(note.format(count))
    return (OnnxModel(proto, weights), notes) if notes else (model, notes)


def _leave_training_mode(model: ModelProto, weights: dict[str, Array]) -> int:
    """BatchNormalization in training mode and Dropout with a true third input would not infer."""
    del weights
    graph = model.graph
    nodes = [n for part in (graph, *model.functions) for n in iter_nodes(part) if _may_train(n)]
    if not nodes:
        return 0
    known = collect_constants(graph)
    read = {
        *iter_read_names(graph),
        *(name for f in model.functions for n in f.node for name in n.input),
    }
    read |= {name for f in model.functions for name in f.output}
    count = 0
    for node in nodes:
        if node.op_type == "Dropout":
            value = get_small_value(known, node.input[2])
            if value is not None and value.all():
                node.input[2] = ""
                count += 1
        elif not any(name and name in read for name in node.output[1:]):
            for mode in node.attribute:
                if mode.name == "training_mode":
                    mode.i = 0
            del node.output[1:]
            count += 1
    return count


def _may_train(node: NodeProto) -> bool:
    """Before opset 14, the outputs beyond the first are what makes a BatchNormalization train."""
    if is_standard(node, "BatchNormalization"):
        return len(node.output) > 1 or any(
            a.name == "training_mode" and a.i for a in node.attribute
        )
    return is_standard(node, "Dropout") and len(node.input) > 2


def _fill_constant_shapes(model: ModelProto, weights: dict[str, Array]) -> int:
    """ConstantOfShape of a known size where an operator has its weights is a weight in disguise."""
    graph = model.graph
    if not any(is_standard(n, "ConstantOfShape") for n in graph.node):
        return 0
    known, learned = collect_constants(graph), _learned(graph)
    kept, room = [], MAX_CONSTANT_ELEMENTS
    for node in graph.node:
        array = None
        if is_standard(node, "ConstantOfShape") and learned.intersection(node.output):
            shape = get_small_value(known, node.input[0])
            array = (
                None if shape is None else _filled(node, [int(d) for d in shape.reshape(-1)], room)
            )
        if array is None:
            kept.append(node)
        else:
            room -= array.size
            weights[node.output[0]] = array
            data_type = helper.np_dtype_to_tensor_dtype(array.dtype)
            _store(model, make_empty_tensor(node.output[0], data_type, array.shape))
    count = len(graph.node) - len(kept)
    if count:
        set_nodes(graph, kept)
    return count


def _learned(graph: GraphProto) -> set[str]:
    """Values that feed a slot for weights, directly or through a change of shape."""
    found = set()
    for node in reversed(graph.node):
        if is_standard(node, *_LEARNED):
            found |= {
                name for slot, name in enumerate(node.input) if slot in _LEARNED[node.op_type]
            }
        elif is_standard(node, "Mul", "Add"):  # a scale and shift per channel, shaped by Unsqueeze
            found |= {name for name in node.input if name}
        elif is_standard(node, *VIEW_OPERATORS) and found.intersection(node.output):
            found.update(node.input[:1])
    return found


def _filled(node: NodeProto, dims: list[int], room: int) -> Array | None:
    value = (
        node.attribute[0].t
        if node.attribute
        else TensorProto(data_type=TensorProto.FLOAT, float_data=[0.0], dims=[1])
    )
    if (
        value.data_type not in FLOAT_TYPES
        or any(d < 1 for d in dims)
        or not 1 < math.prod(dims) <= room
    ):
        return None
    filler = to_array(value).reshape(-1)[:1]
    return None if filler.size == 0 else np.broadcast_to(filler, dims)


def _separate_statistics(model: ModelProto, weights: dict[str, Array]) -> int:
    """Give each BatchNormalization a mean and a variance that nothing else reads."""
    graph = model.graph
    norms = [
        n
        for n in graph.node
        if is_standard(n, "BatchNormalization") and len(n.input) > max(_STATISTICS)
    ]
    if not norms:
        return 0
    behind = find_identity_sources(graph)
    uses = Counter(name for _, _, name in iter_uses(graph, outputs=True))
    slots = [n.input[slot] for n in norms for slot in _STATISTICS]
    if not any(name in behind or uses[name] > 1 for name in slots):
        return 0
    tensors = {n: t for n, t in collect_constants(graph).items() if isinstance(t, TensorProto)}
    names, count = UniqueNames.from_graph(graph), 0
    for node in norms:
        for slot in _STATISTICS:
            name = behind.get(node.input[slot], node.input[slot])
            if name in tensors and (uses[name] > 1 or node.input[slot] in behind):
                private = TensorProto()
                private.CopyFrom(tensors[name])
                private.name = names.make_unique(f"{node.input[slot]}.{format_node(node)}.{slot}")
                _store(model, private)
                if name in weights:
                    weights[private.name] = weights[name]
                uses[name] -= 1
                node.input[slot] = private.name
                count += 1
    return count


def _store(model: ModelProto, tensor: TensorProto) -> None:
    model.graph.initializer.append(tensor)
    if model.ir_version < 4:  # where every initializer has to be a graph input too
        model.graph.input.append(
            helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        )
