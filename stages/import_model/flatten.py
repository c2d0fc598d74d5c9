"""The graph that is walked: local functions inlined, an If whose condition is constant replaced by its branch.

The file itself keeps its functions and branches; tensors have the same names in both, so they are written back by name.
"""

from collections import Counter
from collections.abc import Sequence

from onnx import GraphProto, ModelProto, NodeProto, helper, inliner

from ltp_pipeline.errors import UnsupportedModel
from ltp_pipeline.exporters.tensors import constant_tensor, copy_fields, graphs, is_constant, stored
from ltp_pipeline.stages.import_model.graphs import (
    FLOAT_TYPES,
    Constants,
    constants,
    every_node,
    is_standard,
    small_value,
    standard_opset,
    subgraphs,
)


def flatten(model: ModelProto) -> tuple[ModelProto, list[str]]:
    """The model to walk (itself where nothing has to change) and what was done."""
    notes = []
    if model.functions:
        model = _inlined(model)
        notes.append("local functions are walked as if written out")
    if any(is_standard(n, "If") for n in model.graph.node):
        model, count = _without_constant_ifs(model)
        if count:
            notes.append(f"{count} If nodes with a constant condition are walked as their branch")
    return model, notes


def has_weights_in_functions(model: ModelProto) -> bool:
    """Whether a function holds float tensors of its own; they have no name in the graph to be written back by."""
    nodes = (node for function in model.functions for node in function.node)
    tensors = (constant_tensor(node) for node in nodes if is_constant(node))
    return any(t.data_type in FLOAT_TYPES and sum(t.dims) > len(t.dims) for t in tensors)


def _inlined(model: ModelProto) -> ModelProto:
    """Inline without the weights, which would be copied several times, and put them in again."""
    skeleton = ModelProto()
    copy_fields(model, skeleton, skip={"graph"})
    skeleton.graph.SetInParent()
    copy_fields(model.graph, skeleton.graph, skip={"initializer"})
    opset = standard_opset(model)
    mixed = any(o.version != opset for f in model.functions for o in f.opset_import if o.domain in ("", "ai.onnx"))
    try:
        flat: ModelProto = inliner.inline_local_functions(skeleton, convert_version=mixed)
    except Exception as error:  # noqa: BLE001 - the inliner's C++ errors share no narrower type
        line = (str(error).strip().splitlines() or ["no reason given"])[0]
        raise UnsupportedModel(f"the model's functions cannot be inlined: {line}", "export without functions") from None
    flat.graph.initializer.extend(model.graph.initializer)
    return flat


def _without_constant_ifs(model: ModelProto) -> tuple[ModelProto, int]:
    names = Counter(name for graph in graphs(model.graph) for name in stored(graph))
    copy, count = model, 0
    while True:
        known = constants(copy.graph)
        found = next((i for i, n in enumerate(copy.graph.node) if _branch(n, known, names) is not None), None)
        if found is None:
            return copy, count
        if copy is model:
            copy = ModelProto()
            copy.CopyFrom(model)
            continue
        _replace(copy.graph, found, known, names)
        count += 1


def _branch(node: NodeProto, known: Constants, names: Counter[str]) -> GraphProto | None:
    """The branch that a constant condition takes, unless a tensor in it shares its name with another branch's."""
    if not is_standard(node, "If") or not node.input:
        return None
    value = small_value(known, node.input[0])
    if value is None or value.size != 1:
        return None
    wanted = "then_branch" if bool(value.reshape(-1)[0]) else "else_branch"
    branch: GraphProto | None = next((a.g for a in node.attribute if a.name == wanted), None)
    if branch is None or any(names[name] > 1 for name in stored(branch)):
        return None
    return branch


def _replace(graph: GraphProto, index: int, known: Constants, names: Counter[str]) -> None:
    """Put the nodes of the branch where the If was."""
    node = NodeProto.FromString(graph.node[index].SerializeToString())
    branch = _branch(node, known, names)
    assert branch is not None  # noqa: S101 - the caller has just found it
    kept = set(stored(branch))
    taken = {o for n in every_node(graph) for o in n.output} | {t.name for t in graph.initializer}
    inside = {o for n in branch.node for o in n.output if o and o not in kept}
    prefix = f"{node.name or node.output[0]}/"
    while any(prefix + name in taken for name in inside):
        prefix += "_"
    renamed = {name: prefix + name for name in inside}
    _rename(branch.node, renamed)
    outputs = [renamed.get(o.name, o.name) for o in branch.output]
    joints = [helper.make_node("Identity", [o], [n]) for o, n in zip(outputs, node.output, strict=False) if n]
    rest = [NodeProto.FromString(n.SerializeToString()) for n in graph.node[index + 1 :]]
    del graph.node[index:]
    graph.node.extend([*branch.node, *joints, *rest])
    graph.initializer.extend(branch.initializer)


def _rename(nodes: Sequence[NodeProto], renamed: dict[str, str]) -> None:
    for node in nodes:
        for i, name in enumerate(node.input):
            node.input[i] = renamed.get(name, name)
        for i, name in enumerate(node.output):
            node.output[i] = renamed.get(name, name)
        for nested in subgraphs(node):
            _rename(nested.node, renamed)
            for output in nested.output:
                output.name = renamed.get(output.name, output.name)
