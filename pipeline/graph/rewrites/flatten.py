"""Flatten a graph: inline local functions, and replace an If by the branch that it always takes.

torch executes the flat graph, while the file keeps its functions and branches. Tensors have the
same names in both, so trained values can be written back by name. Values that only exist in a
branch get new names, because two copies of a branch may define the same ones.
"""

from collections import ChainMap, Counter
from collections.abc import Sequence
from dataclasses import replace

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, inliner

from ltp_pipeline.errors import UnsupportedModel, summarize_error
from ltp_pipeline.graph.constants import (
    Constants,
    collect_constants,
    get_node_constant,
    get_small_value,
)
from ltp_pipeline.graph.edit import UniqueNames, copy_fields, rename_inputs, rename_outputs
from ltp_pipeline.graph.model import OnnxModel, separate_weights
from ltp_pipeline.graph.nodes import get_subgraphs, is_standard, iter_graphs
from ltp_pipeline.graph.schemas import get_standard_opset
from ltp_pipeline.graph.tensors import (
    FLOAT_TYPES,
    collect_stored_tensors,
    get_constant_tensor,
)

NewNames = ChainMap[str, str]  # new names of values; those of each If lie within the outer ones


def flatten_model(model: OnnxModel) -> tuple[OnnxModel, list[str]]:
    """Return the flat form of a model and notes about what was done.

    A model without functions and constant conditions is returned as it is.

    Raises:
        UnsupportedModel: If onnx cannot inline the functions.
    """
    notes: list[str] = []
    if model.proto.functions:
        model = separate_weights(_inline_functions(model.proto), model.weights)
        notes.append("local functions are executed as if they were inlined")
    if any(is_standard(node, "If") for node in model.graph.node):
        proto, count = _replace_constant_ifs(model.proto)
        if count:
            model = replace(model, proto=proto)
            notes.append(f"{count} If nodes with a constant condition are executed as their branch")
    return model, notes


def has_weights_in_functions(model: ModelProto) -> bool:
    """Return True if a function stores float tensors of its own.

    Such tensors have no name in the graph by which values could be written back.
    """
    for function in model.functions:
        for node in function.node:
            tensor = get_constant_tensor(node)
            if tensor is None or tensor.data_type not in FLOAT_TYPES:
                continue
            if sum(tensor.dims) > len(tensor.dims):
                return True
    return False


def _inline_functions(model: ModelProto) -> ModelProto:
    opset = get_standard_opset(model)
    is_mixed = any(get_standard_opset(function, opset) != opset for function in model.functions)
    try:
        flat: ModelProto = inliner.inline_local_functions(model, convert_version=is_mixed)
    except Exception as error:  # noqa: BLE001 - the inliner's C++ errors share no narrower type
        raise UnsupportedModel(
            f"the model's functions cannot be inlined: {summarize_error(error)}",
            "export the model without functions",
        ) from None
    return flat


def _replace_constant_ifs(model: ModelProto) -> tuple[ModelProto, int]:
    """Return a copy of a model without the Ifs that always take the same branch.

    The graph is read once. Each node is paired with the new names that hold where it stands, and
    is copied at the end, when all names are known.

    Returns:
        The copy and the number of Ifs that were replaced; the model itself if there are none.
    """
    graphs = iter_graphs(model.graph)
    name_counts = Counter(name for graph in graphs for name in collect_stored_tensors(graph))
    constants = collect_constants(model.graph)
    used_names = UniqueNames.from_graph(model.graph)
    flat_nodes: list[tuple[NodeProto, NewNames]] = []
    tensors: list[TensorProto] = []
    count = 0
    no_names: NewNames = ChainMap()
    waiting = [(node, no_names) for node in reversed(model.graph.node)]
    while waiting:
        node, names = waiting.pop()
        branch = None
        if is_standard(node, "If"):
            branch = _find_branch(node, constants, name_counts, names)
        if branch is None:
            value = get_node_constant(node)
            if value is not None:
                constants[names.get(node.output[0], node.output[0])] = value
            flat_nodes.append((node, names))
            continue
        inner_names = names.new_child(_name_branch_values(node, branch, used_names, names))
        connections = _connect_outputs(node, branch, names, inner_names)
        waiting += [(connection, no_names) for connection in reversed(connections)]
        waiting += [(inner, inner_names) for inner in reversed(branch.node)]
        constants |= {tensor.name: tensor for tensor in branch.initializer}
        tensors.extend(branch.initializer)
        count += 1
    if not count:
        return model, 0
    flat = ModelProto()
    copy_fields(model, flat, skip={"graph"})
    flat.graph.SetInParent()
    copy_fields(model.graph, flat.graph, skip={"node"})
    for node, names in flat_nodes:
        copy = flat.graph.node.add()
        copy.CopyFrom(node)
        if names:
            _rename_values([copy], names)
    flat.graph.initializer.extend(tensors)
    return flat, count


def _find_branch(
    node: NodeProto, constants: Constants, name_counts: Counter[str], names: NewNames
) -> GraphProto | None:
    """Return the branch that an If always takes.

    Args:
        node: The If.
        constants: Constants by their new names.
        name_counts: Number of stored tensors by name, all branches included.
        names: New names of values where the If stands.

    Returns:
        The branch, or None if the condition is not constant or a tensor of the branch shares its
        name with one of another branch.
    """
    condition = get_small_value(constants, names.get(node.input[0], node.input[0]))
    if condition is None or condition.size != 1:
        return None
    branch_name = "then_branch" if condition.all() else "else_branch"
    branch: GraphProto = next(a.g for a in node.attribute if a.name == branch_name)
    if any(name_counts[name] > 1 for name in collect_stored_tensors(branch)):
        return None
    return branch


def _name_branch_values(
    node: NodeProto, branch: GraphProto, used_names: UniqueNames, names: NewNames
) -> dict[str, str]:
    """Return new names, prefixed with that of the If, for what the nodes of a branch compute."""
    stored = set(collect_stored_tensors(branch))
    values = {name for inner in branch.node for name in inner.output if name not in stored}
    prefix = node.name or names.get(node.output[0], node.output[0])
    return {name: used_names.make_unique(f"{prefix}/{name}") for name in sorted(values - {""})}


def _connect_outputs(
    node: NodeProto, branch: GraphProto, names: NewNames, inner_names: NewNames
) -> list[NodeProto]:
    """Return an Identity for each output of an If, which reads that of the branch."""
    connections: list[NodeProto] = []
    for inner, outer in zip(branch.output, node.output, strict=False):
        if outer:
            source = inner_names.get(inner.name, inner.name)
            connections.append(helper.make_node("Identity", [source], [names.get(outer, outer)]))
    return connections


def _rename_values(nodes: Sequence[NodeProto], names: NewNames) -> None:
    """Replace the names of values in nodes and in the graphs nested in them."""
    rename_inputs(nodes, names)
    rename_outputs(nodes, names)
    for node in nodes:
        for nested in get_subgraphs(node):
            _rename_values(nested.node, names)
            for output in nested.output:
                output.name = names.get(output.name, output.name)
