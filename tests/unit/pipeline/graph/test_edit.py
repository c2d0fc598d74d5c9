"""Order and names of nodes."""

from onnx import ModelProto

from ltp_pipeline.graph.edit import UniqueNames, sort_topologically
from tests.support.models import parsed


def test_nodes_are_put_in_order() -> None:
    model = parsed("(float[2] x) => (float[2] y) { y = Relu (b) b = Neg (a) a = Exp (x) }")
    sort_topologically(model.graph)
    assert [node.op_type for node in model.graph.node] == ["Exp", "Neg", "Relu"]


def test_fresh_names_are_not_given_twice(nested: ModelProto) -> None:
    names = UniqueNames.from_graph(nested.graph)
    assert [names.make_unique(name) for name in ("q", "q", "new")] == ["q_1", "q_2", "new"]
