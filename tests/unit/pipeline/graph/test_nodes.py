"""What nodes say: opsets, labels, attributes."""

from onnx import ModelProto, helper

from ltp_pipeline.graph.nodes import attribute, is_standard, label
from ltp_pipeline.graph.schemas import opset_of, opsets, standard_opset


def test_opsets_labels_and_attributes(nested: ModelProto) -> None:
    assert opsets(nested) == {"": 17, "f": 3}
    assert standard_opset(nested) == opset_of(nested, "ai.onnx") == 17
    assert opset_of(nested, "unknown") == 1
    node = helper.make_node("Elu", ["x"], ["y"], alpha=2.0, domain="ai.onnx")
    assert is_standard(node, "Relu", "Elu")
    assert label(node) == "Elu 'y'"
    assert (attribute(node, "alpha"), attribute(node, "beta", 7)) == (2.0, 7)
