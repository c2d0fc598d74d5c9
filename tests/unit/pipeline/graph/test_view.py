"""Producers and consumers of values."""

import numpy as np
from onnx import ModelProto

from ltp_pipeline.graph.view import (
    GraphView,
    find_dependent_values,
    find_identity_sources,
    iter_uses,
)
from tests.support.models import parsed


def test_graph_view_includes_nested_graphs(nested: ModelProto) -> None:
    view = GraphView(nested.graph)
    assert view.producers["h"].op_type == "Mul"
    assert "w" not in view.producers
    assert [(use.node.op_type, use.slot) for use in view.consumers["b"]] == [("Mul", 1), ("Add", 1)]
    assert "y" not in view.consumers
    assert find_identity_sources(nested.graph) == {"a": "w", "b": "w"}
    assert (view.read_counts["w"], view.read_counts["h"], view.read_counts["y"]) == (2, 1, 1)


def test_iter_uses_looks_through_identities(nested: ModelProto) -> None:
    uses = [(node.op_type, name) for node, _, name in iter_uses(nested.graph, outputs=True)]
    assert uses == [
        *(("Mul", "x"), ("Mul", "w"), ("If", "c"), ("Add", "h"), ("Add", "w")),
        *(("output", "p"), ("output", "w"), ("output", "y")),
    ]


def test_iter_uses_keeps_names_of_branches_apart() -> None:
    model = parsed(
        """(float[2] x, bool c) => (float[2] y) {
            y = If (c) <
                then_branch = yes () => (float[2] p) { t = Identity (w) p = Neg (t) },
                else_branch = no () => (float[2] q) { q = Neg (t) }
            >
        }""",
        w=np.ones(2, np.float32),
    )
    assert [name for node, _, name in iter_uses(model.graph) if node.op_type == "Neg"] == ["w", "t"]


def test_iter_uses_looks_through_every_output_of_a_split() -> None:
    model = parsed(
        """(float[2] x) => (float[4] y) {
            a, b = Split (w)
            s = Add (x, b)
            y = Concat <axis: int = 0> (s, a)
        }"""
    )
    uses = [(node.op_type, name) for node, _, name in iter_uses(model.graph, through=("Split",))]
    assert uses == [("Add", "x"), ("Add", "w"), ("Concat", "s"), ("Concat", "w")]


def test_values_of_a_loop_depend_on_those_of_earlier_rounds() -> None:
    model = parsed(
        """(float[2] x, float[2] z) => (float[2] p, float[2] q, float[2] r, int64[1] s) {
            p, q, r = Loop (rounds, yes, x, z, z) <
                body = b (int64 i, bool c, float[2] a, float[2] b, float[2] d)
                    => (bool c2, float[2] e, float[2] a, float[2] b) {
                    c2 = Identity (c)
                    e = Identity (z)
                }
            >
            s = Shape (p)
        }""",
        rounds=np.int64(3),
        yes=np.bool_(True),
    )
    assert find_dependent_values(model.graph, ["x"]) == {"x", "a", "b", "d", "p", "q", "r"}
