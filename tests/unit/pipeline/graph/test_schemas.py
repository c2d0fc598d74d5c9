"""Versions of operators, and operators that only onnxruntime defines."""

import onnx
import pytest
from onnx import ModelProto, TensorProto, helper

from ltp_pipeline.graph.model import copy_proto
from ltp_pipeline.graph.schemas import get_schema_version, has_function_body, make_checkable


def model(op: str, opset: int, domain: str = "") -> ModelProto:
    node = helper.make_node(op, ["x", "s"], ["y"], domain=domain)
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 4]) for n in "xy"]
    scale = helper.make_tensor("s", TensorProto.FLOAT, [4], [1.0] * 4)
    graph = helper.make_graph([node], "g", values[:1], values[1:], [scale])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


@pytest.mark.parametrize(
    ("op", "opset"), [("LayerNormalization", 14), ("SimplifiedLayerNormalization", 21)]
)
def test_norms_of_onnxruntime_in_the_standard_domain_have_a_version(op: str, opset: int) -> None:
    assert get_schema_version(op, opset) == 1
    assert not has_function_body(op, opset)


def test_newer_opset_has_the_standards_own_norm() -> None:
    assert get_schema_version("LayerNormalization", 17) == 17
    assert has_function_body("LayerNormalization", 17)
    assert get_schema_version("LayerNormalization", 14, "com.example") is None


@pytest.mark.parametrize(
    ("op", "opset", "domain"),
    [
        ("LayerNormalization", 14, ""),
        ("SimplifiedLayerNormalization", 17, ""),
        ("BiasGelu", 17, "com.microsoft"),
    ],
)
def test_make_checkable_lets_the_checker_pass_fused_operators(
    op: str, opset: int, domain: str
) -> None:
    source = model(op, opset, domain)
    with pytest.raises(onnx.checker.ValidationError):
        onnx.checker.check_model(source)
    allowed = copy_proto(source)
    assert make_checkable(allowed)
    onnx.checker.check_model(allowed)


def test_make_checkable_leaves_a_standard_model() -> None:
    source = model("LayerNormalization", 17)
    allowed = copy_proto(source)
    assert not make_checkable(allowed)
    assert allowed == source


def test_make_checkable_leaves_an_unknown_operator() -> None:
    source = model("NoSuchOperator", 17)
    assert not make_checkable(source)
    with pytest.raises(onnx.checker.ValidationError):
        onnx.checker.check_model(source)
