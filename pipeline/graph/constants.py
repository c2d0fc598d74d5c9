"""Values that a graph knows without running."""

from collections.abc import Mapping

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, helper

from ltp_pipeline.graph.nodes import is_standard
from ltp_pipeline.graph.tensors import (
    FLOAT_TYPES,
    get_constant_tensor,
    has_constant_tensor,
    to_array,
)
from ltp_pipeline.system.arrays import Array

Constants = Mapping[str, TensorProto | AttributeProto]
_NUMBERS = ("value_int", "value_ints", "value_float", "value_floats")
# Floats are weights, whose values are not in the graph.
_NO_INTEGERS = (*FLOAT_TYPES, TensorProto.STRING, TensorProto.COMPLEX64, TensorProto.COMPLEX128)
_SMALL = 1 << 12  # elements


def collect_constants(graph: GraphProto) -> dict[str, TensorProto | AttributeProto]:
    """What a graph knows without running: initializers, and Constant nodes by their output."""
    known: dict[str, TensorProto | AttributeProto] = {t.name: t for t in graph.initializer}
    for node in graph.node:
        value = get_node_constant(node)
        if value is not None:
            known[node.output[0]] = value
    return known


def get_node_constant(node: NodeProto) -> TensorProto | AttributeProto | None:
    """What a Constant node holds; None for every other node."""
    if not is_standard(node, "Constant"):
        return None
    if has_constant_tensor(node):
        return get_constant_tensor(node)
    return node.attribute[0] if len(node.attribute) == 1 and node.output else None


def get_small_value(constants: Constants, name: str) -> Array | None:
    """The numbers of a constant, or None where there is none of that name or it is no small tensor of integers."""
    found = constants.get(name)
    if isinstance(found, AttributeProto):
        return np.asarray(helper.get_attribute_value(found)) if found.name in _NUMBERS else None
    if (
        found is None
        or found.data_type in _NO_INTEGERS
        or len(found.dims) > 1
        or sum(found.dims) > _SMALL
    ):
        return None
    return to_array(found)
