"""What is known without running."""

from onnx import ModelProto

from ltp_pipeline.graph.constants import constants, small_value


def test_constants_are_known_by_name(nested: ModelProto) -> None:
    known = constants(nested.graph)
    assert known.keys() == {"k", "w"}
    values = small_value(known, "k")
    assert values is not None
    assert values.tolist() == [3, 4]
    assert small_value(known, "x") is None
