"""Tensors that positions are multiplied by on their way to a sine or cosine: part of a formula, nothing learned.

A rotary embedding stores its frequencies and computes the angles of each position. Where the data themselves go through
a sine, as in a network with periodic activations, the weights before it are learned.
"""

from onnx import GraphProto, NodeProto

from ltp_pipeline.graph.nodes import LOOKUP_OPERATORS, SHAPE_OPERATORS, get_subgraphs, is_standard
from ltp_pipeline.graph.tensors import FLOAT_TYPES, collect_stored_tensors
from ltp_pipeline.graph.view import GraphView


def find_frequencies(graph: GraphProto) -> set[str]:
    """Names of the float tensors that only positions, not data, meet before a Sin or Cos."""
    waves = [node for node in graph.node if is_standard(node, "Sin", "Cos")]
    if not waves:
        return set()
    floats = {
        name
        for name, tensor in collect_stored_tensors(graph).items()
        if tensor.data_type in FLOAT_TYPES
    }
    data = _data(graph, floats)
    producers = GraphView(graph).producers
    waiting = [node.input[0] for node in waves if node.input[0] not in data]
    found, seen = set[str](), set[str]()
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            found.update({name} & floats)
            waiting.extend(producers[name].input if name in producers else ())
    return found


def _data(graph: GraphProto, floats: set[str]) -> set[str]:
    """Values that depend on a float input or on rows of a table."""
    inputs = (
        i
        for i in graph.input
        if i.type.tensor_type.elem_type in FLOAT_TYPES and i.name not in floats
    )
    data = {i.name for i in inputs}
    for node in graph.node:
        if not is_standard(node, *SHAPE_OPERATORS) and (
            data.intersection(node.input) or _makes_data(node, floats)
        ):
            data.update(node.output)
    return data


def _makes_data(node: NodeProto, floats: set[str]) -> bool:
    looks_up = is_standard(node, *LOOKUP_OPERATORS) and node.input[0] in floats
    return looks_up or bool(get_subgraphs(node))
