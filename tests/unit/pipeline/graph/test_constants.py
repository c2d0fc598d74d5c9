"""What is known without running."""

from onnx import ModelProto

from ltp_pipeline.graph.constants import collect_constants, get_small_value


def test_constants_are_known_by_name(nested: ModelProto) -> None:
    known = collect_constants(nested.graph)
    assert known.keys() == {"k", "w"}
    values = get_small_value(known, "k")
    assert values is not None
    assert values.tolist() == [3, 4]
    assert get_small_value(known, "x") is None
