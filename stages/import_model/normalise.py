"""The few edits a graph needs before it can be trained and written back by name; none changes what it computes.

A training-mode export is put back into inference mode, and a tensor that exporters merged although it plays two roles
(a BatchNormalization's bias that equals its mean) becomes two again.
"""

from collections.abc import Callable

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper

from ltp_pipeline.stages.import_model.graph_module import is_tensor_constant
from ltp_pipeline.stages.import_model.program import LARGEST_CONSTANT, label
from ltp_pipeline.stages.import_model.tensors import FLOAT_TYPES

_STATISTICS = (3, 4)  # BatchNormalization's mean and variance


def normalise(model: ModelProto) -> list[str]:
    """Edit `model` in place and say what was done."""
    notes = []
    edits: list[tuple[Callable[[GraphProto], int], str]] = [
        (_leave_training_mode, "{} training-mode nodes put into inference mode"),
        (_fill_constant_shapes, "{} weights made by ConstantOfShape turned into initializers"),
        (_separate_statistics, "{} running statistics that shared a tensor given their own"),
    ]
    for edit, note in edits:
        count = edit(model.graph)
        if count:
            notes.append(note.format(count))
    return notes


def _leave_training_mode(graph: GraphProto) -> int:
    """BatchNormalization with training_mode=1 and Dropout with a true third input would not infer."""
    count = 0
    true = {t.name for t in graph.initializer if t.data_type == TensorProto.BOOL and numpy_helper.to_array(t).all()}
    true |= {n.output[0] for n in graph.node if is_tensor_constant(n) and _is_true(n)}
    for node in graph.node:
        if node.op_type == "BatchNormalization":
            modes = [a for a in node.attribute if a.name == "training_mode" and a.i]
            for mode in modes:
                mode.i = 0
                del node.output[1:]
                count += 1
        elif node.op_type == "Dropout" and len(node.input) > 2 and node.input[2] in true:
            node.input[2] = ""
            count += 1
    return count


def _is_true(node: NodeProto) -> bool:
    tensor = node.attribute[0].t
    return bool(tensor.data_type == TensorProto.BOOL and numpy_helper.to_array(tensor).all())


def _fill_constant_shapes(graph: GraphProto) -> int:
    """ConstantOfShape of a known float tensor is a weight in disguise."""
    shapes = {t.name: t for t in graph.initializer}
    shapes |= {n.output[0]: n.attribute[0].t for n in graph.node if is_tensor_constant(n)}
    count = 0
    for node in list(graph.node):
        if node.op_type != "ConstantOfShape" or node.input[0] not in shapes:
            continue
        value = node.attribute[0].t if node.attribute else TensorProto(data_type=TensorProto.FLOAT, float_data=[0.0])
        dims = [int(d) for d in numpy_helper.to_array(shapes[node.input[0]])]
        size = 1
        for d in dims:
            size *= d
        if value.data_type not in FLOAT_TYPES or not 1 < size <= LARGEST_CONSTANT:
            continue
        filler = numpy_helper.to_array(value).reshape(-1)[:1]
        tensor = numpy_helper.from_array(filler.repeat(size).reshape(dims), node.output[0])
        graph.initializer.append(tensor)
        graph.node.remove(node)
        count += 1
    return count


def _separate_statistics(graph: GraphProto) -> int:
    """Give each BatchNormalization a mean and a variance that nothing else reads."""
    tensors = {t.name: t for t in graph.initializer}
    behind: dict[str, str] = {}
    for node in graph.node:
        if node.op_type == "Identity":
            behind[node.output[0]] = behind.get(node.input[0], node.input[0])
    uses: dict[str, int] = {}
    for node in graph.node:
        for value in node.input if node.op_type != "Identity" else ():
            name = behind.get(value, value)
            uses[name] = uses.get(name, 0) + 1
    count = 0
    for node in graph.node:
        if node.op_type != "BatchNormalization":
            continue
        for slot in _STATISTICS:
            name = behind.get(node.input[slot], node.input[slot])
            if name in tensors and (uses[name] > 1 or node.input[slot] in behind):
                private = TensorProto()
                private.CopyFrom(tensors[name])
                private.name = _fresh(f"{node.input[slot]}.{label(node)}.{slot}", tensors)
                tensors[private.name] = private
                graph.initializer.append(private)
                uses[name] -= 1
                node.input[slot] = private.name
                count += 1
    return count


def _fresh(name: str, taken: dict[str, TensorProto]) -> str:
    while name in taken:
        name += "_"
    return name
