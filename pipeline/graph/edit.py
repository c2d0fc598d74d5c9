"""Changes of a graph: its nodes replaced or put in order, names that are free, copies of parts of a message."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from graphlib import CycleError, TopologicalSorter

from google.protobuf.message import Message  # type: ignore[import-untyped]
from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from ltp_pipeline.graph.nodes import get_subgraphs, iter_graphs
from ltp_pipeline.graph.view import iter_read_names


def set_nodes(graph: GraphProto, nodes: Iterable[NodeProto]) -> None:
    """Replace the nodes of a graph; the new ones may be some of the old ones."""
    held = GraphProto(node=nodes)
    graph.ClearField("node")
    graph.node.MergeFrom(held.node)


def set_initializers(graph: GraphProto, tensors: Iterable[TensorProto]) -> None:
    """Replace the initializers of a graph; the new ones may be some of the old ones."""
    held = GraphProto(initializer=tensors)
    graph.ClearField("initializer")
    graph.initializer.MergeFrom(held.initializer)


def sort_topologically(graph: GraphProto) -> None:
    """Let each node come after those it reads from, as the standard wants; onnxruntime does so itself."""
    made = {name: i for i, node in enumerate(graph.node) for name in node.output if name}
    if all(made.get(name, -1) < i for i, node in enumerate(graph.node) for name in _reads(node)):
        return
    needs = ({made[name] for name in _reads(node) if name in made} for node in graph.node)
    try:
        order = list(TopologicalSorter(dict(enumerate(needs))).static_order())
    except CycleError:
        return  # which the checker tells
    set_nodes(graph, [graph.node[i] for i in order])


def _reads(node: NodeProto) -> Sequence[str]:
    nested = get_subgraphs(node)
    return (
        [*node.input, *(name for graph in nested for name in iter_read_names(graph))]
        if nested
        else node.input
    )


def drop_inputs(graph: GraphProto, names: Collection[str]) -> None:
    """Take graph inputs away by name."""
    kept = [value for value in graph.input if value.name not in names]
    if len(kept) < len(graph.input):
        del graph.input[:]
        graph.input.extend(kept)


def raise_ir_version(model: ModelProto, version: int) -> None:
    """Raise a model's IR version if it is lower.

    Below version 4, every initializer is also a graph input, and constant all the same. From 4 on,
    such an input makes the initializer a default that the caller may override. Raising the version
    therefore removes these inputs, so that weights stay constant.
    """
    if model.ir_version < 4 <= version:
        drop_inputs(model.graph, {tensor.name for tensor in model.graph.initializer})
    model.ir_version = max(model.ir_version, version)


def copy_fields(source: Message, target: Message, skip: Collection[str]) -> None:
    """Copy the fields of a message except some."""
    # ListFields would also fetch, and so copy, what is to be skipped.
    for name in (field.name for field in source.DESCRIPTOR.fields if field.name not in skip):
        value = getattr(source, name)
        if hasattr(value, "extend"):
            getattr(target, name).extend(value)
        elif source.HasField(name):
            if isinstance(value, Message):
                getattr(target, name).CopyFrom(value)
            else:
                setattr(target, name, value)


class UniqueNames:
    """Names that are taken; many of one name cost a try each."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.taken = set(taken)
        self._tries: Counter[str] = Counter()

    @classmethod
    def from_graph(cls, graph: GraphProto) -> "UniqueNames":
        """The names of all values of a graph, nested graphs included."""
        names = cls(iter_read_names(graph))
        for nested in iter_graphs(graph):
            names.taken.update(value.name for value in (*nested.initializer, *nested.input))
            names.taken.update(output for node in nested.node for output in node.output)
        names.taken.discard("")
        return names

    def make_unique(self, name: str) -> str:
        """A name that nothing has yet: this one, or it with a number after it. It is taken from now on."""
        free = name
        while free in self.taken:
            self._tries[name] += 1
            free = f"{name}_{self._tries[name]}"
        self.taken.add(free)
        return free
