"""Readers of stored tensors, behind operators that only move elements."""

import numpy as np

from ltp_pipeline.graph.readers import find_readers
from tests.support.models import Graph


def readers_of(g: Graph, *names: str) -> list[tuple[str, int, bool]]:
    graph = g.model({"x": (2, 6)}, ["y"]).graph
    uses = find_readers(graph)
    return [
        (use.node.op_type, use.slot, use.is_weight) for name in names for use in uses.get(name, ())
    ]


def halves(g: Graph) -> list[str]:
    """Add a weight in two parts and return their names."""
    parts = ["first", "second"]
    g.add("Split", g.random("w", 12, 6), outputs=parts, axis=0)
    return parts


def test_readers_of_each_part_read_a_split_weight() -> None:
    g = Graph()
    first, second = halves(g)
    g.add("Add", g.add("MatMul", "x", first), g.add("Mul", "x", second), outputs=["y"])
    assert readers_of(g, "w") == [("MatMul", 1, True), ("Mul", 1, False)]


def test_slice_of_a_weight_is_a_weight() -> None:
    g = Graph()
    bounds = [g.tensor(n, [v], np.int64) for n, v in (("from", 0), ("to", 6))]
    g.add("MatMul", "x", g.add("Slice", g.random("w", 12, 6), *bounds), outputs=["y"])
    assert readers_of(g, "w") == [("MatMul", 1, True)]


def test_reader_of_a_concat_reads_the_joined_weights() -> None:
    g = Graph()
    first, second = halves(g)
    joined = g.add(
        "Concat", second, g.add("Transpose", g.random("v", 6, 6), perm=[1, 0]), first, axis=1
    )
    g.add("MatMul", "x", joined, outputs=["y"])
    assert readers_of(g, "w", "v") == [("MatMul", 1, True)] * 2


def test_concat_with_data_reads_the_tensor() -> None:
    g = Graph()
    g.add(
        "MatMul",
        g.add("Concat", g.random("token", 1, 6), "x", axis=0),
        g.random("w", 6, 4),
        outputs=["y"],
    )
    assert readers_of(g, "token") == [("Concat", 0, False)]


def test_concat_of_too_many_tensors_reads_them() -> None:
    g = Graph()
    rows = [g.random(f"row{i}", 1, 4) for i in range(65)]
    g.add(
        "MatMul", g.add("Reshape", "x", g.tensor("shape", [2, 6], np.int64)), g.random("w", 6, 65)
    )
    g.add("MatMul", g.nodes[-1].output[0], g.add("Concat", *rows, axis=0), outputs=["y"])
    assert readers_of(g, "row0") == [("Concat", 0, False)]


def test_table_that_a_weight_multiplies_is_not_a_weight() -> None:
    g = Graph()
    product = g.add(
        "MatMul", g.random("table", 2, 4), g.add("Transpose", g.random("w", 6, 4), perm=[1, 0])
    )
    g.add("Add", "x", product, outputs=["y"])
    assert readers_of(g, "table", "w") == [("MatMul", 0, False), ("MatMul", 1, True)]


def test_find_readers_left_factor_is_a_weight() -> None:
    g = Graph()
    g.add("MatMul", g.random("w", 3, 2), "x", outputs=["y"])
    assert readers_of(g, "w") == [("MatMul", 0, True)]


def einsum(equation: str, *shape: int) -> list[tuple[str, int, bool]]:
    g = Graph()
    g.add("Einsum", "x", g.random("w", *shape), equation=equation, outputs=["y"])
    return readers_of(g, "w")


def test_einsum_over_a_common_index_has_a_weight() -> None:
    assert einsum("bi, ijk -> bjk", 6, 2, 3) == [("Einsum", 1, True)]


def test_einsum_without_a_sum_has_no_weight() -> None:
    assert einsum("bi,j->bij", 4) == [("Einsum", 1, False)]
    assert einsum("bi,bi->bi", 2, 6) == [("Einsum", 1, False)]
