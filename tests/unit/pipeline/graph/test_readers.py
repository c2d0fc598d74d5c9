"""Who reads a stored tensor, seen through what only moves its elements."""

import numpy as np

from ltp_pipeline.graph.readers import find_readers
from tests.support.models import Graph


def found(g: Graph, *names: str) -> list[tuple[str, int, bool]]:
    graph = g.model({"x": (2, 6)}, ["y"]).graph
    uses = find_readers(graph)
    return [
        (use.node.op_type, use.slot, use.is_weight) for name in names for use in uses.get(name, ())
    ]


def halves(g: Graph) -> list[str]:
    """A weight of 6 rows in two parts."""
    parts = ["first", "second"]
    g.add("Split", g.random("w", 12, 6), outputs=parts, axis=0)
    return parts


def test_each_part_of_a_split_weight_is_read() -> None:
    g = Graph()
    first, second = halves(g)
    g.add("Add", g.add("MatMul", "x", first), g.add("Mul", "x", second), outputs=["y"])
    assert found(g, "w") == [("MatMul", 1, True), ("Mul", 1, False)]


def test_a_slice_of_a_weight_is_a_weight() -> None:
    g = Graph()
    bounds = [g.tensor(n, [v], np.int64) for n, v in (("from", 0), ("to", 6))]
    g.add("MatMul", "x", g.add("Slice", g.random("w", 12, 6), *bounds), outputs=["y"])
    assert found(g, "w") == [("MatMul", 1, True)]


def test_weights_that_are_joined_are_read_by_what_reads_them_together() -> None:
    g = Graph()
    first, second = halves(g)
    joined = g.add(
        "Concat", second, g.add("Transpose", g.random("v", 6, 6), perm=[1, 0]), first, axis=1
    )
    g.add("MatMul", "x", joined, outputs=["y"])
    assert found(g, "w", "v") == [("MatMul", 1, True)] * 2


def test_a_tensor_that_is_joined_to_the_data_is_read_by_the_concat() -> None:
    g = Graph()
    g.add(
        "MatMul",
        g.add("Concat", g.random("token", 1, 6), "x", axis=0),
        g.random("w", 6, 4),
        outputs=["y"],
    )
    assert found(g, "token") == [("Concat", 0, False)]


def test_more_tensors_than_a_layer_has_are_not_followed() -> None:
    g = Graph()
    rows = [g.random(f"row{i}", 1, 4) for i in range(65)]
    g.add(
        "MatMul", g.add("Reshape", "x", g.tensor("shape", [2, 6], np.int64)), g.random("w", 6, 65)
    )
    g.add("MatMul", g.nodes[-1].output[0], g.add("Concat", *rows, axis=0), outputs=["y"])
    assert found(g, "row0") == [("Concat", 0, False)]


def test_a_table_that_a_weight_multiplies_is_no_weight() -> None:
    g = Graph()
    product = g.add(
        "MatMul", g.random("table", 2, 4), g.add("Transpose", g.random("w", 6, 4), perm=[1, 0])
    )
    g.add("Add", "x", product, outputs=["y"])
    assert found(g, "table", "w") == [("MatMul", 0, False), ("MatMul", 1, True)]


def test_the_left_of_a_product_with_data_is_a_weight() -> None:
    g = Graph()
    g.add("MatMul", g.random("w", 3, 2), "x", outputs=["y"])
    assert found(g, "w") == [("MatMul", 0, True)]


def einsum(equation: str, *shape: int) -> list[tuple[str, int, bool]]:
    g = Graph()
    g.add("Einsum", "x", g.random("w", *shape), equation=equation, outputs=["y"])
    return found(g, "w")


def test_an_einsum_that_sums_over_a_common_index_has_a_weight() -> None:
    assert einsum("bi, ijk -> bjk", 6, 2, 3) == [("Einsum", 1, True)]


def test_an_einsum_that_only_multiplies_has_none() -> None:
    assert einsum("bi,j->bij", 4) == [("Einsum", 1, False)]
    assert einsum("bi,bi->bi", 2, 6) == [("Einsum", 1, False)]
