"""Changes of a graph: its nodes replaced or put in order, names that are free, copies of parts of a message."""

from collections.abc import Collection, Iterable, Sequence
from graphlib import CycleError, TopologicalSorter

from google.protobuf.message import Message  # type: ignore[import-untyped]
from onnx import GraphProto, NodeProto, TensorProto

from ltp_pipeline.graph.nodes import every_graph, subgraphs
from ltp_pipeline.graph.view import outer_reads


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


def put_in_order(graph: GraphProto) -> None:
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
    nested = subgraphs(node)
    return [*node.input, *(name for graph in nested for name in outer_reads(graph))] if nested else node.input


def drop_inputs(graph: GraphProto, names: Collection[str]) -> None:
    """Take graph inputs away by name."""
    kept = [value for value in graph.input if value.name not in names]
    if len(kept) < len(graph.input):
        del graph.input[:]
        graph.input.extend(kept)


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


class Names:
    """The names that are taken in a graph, nested graphs included."""

    def __init__(self, graph: GraphProto) -> None:
        self.taken: set[str] = set()
        for nested in every_graph(graph):
            self.taken.update(t.name for t in nested.initializer)
            self.taken.update(o for node in nested.node for o in node.output)

    def fresh(self, name: str) -> str:
        """A name that nothing has yet: this one, or it with underscores after it. It is taken from now on."""
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name
