"""Changes to a graph: replace or sort its nodes, drop inputs, copy fields, make unique names."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

from google.protobuf.message import Message  # type: ignore[import-untyped]
from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from ltp_pipeline.graph.nodes import collect_names, get_subgraphs, iter_graphs
from ltp_pipeline.graph.view import iter_read_names


def set_nodes(graph: GraphProto, nodes: Iterable[NodeProto]) -> None:
    """Replace the nodes of a graph; the new nodes may be some of the old ones."""
    copy = GraphProto(node=nodes)
    graph.ClearField("node")
    graph.node.MergeFrom(copy.node)


def set_initializers(graph: GraphProto, tensors: Iterable[TensorProto]) -> None:
    """Replace the initializers of a graph; the new tensors may be some of the old ones."""
    copy = GraphProto(initializer=tensors)
    graph.ClearField("initializer")
    graph.initializer.MergeFrom(copy.initializer)


def sort_topologically(graph: GraphProto) -> None:
    """Move each node behind the nodes that it reads from, as the standard requires.

    onnxruntime sorts nodes itself, so that files with another order exist. A graph with a cycle
    stays as it is; onnx's checker reports it.
    """
    producers = {name: i for i, node in enumerate(graph.node) for name in node.output if name}
    dependencies: dict[int, set[int]] = {}
    for i, node in enumerate(graph.node):
        dependencies[i] = {producers[name] for name in _list_reads(node) if name in producers}
    if all(max(sources, default=-1) < i for i, sources in dependencies.items()):
        return
    try:
        order = list(TopologicalSorter(dependencies).static_order())
    except CycleError:
        return
    set_nodes(graph, [graph.node[i] for i in order])


def _list_reads(node: NodeProto) -> list[str]:
    """Return the names of the values that a node and its nested graphs read."""
    reads = list(node.input)
    for nested in get_subgraphs(node):
        reads += iter_read_names(nested)
    return reads


def drop_inputs(graph: GraphProto, names: Collection[str]) -> None:
    """Remove graph inputs by name."""
    remaining = [value for value in graph.input if value.name not in names]
    if len(remaining) < len(graph.input):
        del graph.input[:]
        graph.input.extend(remaining)


def drop_initializers(graph: GraphProto, names: Collection[str]) -> None:
    """Remove initializers by name."""
    set_initializers(graph, [tensor for tensor in graph.initializer if tensor.name not in names])


def rename_inputs(nodes: Iterable[NodeProto], new_names: Mapping[str, str]) -> None:
    """Rename the values that nodes read, in place; other values keep their names."""
    for node in nodes:
        node.input[:] = [new_names.get(name, name) for name in node.input]


def rename_outputs(nodes: Iterable[NodeProto], new_names: Mapping[str, str]) -> None:
    """Rename the values that nodes compute, in place; other values keep their names."""
    for node in nodes:
        node.output[:] = [new_names.get(name, name) for name in node.output]


def raise_ir_version(model: ModelProto, version: int) -> None:
    """Raise a model's IR version if it is lower.

    Below version 4, every initializer is also a graph input, and constant all the same. From 4 on,
    such an input makes the initializer a default that the caller may override. Raising the version
    therefore removes these inputs, so that weights stay constant.
    """
    if model.ir_version < 4 <= version:
        drop_inputs(model.graph, collect_names(model.graph.initializer))
    model.ir_version = max(model.ir_version, version)


def copy_fields(source: Message, target: Message, skip: Collection[str]) -> None:
    """Copy the fields of a protobuf message into another one, except those named in `skip`."""
    # ListFields would fetch the skipped fields too, which may be as large as a model.
    for field in source.DESCRIPTOR.fields:
        name = field.name
        if name in skip:
            continue
        value = getattr(source, name)
        if hasattr(value, "extend"):
            getattr(target, name).extend(value)
        elif source.HasField(name):
            if isinstance(value, Message):
                getattr(target, name).CopyFrom(value)
            else:
                setattr(target, name, value)


class UniqueNames:
    """Names that are taken, and a way to make more that are not.

    A counter for each name keeps this fast when many values want the same one.
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.taken = set(taken)
        self._counts: Counter[str] = Counter()

    @classmethod
    def from_graph(cls, graph: GraphProto) -> "UniqueNames":
        """Take the names of all values of a graph, those of nested graphs included."""
        names = cls(iter_read_names(graph))
        for nested in iter_graphs(graph):
            names.taken |= collect_names((*nested.initializer, *nested.input))
            for node in nested.node:
                names.taken.update(node.output)
        names.taken.discard("")
        return names

    def make_unique(self, name: str) -> str:
        """Take a name and return it, with a number behind it if it was taken before."""
        unique = name
        while unique in self.taken:
            self._counts[name] += 1
            unique = f"{name}_{self._counts[name]}"
        self.taken.add(unique)
        return unique
