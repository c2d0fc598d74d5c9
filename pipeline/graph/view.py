"""Producers and consumers of the values of a graph.

The functions read the graph once. Code that looks up many values makes a `GraphView`, which reads
it once for all of them.
"""

from collections import ChainMap, Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from onnx import GraphProto, NodeProto

from ltp_pipeline.graph.nodes import (
    SHAPE_OPERATORS,
    collect_names,
    get_subgraphs,
    is_standard,
    iter_nodes,
)


class ValueUse(NamedTuple):
    """A node that reads a value, and in which of its input slots."""

    node: NodeProto
    slot: int


@dataclass(eq=False)
class GraphView:
    """Producers and consumers of the values of one graph.

    Nodes of nested graphs count as consumers. Each map is computed when it is first used; none
    follows later changes of the graph.
    """

    graph: GraphProto

    @cached_property
    def producers(self) -> dict[str, NodeProto]:
        """Node of this graph that computes each value; inputs and initializers have none."""
        return {name: node for node in self.graph.node for name in node.output if name}

    @cached_property
    def consumers(self) -> dict[str, list[ValueUse]]:
        """Nodes that read each value, in order; values that no node reads are missing."""
        consumers: dict[str, list[ValueUse]] = defaultdict(list)
        for node, slot, name in iter_uses(self.graph, through=()):
            consumers[name].append(ValueUse(node, slot))
        return dict(consumers)

    @cached_property
    def read_counts(self) -> Counter[str]:
        """How often each value is read, by nodes or as an output of a graph."""
        return Counter(iter_read_names(self.graph))


def iter_uses(
    graph: GraphProto,
    through: Sequence[str] = ("Identity",),
    outputs: bool = False,
    sources: MutableMapping[str, str] | None = None,
) -> Iterator[tuple[NodeProto, int, str]]:
    """Yield every use of a value in a graph and the graphs nested in it.

    Args:
        graph: The graph.
        through: Operators to look through: what reads one of their outputs counts as reading
            their first input.
        outputs: If True, outputs of a graph count as read by a node of the operator "output".
        sources: Values behind the outputs that were looked through; for nested graphs only.

    Yields:
        The node, its input slot, and the name of the value.
    """
    if sources is None:
        sources = {}
    for node in graph.node:
        is_passed = is_standard(node, *through) and bool(node.output)
        for slot, value in enumerate(node.input):
            name = sources.get(value, value)
            if is_passed and slot == 0:
                sources.update((output, name) for output in node.output if output)
            else:
                yield node, slot, name
        for nested in get_subgraphs(node):
            yield from iter_uses(nested, through, outputs, ChainMap({}, sources))
    if not outputs:
        return
    for output in graph.output:
        name = sources.get(output.name, output.name)
        yield NodeProto(op_type="output", name=output.name), 0, name


def find_identity_sources(graph: GraphProto) -> dict[str, str]:
    """Return, for each output of an Identity, the value behind the whole chain of them."""
    sources: dict[str, str] = {}
    for node in graph.node:
        if is_standard(node, "Identity") and node.input and node.output:
            sources[node.output[0]] = sources.get(node.input[0], node.input[0])
    return sources


def find_ancestors(
    graph: GraphProto,
    outputs: Iterable[str],
    find_ignored_slots: Callable[[NodeProto], Collection[int]] | None = None,
) -> set[str]:
    """Return the names of all values that these outputs depend on, the outputs included.

    Args:
        graph: The graph, its nodes in topological order.
        outputs: Names of values of the graph.
        find_ignored_slots: Returns the input slots of a node that do not count as dependencies.
    """
    names = set(outputs)
    for node in reversed(graph.node):
        if names.isdisjoint(node.output):
            continue
        ignored_slots: Collection[int] = ()
        if find_ignored_slots:
            ignored_slots = find_ignored_slots(node)
        for slot, name in enumerate(node.input):
            if name and slot not in ignored_slots:
                names.add(name)
        for nested in get_subgraphs(node):
            nested_outputs = collect_names(nested.output)
            names |= find_ancestors(nested, nested_outputs, find_ignored_slots)
    return names


def find_dependent_values(graph: GraphProto, sources: Iterable[str]) -> set[str]:
    """Return the names of the values that depend on others, those of nested graphs too.

    Values that only depend on the shape of another are not among them.

    Args:
        graph: The graph, its nodes in topological order.
        sources: Names of the other values, which are returned too.
    """
    names = set(sources)
    _add_dependent_values(graph, names)
    return names


def _add_dependent_values(graph: GraphProto, names: set[str]) -> None:
    for node in graph.node:
        depends = not names.isdisjoint(node.input)
        for nested in get_subgraphs(node):
            _add_nested_values(node, nested, names)
            depends = depends or any(output.name in names for output in nested.output)
        if depends and not is_standard(node, *SHAPE_OPERATORS):
            names.update(name for name in node.output if name)


def _add_nested_values(node: NodeProto, nested: GraphProto, names: set[str]) -> None:
    """Add the dependent values of a graph that a node holds."""
    passed = list(node.input)[-len(nested.input) :]
    carried: list[str] = []
    if is_standard(node, "Loop"):
        passed = ["", "", *node.input[2:]]  # round and condition come from the loop
        # The outputs of a round are the inputs of the next one.
        carried = ["", "", *(output.name for output in list(nested.output)[1:])]
    size = -1
    while len(names) > size:
        size = len(names)
        for sources in (passed, carried):
            for inner, source in zip(nested.input, sources, strict=False):
                if source in names:
                    names.add(inner.name)
        _add_dependent_values(nested, names)
        if not carried:
            return


def iter_read_names(graph: GraphProto) -> Iterator[str]:
    """Yield the name of a value for every time that a node or an output of a graph reads it.

    Nested graphs are included.
    """
    for node in iter_nodes(graph):
        yield from node.input
        for nested in get_subgraphs(node):
            yield from (output.name for output in nested.output)
    yield from (output.name for output in graph.output)
