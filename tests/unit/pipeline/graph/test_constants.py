"""Values of a graph that are known without running it."""

from onnx import ModelProto

from ltp_pipeline.graph.constants import collect_constants, get_small_value


def test_collect_constants_returns_initializers_and_constant_nodes(nested: ModelProto) -> None:
    constants = collect_constants(nested.graph)
    assert constants.keys() == {"k", "w"}
    values = get_small_value(constants, "k")
    assert values is not None
    assert values.tolist() == [3, 4]
    assert get_small_value(constants, "x") is None
