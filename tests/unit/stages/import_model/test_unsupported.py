"""Control flow that training cannot follow."""

import numpy as np
import pytest
from onnx import TensorProto

from tests.support.imported import NEVER, imported, refused
from tests.support.models import Graph, loop_body


def test_a_loop_that_depends_on_the_data() -> None:
    g = Graph()
    g.random("w", 6, 6)
    count = g.add("Cast", g.add("ReduceMax", "x", keepdims=0), to=TensorProto.INT64)
    g.add("Loop", count, "", "x", name="again", outputs=["y"], body=loop_body())
    error = refused(g.model({"x": ("N", 6)}, ["y"]))
    assert "number of rounds depends on the data" in "".join(getattr(error, "reasons", ()))


def test_a_loop_that_depends_on_a_shape_is_fine() -> None:
    g = Graph()
    g.random("w", 6, 6)
    count = g.add("Gather", g.add("Shape", "x"), g.tensor("zero", 0, np.int64))
    g.add("Loop", count, g.tensor("true", True, np.bool_), "x", outputs=["y"], body=loop_body())
    assert imported(g.model({"x": ("N", 6)}, ["y"]), settings=NEVER).parity is not None


@pytest.mark.parametrize("count", [10**6, 2**62])
def test_a_loop_without_end(count: int) -> None:
    g = Graph()
    g.random("w", 6, 6)
    g.add(
        "Loop",
        g.tensor("count", count, np.int64),
        "",
        "x",
        name="long",
        outputs=["y"],
        body=loop_body(),
    )
    assert "'long'" in str(getattr(refused(g.model({"x": ("N", 6)}, ["y"])), "reasons", ""))


def test_a_loop_with_nothing_to_stop_it() -> None:
    g = Graph()
    g.random("w", 6, 6)
    g.add(
        "Loop",
        "",
        g.tensor("true", True, np.bool_),
        "x",
        name="endless",
        outputs=["y"],
        body=loop_body(),
    )
    assert "never ends" in str(getattr(refused(g.model({"x": ("N", 6)}, ["y"])), "reasons", ""))
