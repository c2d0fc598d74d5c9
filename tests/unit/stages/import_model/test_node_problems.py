"""Nodes that are not supported, each with its reason."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from ltp_pipeline.errors import UnsupportedModel
from ltp_pipeline.graph.schemas import signature
from ltp_pipeline.stages.import_model import network, operators, registry  # noqa: F401 - filled
from ltp_pipeline.stages.import_model.node_problems import (
    find_operator_problem,
    is_quantized,
    node_problems,
)
from tests.support.imported import refused
from tests.support.models import Graph, parsed


@pytest.mark.parametrize(
    "op", ["QLinearMatMul", "MatMulInteger", "ConvInteger", "QLinearConv", "DynamicQuantizeLinear"]
)
def test_quantised_operators(op: str) -> None:
    g = Graph()
    conv = op.endswith(("Conv", "ConvInteger")) and "Mat" not in op
    shape = (4, 4, 1, 1) if conv else (4, 4)
    scale, zero = g.tensor("scale", 0.1), g.tensor("zero", 0, np.uint8)
    weight = g.tensor("w", np.ones(shape), np.uint8)
    inputs: dict[str, list[str]] = {
        "QLinearMatMul": ["x", scale, zero, weight, scale, zero, scale, zero],
        "QLinearConv": ["x", scale, zero, weight, scale, zero, scale, zero],
        "MatMulInteger": ["x", weight],
        "ConvInteger": ["x", weight],
        "DynamicQuantizeLinear": ["x"],
    }
    dynamic = op.startswith("Dynamic")
    g.add(op, *inputs[op], name="node", outputs=["y", "s", "z"] if dynamic else ["y"])
    kind = TensorProto.FLOAT if dynamic else TensorProto.UINT8
    result = TensorProto.INT32 if op.endswith("Integer") else TensorProto.UINT8
    model = g.model({"x": (1, 4, 4, 4) if conv else (4, 4)}, ["y"], types={"x": kind, "y": result})
    error = refused(model)
    assert isinstance(error, UnsupportedModel)
    assert any("'node'" in r and "quantised" in r for r in error.reasons)


def test_every_unsupported_node_is_listed_at_once() -> None:
    text = helper.make_tensor("text", TensorProto.STRING, [1], [b"a"])
    proto = parsed(
        """(float[2] x, bool c) => (y) {
            a = com.example.Magic (x)
            b = Nonsense (a)
            d = Relu (b)
            e = Cast <to = 8> (d)
            f = StringConcat (text, text)
            y = If (c) <
                then_branch = yes () => (float[2] q) { q = Magic2 (d) },
                else_branch = no () => (float[2] r) { r = Neg (d) }
            >
        }""",
        text=text,
    )
    proto.graph.node[0].name = "spell"
    assert node_problems(proto) == [
        "Magic 'spell' (opset 1, domain com.example): operators of this domain are not supported",
        "Nonsense 'b' (opset 21, domain ai.onnx): there is no such operator",
        "Cast 'e' (opset 21, domain ai.onnx): type STRING is not supported",
        "StringConcat 'f' (opset 21, domain ai.onnx): no implementation",
        "Magic2 'q' (opset 21, domain ai.onnx): there is no such operator",
    ]


def test_a_supported_model_has_no_node_problems() -> None:
    assert node_problems(parsed("(float[2] x) => (y) { y = Relu (x) }")) == []


def test_an_input_of_strings_is_unsupported() -> None:
    reasons = node_problems(parsed("(string[2] x) => (y) { y = Identity (x) }"))
    assert reasons == [
        "Identity 'y' (opset 21, domain ai.onnx): input 'x' has type STRING, which is not supported"
    ]


def test_an_operator_is_supported_where_the_importer_can_run_it() -> None:
    schemas = {s.name for s in onnx.defs.get_all_schemas() if s.domain == ""}
    for opset in (7, 13, onnx.defs.onnx_opset_version()):
        for name in sorted(schemas):
            known = signature(name, opset)
            runs = registry.find_op(name, opset) is not None or (
                known is not None and known.has_body
            )
            expected = name == "Constant" or (runs and not is_quantized(name))
            assert (find_operator_problem(name, opset) is None) == expected, (name, opset)
