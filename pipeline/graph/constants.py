"""Values of a graph that are known without running it.

Initializers and Constant nodes are known; everything else depends on the inputs or has to be
computed. Rewrites and checks read small integers from here, such as shapes, axes and conditions.
Floats count as weights, so their values are not looked at.
"""

from collections.abc import Mapping

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, helper

from ltp_pipeline.graph.nodes import is_standard
from ltp_pipeline.graph.tensors import FLOAT_TYPES, get_constant_tensor, to_array
from ltp_pipeline.system.arrays import Array

Constants = Mapping[str, TensorProto | AttributeProto]

_NUMBER_ATTRIBUTES = ("value_int", "value_ints", "value_float", "value_floats")
_OTHER_TYPES = (TensorProto.STRING, TensorProto.COMPLEX64, TensorProto.COMPLEX128)
_MAX_ELEMENTS = 1 << 12


def collect_constants(graph: GraphProto) -> dict[str, TensorProto | AttributeProto]:
    """Return the initializers of a graph and the values of its Constant nodes, by name."""
    constants: dict[str, TensorProto | AttributeProto] = {t.name: t for t in graph.initializer}
    for node in graph.node:
        value = get_node_constant(node)
        if value is not None:
            constants[node.output[0]] = value
    return constants


def get_node_constant(node: NodeProto) -> TensorProto | AttributeProto | None:
    """Return what a Constant node holds: a tensor or an attribute; None for any other node."""
    tensor = get_constant_tensor(node)
    if tensor is not None:
        return tensor
    if not is_standard(node, "Constant") or len(node.attribute) != 1 or not node.output:
        return None
    attribute: AttributeProto = node.attribute[0]
    return attribute


def get_small_value(constants: Constants, name: str) -> Array | None:
    """Return the numbers of a small constant.

    Returns:
        The numbers, or None if there is no constant of this name, or it is a large tensor, a
        tensor of more than one axis, or one of floats.
    """
    constant = constants.get(name)
    if constant is None:
        return None
    if isinstance(constant, AttributeProto):
        if constant.name not in _NUMBER_ATTRIBUTES:
            return None
        return np.asarray(helper.get_attribute_value(constant))
    is_small = len(constant.dims) <= 1 and sum(constant.dims) <= _MAX_ELEMENTS
    if not is_small or constant.data_type in (*FLOAT_TYPES, *_OTHER_TYPES):
        return None
    return to_array(constant)
