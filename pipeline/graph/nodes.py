"""Single nodes: their operator, their attributes, the graphs nested in them, and what messages call them."""

from collections.abc import Iterator, Sequence
from typing import Any

from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, helper

_GRAPH, _GRAPHS = int(AttributeProto.GRAPH), int(AttributeProto.GRAPHS)
STANDARD_DOMAINS = ("", "ai.onnx")  # two spellings of one domain


def normalize_domain(domain: str) -> str:
    """The domain with both spellings of the standard one made equal."""
    return "" if domain in STANDARD_DOMAINS else domain


def is_standard(node: NodeProto, *operators: str) -> bool:
    """Whether a node is one of these operators of the standard domain."""
    return node.op_type in operators and node.domain in STANDARD_DOMAINS


def format_node(node: NodeProto) -> str:
    """How messages call a node: its operator and its name, or its first output where it has no name."""
    return f"{node.op_type} {node.name or next(iter(node.output), '')!r}"


def get_attribute(node: NodeProto, name: str, default: Any = None) -> Any:
    """The value of a node's attribute as onnx gives it, or the default where the node has none of that name."""
    for candidate in node.attribute:
        if candidate.name == name:
            return helper.get_attribute_value(candidate)
    return default


def get_subgraphs(node: NodeProto) -> Sequence[GraphProto]:
    """The graphs that a node holds as attributes."""
    attributes = node.attribute
    if not attributes:
        return ()
    found: list[GraphProto] = []
    for a in attributes:  # one loop, because every pass over a graph asks this of every node
        if a.type == _GRAPH or a.HasField("g"):
            found.append(a.g)
        elif a.type == _GRAPHS or a.graphs:
            found += a.graphs
    return found


def iter_graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """A graph and every graph nested in its nodes."""
    yield graph
    for node in graph.node:
        for nested in get_subgraphs(node):
            yield from iter_graphs(nested)


def iter_nodes(graph: GraphProto | FunctionProto) -> Iterator[NodeProto]:
    """The nodes of a graph or function, and of everything nested in it."""
    for node in graph.node:
        yield node
        for nested in get_subgraphs(node):
            yield from iter_nodes(nested)
