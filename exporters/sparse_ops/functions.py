"""The sparse operators as functions of standard operators.

A file has them as model-local functions. onnxruntime calls the library if it is registered, and
inlines the functions otherwise. source/ops.cpp describes the operators.
"""

from collections.abc import Mapping
from typing import NamedTuple

from onnx import AttributeProto, FunctionProto, NodeProto, helper

DOMAIN = "ltp.kernels"
VERSION = 1
IR_VERSION = 8  # first with functions

ACTIVATIONS = ("", "Relu", "Clip")
CLIP_INPUT_OPSET = 11  # first in which the limits of Clip are inputs
CONSTANT_FLOAT_OPSET = 12  # first in which Constant takes a single float

_AttributeTypes = Mapping[str, AttributeProto.AttributeType]
_CONV: _AttributeTypes = {
    "auto_pad": AttributeProto.STRING,
    "dilations": AttributeProto.INTS,
    "group": AttributeProto.INT,
    "kernel_shape": AttributeProto.INTS,
    "pads": AttributeProto.INTS,
    "strides": AttributeProto.INTS,
}
_GEMM: _AttributeTypes = {
    "alpha": AttributeProto.FLOAT,
    "beta": AttributeProto.FLOAT,
    "transB": AttributeProto.INT,
}
_CLIP: _AttributeTypes = {"min": AttributeProto.FLOAT, "max": AttributeProto.FLOAT}


class _Base(NamedTuple):
    """A sparse operator without activation."""

    operator: str  # of the standard
    inputs: list[str]
    added: list[str]  # inputs that are added to its result
    attributes: _AttributeTypes


_BASES = {
    "SparseConv": _Base("Conv", ["X", "W"], [], _CONV),
    "SparseConvAdd": _Base("Conv", ["X", "W"], ["Z"], _CONV),
    "SparseConvBias": _Base("Conv", ["X", "W", "B"], [], _CONV),
    "SparseConvBiasAdd": _Base("Conv", ["X", "W", "B"], ["Z"], _CONV),
    "SparseMatMul": _Base("MatMul", ["X", "W"], [], {}),
    "SparseMatMulBias": _Base("MatMul", ["X", "W"], ["B"], {}),
    "SparseLeftMatMul": _Base("MatMul", ["W", "X"], [], {}),
    "SparseGemm": _Base("Gemm", ["X", "W"], [], _GEMM),
    "SparseGemmBias": _Base("Gemm", ["X", "W", "B"], [], _GEMM),
}
FUNCTION_NAMES = tuple(base + activation for base in _BASES for activation in ACTIVATIONS)


def supports_clip(opset: int) -> bool:
    """Return true if a function can have limits of Clip as attributes in an opset version."""
    return opset < CLIP_INPUT_OPSET or opset >= CONSTANT_FLOAT_OPSET


def make_function(name: str, opset: int) -> FunctionProto:
    """Return one of FUNCTION_NAMES as a function of operators of an opset."""
    activation = next((a for a in ACTIVATIONS[1:] if name.endswith(a)), "")
    base = _BASES[name.removesuffix(activation)]
    attributes = list(base.attributes)
    nodes = [_make_node(base.operator, base.inputs, "product", base.attributes)]
    for added in base.added:
        nodes.append(_make_node("Add", ["product", added], "sum", {}))
    result = nodes[-1].output[0]
    if activation == "Clip":
        attributes += _CLIP
        if opset >= CLIP_INPUT_OPSET:
            nodes += [_make_limit(limit) for limit in _CLIP]
            nodes.append(_make_node("Clip", [result, *_CLIP], "Y", {}))
        else:
            nodes.append(_make_node("Clip", [result], "Y", _CLIP))
    elif activation:
        nodes.append(_make_node(activation, [result], "Y", {}))
    nodes[-1].output[:] = ["Y"]
    imports = [helper.make_opsetid("", opset)]
    inputs = [*base.inputs, *base.added]
    return helper.make_function(DOMAIN, name, inputs, ["Y"], nodes, imports, attributes)


def _make_node(
    operator: str, inputs: list[str], output: str, attributes: _AttributeTypes
) -> NodeProto:
    """Return a node whose attributes have the values of the function's."""
    node = helper.make_node(operator, inputs, [output])
    for name, type_ in attributes.items():
        node.attribute.append(_refer_attribute(name, name, type_))
    return node


def _make_limit(name: str) -> NodeProto:
    """Return a Constant with the value of a function's attribute and its name."""
    node = helper.make_node("Constant", [], [name])
    node.attribute.append(_refer_attribute("value_float", name, AttributeProto.FLOAT))
    return node


def _refer_attribute(name: str, source: str, type_: AttributeProto.AttributeType) -> AttributeProto:
    """Return an attribute of a node that has the value of a function's attribute."""
    return AttributeProto(name=name, ref_attr_name=source, type=type_)
