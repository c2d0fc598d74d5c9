"""A graph with nested graphs, for several test modules."""

import numpy as np
import pytest
from onnx import ModelProto, helper

from tests.support.models import parsed


@pytest.fixture
def nested() -> ModelProto:
    """Return an If whose branches read outer values, with two opsets of the standard domain."""
    model = parsed(
        """(float[2] x, bool c) => (float[2] y) {
            k = Constant <value_ints = [3, 4]> ()
            a = Identity (w)
            b = Identity (a)
            h = Mul (x, b)
            y = If (c) <
                then_branch = yes () => (float[2] p) { q = Identity (h) p = Add (q, b) },
                else_branch = no () => (float[2] w) {}
            >
        }""",
        w=np.ones(2, np.float32),
    )
    del model.opset_import[:]
    model.opset_import.extend(
        helper.make_opsetid(*entry) for entry in (("", 17), ("ai.onnx", 16), ("f", 3))
    )
    return model
