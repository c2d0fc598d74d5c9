"""The graph that is walked: local functions inlined, an If whose condition is constant replaced by its branch.

The file itself keeps its functions and branches; tensors have the same names in both, so they are written back by name.
"""

from collections import ChainMap, Counter
from dataclasses import replace

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, inliner

from ltp_pipeline.errors import UnsupportedModel
from ltp_pipeline.graph.constants import (
    Constants,
    collect_constants,
    get_node_constant,
    get_small_value,
)
from ltp_pipeline.graph.edit import UniqueNames, copy_fields
from ltp_pipeline.graph.model import OnnxModel, separate_weights
from ltp_pipeline.graph.nodes import get_subgraphs, is_standard, iter_graphs
from ltp_pipeline.graph.schemas import get_opset, get_standard_opset
from ltp_pipeline.graph.tensors import (
    FLOAT_TYPES,
    collect_stored_tensors,
    get_constant_tensor,
    has_constant_tensor,
)

Renamed = ChainMap[str, str]  # new names of values, those of each If within the other's


def flatten_model(model: OnnxModel) -> tuple[OnnxModel, list[str]]:
    """The model to walk (itself where nothing has to change) and what was done."""
    notes = []
    if model.proto.functions:
        model = separate_weights(_inlined(model.proto), model.weights)
        notes.append("local functions are walked as if written out")
    if any(is_standard(n, "If") for n in model.graph.node):
        flat, count = _without_constant_ifs(model.proto)
        if count:
            model = replace(model, proto=flat)
            notes.append(f"{count} If nodes with a constant condition are walked as their branch")
    return model, notes


def has_weights_in_functions(model: ModelProto) -> bool:
    """Whether a function holds float tensors of its own; they have no name in the graph to be written back by."""
    nodes = (node for function in model.functions for node in function.node)
    tensors = (get_constant_tensor(node) for node in nodes if has_constant_tensor(node))
    return any(t.data_type in FLOAT_TYPES and sum(t.dims) > len(t.dims) for t in tensors)


def _inlined(model: ModelProto) -> ModelProto:
    opset = get_standard_opset(model)
    mixed = any(get_opset(function, "", opset) != opset for function in model.functions)
    try:
        flat: ModelProto = inliner.inline_local_functions(model, convert_version=mixed)
    except Exception as error:  # noqa: BLE001 - the inliner's C++ errors share no narrower type
        line = (str(error).strip().splitlines() or ["no reason given"])[0]
        raise UnsupportedModel(
            f"the model's functions cannot be inlined: {line}", "export without functions"
        ) from None
    return flat


def _without_constant_ifs(model: ModelProto) -> tuple[ModelProto, int]:
    """A copy in which the nodes of the branch stand where such an If was, and how many there were; one pass.

    Nodes are copied once, when it is known which there are and what their values are called.
    """
    shared = Counter(
        name for graph in iter_graphs(model.graph) for name in collect_stored_tensors(graph)
    )
    known, names = collect_constants(model.graph), UniqueNames.from_graph(model.graph)
    nodes: list[tuple[NodeProto, Renamed]] = []
    weights: list[TensorProto] = []
    count = 0
    nothing: Renamed = ChainMap()
    ahead = [(node, nothing) for node in reversed(model.graph.node)]
    while ahead:
        node, renamed = ahead.pop()
        branch = _branch(node, known, shared, renamed) if is_standard(node, "If") else None
        if branch is None:
            if (value := get_node_constant(node)) is not None:
                known[renamed.get(node.output[0], node.output[0])] = value
            nodes.append((node, renamed))
            continue
        inner = renamed.new_child(_made_in(node, branch, names, renamed))
        ahead += [(joint, nothing) for joint in reversed(_joints(node, branch, renamed, inner))]
        ahead += [(one, inner) for one in reversed(branch.node)]
        known |= {t.name: t for t in branch.initializer}
        weights.extend(branch.initializer)
        count += 1
    if not count:
        return model, 0
    flat = ModelProto()
    copy_fields(model, flat, skip={"graph"})
    flat.graph.SetInParent()
    copy_fields(model.graph, flat.graph, skip={"node"})
    for node, renamed in nodes:
        copy = flat.graph.node.add()
        copy.CopyFrom(node)
        if renamed:
            _rename(copy, renamed)
    flat.graph.initializer.extend(weights)
    return flat, count


def _branch(
    node: NodeProto, known: Constants, shared: Counter[str], renamed: Renamed
) -> GraphProto | None:
    """The branch that a constant condition takes, unless a tensor in it shares its name with another branch's."""
    value = (
        get_small_value(known, renamed.get(node.input[0], node.input[0])) if node.input else None
    )
    if value is None or value.size != 1:
        return None
    wanted = "then_branch" if bool(value.reshape(-1)[0]) else "else_branch"
    branch: GraphProto | None = next((a.g for a in node.attribute if a.name == wanted), None)
    if branch is None or any(shared[name] > 1 for name in collect_stored_tensors(branch)):
        return None
    return branch


def _made_in(
    node: NodeProto, branch: GraphProto, names: UniqueNames, renamed: Renamed
) -> dict[str, str]:
    """New names, after the If, of what the nodes of its branch make."""
    kept = set(collect_stored_tensors(branch))
    inside = {o for n in branch.node for o in n.output if o and o not in kept}
    first = next(iter(node.output), "If")
    prefix = node.name or renamed.get(first, first)
    return {name: names.make_unique(f"{prefix}/{name}") for name in sorted(inside)}


def _joints(
    node: NodeProto, branch: GraphProto, renamed: Renamed, inner: Renamed
) -> list[NodeProto]:
    """An Identity for each output of an If, from that of its branch."""
    pairs = zip((inner.get(o.name, o.name) for o in branch.output), node.output, strict=False)
    return [helper.make_node("Identity", [o], [renamed.get(n, n)]) for o, n in pairs if n]


def _rename(node: NodeProto, renamed: Renamed) -> None:
    for i, name in enumerate(node.input):
        node.input[i] = renamed.get(name, name)
    for i, name in enumerate(node.output):
        node.output[i] = renamed.get(name, name)
    for nested in get_subgraphs(node):
        for one in nested.node:
            _rename(one, renamed)
        for output in nested.output:
            output.name = renamed.get(output.name, output.name)
