"""Opsets, labels and attributes of nodes."""

from onnx import ModelProto, helper

from ltp_pipeline.graph.nodes import format_node, get_attribute, is_standard
from ltp_pipeline.graph.schemas import get_opsets, get_standard_opset


def test_opsets_labels_and_attributes(nested: ModelProto) -> None:
    assert get_opsets(nested) == {"": 17, "f": 3}
    assert get_standard_opset(nested) == 17
    assert (get_standard_opset(ModelProto()), get_standard_opset(ModelProto(), 0)) == (1, 0)
    node = helper.make_node("Elu", ["x"], ["y"], alpha=2.0, domain="ai.onnx")
    assert is_standard(node, "Relu", "Elu")
    assert format_node(node) == "Elu 'y'"
    assert (get_attribute(node, "alpha"), get_attribute(node, "beta", 7)) == (2.0, 7)
