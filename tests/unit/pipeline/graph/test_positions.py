"""Frequencies of rotary embeddings, as against weights before a periodic activation."""

import numpy as np
from onnx import ModelProto, TensorProto

from ltp_pipeline.graph.layer_weights import find_layer_weights
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.positions import find_frequencies
from tests.support.imported import import_network
from tests.support.models import Graph


def rotary() -> ModelProto:
    """Return data times the cosine of stored frequencies times positions from the data's shape."""
    g = Graph()
    steps = g.add("Gather", g.add("Shape", "x"), g.tensor("second", 1, np.int64))
    positions = g.add("Range", g.tensor("zero", 0, np.int64), steps, g.tensor("one", 1, np.int64))
    column = g.add(
        "Unsqueeze", g.add("Cast", positions, to=TensorProto.FLOAT), g.tensor("axis", [0], np.int64)
    )
    angles = g.add("MatMul", g.random("frequencies", 4, 1), column)
    g.add("MatMul", g.add("Mul", "x", g.add("Cos", angles)), g.random("w", 5, 3), outputs=["y"])
    return g.model({"x": ("N", 4, 5)}, ["y"])


def periodic() -> ModelProto:
    g = Graph()
    g.add(
        "MatMul",
        g.add("Sin", g.add("MatMul", "x", g.random("first", 6, 4))),
        g.random("second", 4, 3),
        outputs=["y"],
    )
    return g.model({"x": ("N", 6)}, ["y"])


def test_find_frequencies_returns_what_only_positions_meet() -> None:
    assert find_frequencies(rotary().graph) == {"frequencies"}


def test_weights_before_a_periodic_activation_are_not_frequencies() -> None:
    assert find_frequencies(periodic().graph) == set()
    assert [k.name for k in find_layer_weights(OnnxModel.from_proto(periodic()))] == [
        "first",
        "second",
    ]


def test_weights_before_a_sine_of_embedded_tokens_are_not_frequencies() -> None:
    g = Graph()
    rows = g.add("Gather", g.random("table", 7, 6), "ids")
    g.add("Sin", g.add("MatMul", rows, g.random("w", 6, 4)), outputs=["y"])
    model = g.model({"ids": ("N", 3)}, ["y"], types={"ids": TensorProto.INT64})
    assert find_frequencies(model.graph) == set()


def test_frequencies_are_not_trained() -> None:
    result = import_network(rotary())
    assert [k.name for k in result.layer_weights] == ["w"]
    assert set(result.state) == {"w"}


def test_weights_of_a_layer_whose_shape_gives_positions_are_not_frequencies() -> None:
    g = Graph()
    hidden = g.add("MatMul", "x", g.random("w", 5, 3))
    length = g.add("Gather", g.add("Shape", hidden), g.tensor("second", 1, np.int64))
    positions = g.add("Range", g.tensor("zero", 0, np.int64), length, g.tensor("one", 1, np.int64))
    column = g.add(
        "Unsqueeze", g.add("Cast", positions, to=TensorProto.FLOAT), g.tensor("axis", [0], np.int64)
    )
    angles = g.add("MatMul", g.random("frequencies", 4, 1), column)
    g.add("Concat", g.add("Cos", angles), g.add("Sin", angles), axis=0, outputs=["y"])
    g.add("Relu", hidden, outputs=["h"])
    assert find_frequencies(g.model({"x": ("N", 4, 5)}, ["y", "h"]).graph) == {"frequencies"}
