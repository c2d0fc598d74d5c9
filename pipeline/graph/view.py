"""Who produces and who uses the values of a graph.

Each function here goes through the graph once. What asks about many values makes a `View` and looks them up in it.
"""

from collections import ChainMap, Counter, defaultdict
from collections.abc import Iterator, MutableMapping, Sequence
from functools import cached_property
from typing import NamedTuple

from onnx import GraphProto, NodeProto

from ltp_pipeline.graph.nodes import get_subgraphs, is_standard, iter_nodes


class ValueUse(NamedTuple):
    """A node that reads a value, and in which of its inputs."""

    node: NodeProto
    slot: int


class GraphView:
    """Producers and users of the values of one graph, looked up in maps that are made once.

    Nodes of nested graphs count as users. The view does not follow later changes of the graph.
    """

    def __init__(self, graph: GraphProto) -> None:
        self.graph = graph

    @cached_property
    def producers(self) -> dict[str, NodeProto]:
        """The node of this graph that makes each value; inputs and initializers have none."""
        return {name: node for node in self.graph.node for name in node.output if name}

    @cached_property
    def consumers(self) -> dict[str, list[ValueUse]]:
        """The nodes that read each value, in order; a value that nobody reads is not there."""
        found: dict[str, list[ValueUse]] = defaultdict(list)
        for node, slot, name in iter_uses(self.graph, through=()):
            found[name].append(ValueUse(node, slot))
        return dict(found)

    @cached_property
    def identity_sources(self) -> dict[str, str]:
        """For each output of an Identity the value that it stands for."""
        return find_identity_sources(self.graph)

    @cached_property
    def read_counts(self) -> Counter[str]:
        """How often each value is read, by nodes and as an output of a graph."""
        return Counter(iter_read_names(self.graph))


def iter_uses(
    graph: GraphProto,
    through: Sequence[str] = ("Identity",),
    outputs: bool = False,
    known: MutableMapping[str, str] | None = None,
) -> Iterator[tuple[NodeProto, int, str]]:
    """Each (node, input slot, name of the value) of a graph and its subgraphs.

    The operators in `through` pass their first input on: what reads one of their outputs reads that input. With
    `outputs`, what a graph puts out counts as read too, by a node of the kind "output". `known` is for nested graphs.
    """
    known = {} if known is None else known
    for node in graph.node:
        passes = is_standard(node, *through) and bool(node.output)
        for slot, value in enumerate(node.input):
            name = known.get(value, value)
            if passes and slot == 0:
                known.update((output, name) for output in node.output if output)
            else:
                yield node, slot, name
        for nested in get_subgraphs(node):
            yield from iter_uses(nested, through, outputs, ChainMap({}, known))
    for output in graph.output if outputs else ():
        yield NodeProto(op_type="output", name=output.name), 0, known.get(output.name, output.name)


def find_identity_sources(graph: GraphProto) -> dict[str, str]:
    """For each output of an Identity the value that stands behind the whole chain."""
    behind: dict[str, str] = {}
    for node in graph.node:
        if is_standard(node, "Identity") and node.input and node.output:
            behind[node.output[0]] = behind.get(node.input[0], node.input[0])
    return behind


def iter_read_names(graph: GraphProto) -> Iterator[str]:
    """Every name that a graph's nodes and outputs read, nested graphs included."""
    for node in iter_nodes(graph):
        yield from node.input
        for nested in get_subgraphs(node):
            yield from (o.name for o in nested.output)
    yield from (o.name for o in graph.output)
