"""What is known without running."""

from onnx import ModelProto

from ltp_pipeline import graph as graphs


def test_constants_are_known_by_name(nested: ModelProto) -> None:
    known = graphs.constants(nested.graph)
    assert known.keys() == {"k", "w"}
    values = graphs.small_value(known, "k")
    assert values is not None
    assert values.tolist() == [3, 4]
    assert graphs.small_value(known, "x") is None
