"""Graphs without functions and constant conditions."""

import numpy as np

from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.rewrites.flatten import flatten_model
from tests.support.models import parsed


def test_flatten_model_replaces_nested_constant_ifs() -> None:
    model = parsed(
        """(float[2] x) => (float[2] y) {
            y = If (yes) <
                then_branch = t () => (float[2] p) {
                    no = Constant <value = bool {0}> ()
                    h = Neg (x)
                    p = If (no) <
                        then_branch = tt () => (float[2] q) { q = Exp (h) },
                        else_branch = te () => (float[2] q) { q = Add (h, w) }
                    >
                },
                else_branch = e () => (float[2] p) { p = Relu (x) }
            >
            z = Relu (y)
        }""",
        yes=np.array(True),
        w=np.ones(2, np.float32),
    )
    before = model.SerializeToString()
    flat, notes = flatten_model(OnnxModel.from_proto(model))
    assert [node.op_type for node in flat.graph.node] == [
        "Constant",
        "Neg",
        "Add",
        "Identity",
        "Identity",
        "Relu",
    ]
    assert flat.graph.node[2].input[:] == [flat.graph.node[1].output[0], "w"]
    (note,) = notes
    assert note.startswith("2 If nodes")
    assert model.SerializeToString() == before
