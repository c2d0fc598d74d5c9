"""Find the frequencies of positional encodings, which are part of a formula and not learned.

A rotary embedding stores a tensor of frequencies, multiplies positions by it and takes the sine
and cosine. Such a tensor looks like a weight to its reader, but data never meet it. If data
themselves go through a sine, as in a network with periodic activations, the weights before it are
learned.
"""

from collections.abc import Collection

from onnx import GraphProto, NodeProto

from ltp_pipeline.graph.nodes import LOOKUP_OPERATORS, SHAPE_OPERATORS, get_subgraphs, is_standard
from ltp_pipeline.graph.tensors import FLOAT_TYPES, collect_stored_tensors
from ltp_pipeline.graph.view import find_ancestors, find_dependent_values


def find_frequencies(graph: GraphProto) -> set[str]:
    """Return the names of the stored float tensors that only positions meet before a Sin or Cos."""
    waves = [node for node in graph.node if is_standard(node, "Sin", "Cos")]
    if not waves:
        return set()
    tensors = collect_stored_tensors(graph)
    floats = {name for name, tensor in tensors.items() if tensor.data_type in FLOAT_TYPES}
    data = _find_data(graph, floats)
    positions = [node.input[0] for node in waves if node.input[0] not in data]
    return floats & find_ancestors(graph, positions, _find_shape_inputs)


def _find_shape_inputs(node: NodeProto) -> Collection[int]:
    """Return the input slots of which a node reads only the shape."""
    return range(len(node.input)) if is_standard(node, *SHAPE_OPERATORS) else ()


def _find_data(graph: GraphProto, floats: set[str]) -> set[str]:
    """Return the names of the values that depend on a float input or on rows of a table."""
    sources: set[str] = set()
    for value in graph.input:
        if value.type.tensor_type.elem_type in FLOAT_TYPES and value.name not in floats:
            sources.add(value.name)
    for node in graph.node:
        looks_up = is_standard(node, *LOOKUP_OPERATORS) and node.input[0] in floats
        if looks_up or get_subgraphs(node):
            sources.update(node.output)
    return find_dependent_values(graph, sources)
