"""Changes to the nodes and names of a graph."""

from onnx import ModelProto

from ltp_pipeline.graph.edit import (
    UniqueNames,
    rename_inputs,
    rename_outputs,
    sort_topologically,
)
from tests.support.models import parsed


def test_sort_topologically_moves_nodes_behind_their_producers() -> None:
    model = parsed("(float[2] x) => (float[2] y) { y = Relu (b) b = Neg (a) a = Exp (x) }")
    sort_topologically(model.graph)
    assert [node.op_type for node in model.graph.node] == ["Exp", "Neg", "Relu"]


def test_make_unique_adds_a_number_to_taken_names(nested: ModelProto) -> None:
    names = UniqueNames.from_graph(nested.graph)
    assert [names.make_unique(name) for name in ("q", "q", "new")] == ["q_1", "q_2", "new"]


def test_rename_inputs_and_outputs_keeps_other_names() -> None:
    model = parsed("(float[2] x) => (float[2] y) { a = Exp (x) y = Add (a, x) }")
    rename_outputs(model.graph.node, {"a": "b"})
    rename_inputs(model.graph.node, {"a": "b"})
    assert [list(node.input) for node in model.graph.node] == [["x"], ["b", "x"]]
    assert [list(node.output) for node in model.graph.node] == [["b"], ["y"]]
