"""Single nodes of a graph: operator, attributes, nested graphs, and their name in messages."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, helper

STANDARD_DOMAINS = ("", "ai.onnx")  # two spellings of one domain
# Operators that pass on every element of their first input unchanged, at most in another shape,
# order or type.
VIEW_OPERATORS = (
    "Identity",
    "Transpose",
    "Reshape",
    "Cast",
    "Squeeze",
    "Unsqueeze",
    "Flatten",
)
# Operators that pass on some elements of their first input.
PART_OPERATORS = ("Split", "Slice")
LOOKUP_OPERATORS = ("Gather", "GatherElements", "GatherND")
# Operators whose outputs depend on the shape of their input, not on its values.
SHAPE_OPERATORS = ("Shape", "Size", "SequenceLength", "OptionalHasElement")

_MAX_NAMED_NODES = 4  # nodes that a message lists
_GRAPH = int(AttributeProto.GRAPH)
_GRAPHS = int(AttributeProto.GRAPHS)


def normalize_domain(domain: str) -> str:
    """Return the domain with both spellings of the standard one replaced by ""."""
    return "" if domain in STANDARD_DOMAINS else domain


def is_standard(node: NodeProto, *operators: str) -> bool:
    """Return True if a node is one of these operators of the standard domain."""
    return node.op_type in operators and node.domain in STANDARD_DOMAINS


def format_node(node: NodeProto) -> str:
    """Return a node's operator and name for messages; an unnamed node goes by its first output."""
    return f"{node.op_type} {node.name or next(iter(node.output), '')!r}"


def format_nodes(nodes: Iterable[NodeProto]) -> str:
    """Return operators and names of several nodes for messages, at most four of them."""
    names = list(dict.fromkeys(map(format_node, nodes)))
    text = ", ".join(names[:_MAX_NAMED_NODES])
    if len(names) > _MAX_NAMED_NODES:
        text += f" and {len(names) - _MAX_NAMED_NODES} more"
    return text


def get_attribute(node: NodeProto, name: str, default: Any = None) -> Any:
    """Return the value of an attribute as onnx gives it, or the default if the node has none."""
    for attribute in node.attribute:
        if attribute.name == name:
            return helper.get_attribute_value(attribute)
    return default


def get_attributes(node: NodeProto) -> dict[str, Any]:
    """Return the values of all attributes of a node by name, as onnx gives them."""
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}


def collect_names(messages: Iterable[Any]) -> set[str]:
    """Return the names of nodes, values or tensors."""
    return {message.name for message in messages}


def get_subgraphs(node: NodeProto) -> Sequence[GraphProto]:
    """Return the graphs that a node holds as attributes, such as the branches of an If."""
    attributes = node.attribute
    if not attributes:
        return ()
    graphs: list[GraphProto] = []
    # One plain loop, because every pass over a graph calls this for every node.
    for attribute in attributes:
        if attribute.type == _GRAPH or attribute.HasField("g"):
            graphs.append(attribute.g)
        elif attribute.type == _GRAPHS or attribute.graphs:
            graphs += attribute.graphs
    return graphs


def iter_graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """Yield a graph and every graph nested in its nodes."""
    yield graph
    for node in graph.node:
        for nested in get_subgraphs(node):
            yield from iter_graphs(nested)


def iter_nodes(graph: GraphProto | FunctionProto) -> Iterator[NodeProto]:
    """Yield the nodes of a graph or function, those of nested graphs included."""
    for node in graph.node:
        yield node
        for nested in get_subgraphs(node):
            yield from iter_nodes(nested)
