"""Looking at a graph without running it; nothing here needs torch."""

from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper

from ltp_pipeline.exporters.tensors import Array, is_constant, to_array

STANDARD_DOMAINS = ("", "ai.onnx")
FLOAT_TYPES = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16})
Constants = Mapping[str, TensorProto | AttributeProto]
LARGEST_CONSTANT = 1 << 28  # elements; a larger tensor made out of a few numbers is an attack or a mistake


def label(node: NodeProto) -> str:
    """How messages call a node: its operator and its name, or its first output where it has no name."""
    return f"{node.op_type} {node.name or next(iter(node.output), '')!r}"


def is_standard(node: NodeProto, *operators: str) -> bool:
    """Whether a node is one of these operators of the standard's own domain."""
    return node.op_type in operators and node.domain in STANDARD_DOMAINS


def standard_opset(model: ModelProto) -> int:
    """Version of the standard operator set that the model imports."""
    return max((o.version for o in model.opset_import if o.domain in STANDARD_DOMAINS), default=1)


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs that a node holds as attributes."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def put_in_order(graph: GraphProto) -> None:
    """Let each node come after those it reads from, as the standard wants; onnxruntime does so itself."""
    made = {name: i for i, node in enumerate(graph.node) for name in node.output if name}
    needs = [{made[name] for name in _reads(node) if name in made} for node in graph.node]
    if all(max(need, default=-1) < i for i, need in enumerate(needs)):
        return
    try:
        order = list(TopologicalSorter(dict(enumerate(needs))).static_order())
    except CycleError:
        return  # which the checker tells
    ordered = GraphProto()
    ordered.node.extend(graph.node[i] for i in order)
    del graph.node[:]
    graph.node.extend(ordered.node)


def _reads(node: NodeProto) -> Iterator[str]:
    yield from node.input
    for nested in subgraphs(node):
        for inner in nested.node:
            yield from _reads(inner)
        yield from (output.name for output in nested.output)


def every_node(graph: GraphProto) -> Iterator[NodeProto]:
    """The nodes of a graph and of everything nested in it."""
    for node in graph.node:
        yield node
        for nested in subgraphs(node):
            yield from every_node(nested)


def constants(graph: GraphProto) -> dict[str, TensorProto | AttributeProto]:
    """What a graph knows without running: initializers, and Constant nodes by their output."""
    known: dict[str, TensorProto | AttributeProto] = {t.name: t for t in graph.initializer}
    for node in graph.node:
        if is_constant(node):
            known[node.output[0]] = next(a.t for a in node.attribute if a.name == "value")
        elif is_standard(node, "Constant") and len(node.attribute) == 1 and node.output:
            known[node.output[0]] = node.attribute[0]
    return known


def small_value(known: Constants, name: str) -> Array | None:
    """The numbers of a constant, or None where there is none of that name or it is no small numeric tensor."""
    found = known.get(name)
    if isinstance(found, AttributeProto):
        value = helper.get_attribute_value(found)
        return np.asarray(value) if found.name in ("value_int", "value_ints", "value_float", "value_floats") else None
    if found is None or found.data_type == TensorProto.STRING or len(found.dims) > 1 or sum(found.dims) > 1 << 12:
        return None
    return to_array(found)


def identities(graph: GraphProto) -> dict[str, str]:
    """For each output of an Identity the value that stands behind the whole chain."""
    behind: dict[str, str] = {}
    for node in graph.node:
        if is_standard(node, "Identity") and node.input and node.output:
            behind[node.output[0]] = behind.get(node.input[0], node.input[0])
    return behind


def outer_reads(graph: GraphProto) -> Iterator[str]:
    """Every name that a graph's nodes and outputs read, nested graphs included."""
    for node in every_node(graph):
        yield from node.input
        for nested in subgraphs(node):
            yield from (o.name for o in nested.output)
    yield from (o.name for o in graph.output)
