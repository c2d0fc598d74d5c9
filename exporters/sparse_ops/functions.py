"""The operators of the library as functions of standard ones.

A file holds them as model-local functions. onnxruntime takes the library's kernel where it is registered, and else
inlines the function and runs the file like any other. source/ops.cpp says what the operators are.
"""

from collections.abc import Mapping

from onnx import AttributeProto, FunctionProto, NodeProto, helper

DOMAIN = "ltp.kernels"
VERSION = 1
IR_VERSION = 8  # functions begin here

ACTIVATIONS = ("", "Relu", "Clip")
CLIP_INPUT_OPSET = 11  # from here on Clip's limits are inputs
CONSTANT_FLOAT_OPSET = 12  # Constant takes a single float from here on

_FLOATS, _INT, _INTS, _TEXT = (
    AttributeProto.FLOAT,
    AttributeProto.INT,
    AttributeProto.INTS,
    AttributeProto.STRING,
)
_Kinds = Mapping[str, AttributeProto.AttributeType]
_CONV = {
    "auto_pad": _TEXT,
    "dilations": _INTS,
    "group": _INT,
    "kernel_shape": _INTS,
    "pads": _INTS,
    "strides": _INTS,
}
_GEMM = {"alpha": _FLOATS, "beta": _FLOATS, "transB": _INT}
_CLIP = {"min": _FLOATS, "max": _FLOATS}

_BASES: dict[str, tuple[str, list[str], list[str], _Kinds]] = {
    # name: standard operator, its inputs, what is added to its result, its attributes
    "SparseConv": ("Conv", ["X", "W"], [], _CONV),
    "SparseConvAdd": ("Conv", ["X", "W"], ["Z"], _CONV),
    "SparseConvBias": ("Conv", ["X", "W", "B"], [], _CONV),
    "SparseConvBiasAdd": ("Conv", ["X", "W", "B"], ["Z"], _CONV),
    "SparseMatMul": ("MatMul", ["X", "W"], [], {}),
    "SparseMatMulBias": ("MatMul", ["X", "W"], ["B"], {}),
    "SparseLeftMatMul": ("MatMul", ["W", "X"], [], {}),
    "SparseGemm": ("Gemm", ["X", "W"], [], _GEMM),
    "SparseGemmBias": ("Gemm", ["X", "W", "B"], [], _GEMM),
}
FUNCTION_NAMES = tuple(base + activation for base in _BASES for activation in ACTIVATIONS)


def supports_clip(opset: int) -> bool:
    """Whether Clip with its limits as attributes can be said in standard operators of this version."""
    return opset < CLIP_INPUT_OPSET or opset >= CONSTANT_FLOAT_OPSET


def make_function(name: str, opset: int) -> FunctionProto:
    """One of NAMES in standard operators of a version."""
    activation = next((a for a in ACTIVATIONS[1:] if name.endswith(a)), "")
    operator, inputs, added, attributes = _BASES[name.removesuffix(activation)]
    nodes = [_make_node(operator, inputs, "product", attributes)]
    nodes += [_make_node("Add", ["product", name], "sum") for name in added]
    if activation == "Clip" and opset >= CLIP_INPUT_OPSET:
        nodes += [_make_limit(limit) for limit in _CLIP]
        nodes.append(_make_node("Clip", [nodes[-3].output[0], *_CLIP], "Y"))
    elif activation:
        nodes.append(
            _make_node(
                activation, [nodes[-1].output[0]], "Y", _CLIP if activation == "Clip" else {}
            )
        )
    nodes[-1].output[:] = ["Y"]
    names = [*attributes, *(_CLIP if activation == "Clip" else ())]
    return helper.make_function(
        DOMAIN, name, [*inputs, *added], ["Y"], nodes, [helper.make_opsetid("", opset)], names
    )


def _make_node(
    operator: str, inputs: list[str], output: str, attributes: _Kinds | None = None
) -> NodeProto:
    """A node whose attributes are those of the function."""
    node = helper.make_node(operator, inputs, [output])
    node.attribute.extend(
        _refer_attribute(name, name, kind) for name, kind in (attributes or {}).items()
    )
    return node


def _make_limit(limit: str) -> NodeProto:
    node = helper.make_node("Constant", [], [limit])
    node.attribute.append(_refer_attribute("value_float", limit, _FLOATS))
    return node


def _refer_attribute(name: str, of: str, kind: AttributeProto.AttributeType) -> AttributeProto:
    return AttributeProto(name=name, ref_attr_name=of, type=kind)
