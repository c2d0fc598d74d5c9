"""What nodes say: opsets, labels, attributes."""

from onnx import ModelProto, helper

from ltp_pipeline import graph as graphs


def test_opsets_labels_and_attributes(nested: ModelProto) -> None:
    assert graphs.opsets(nested) == {"": 17, "f": 3}
    assert graphs.standard_opset(nested) == graphs.opset_of(nested, "ai.onnx") == 17
    assert graphs.opset_of(nested, "unknown") == 1
    node = helper.make_node("Elu", ["x"], ["y"], alpha=2.0, domain="ai.onnx")
    assert graphs.is_standard(node, "Relu", "Elu")
    assert graphs.label(node) == "Elu 'y'"
    assert (graphs.attribute(node, "alpha"), graphs.attribute(node, "beta", 7)) == (2.0, 7)
