"""Uses of a weight in one sample, against the shapes of small graphs."""

from typing import Any

import numpy as np
import pytest
import torch
from onnx import ModelProto, TensorProto, helper

from ltp_pipeline.stages.multiply_adds import count_cost, count_multiply_adds, count_uses
from tests.support.imported import import_network
from tests.support.models import Graph


def uses_of(model: ModelProto, **shapes: tuple[int, ...]) -> dict[str, int]:
    """Return the uses of each layer for random inputs of these shapes."""
    network, state = import_network(model)
    inputs = {name: torch.randn(shape) for name, shape in shapes.items()}
    return count_uses(network, state, inputs)


def convolution(**attributes: Any) -> ModelProto:
    g = Graph()
    y = g.add("Conv", "x", g.random("conv", 6, 2, 3, 3), outputs=("y",), **attributes)
    return g.model({"x": (None, 2, 9, 7)}, [y])


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({}, 7 * 5),
        ({"pads": [1, 1, 1, 1]}, 9 * 7),
        ({"pads": [1, 1, 1, 1], "strides": [2, 2]}, 5 * 4),
        ({"dilations": [2, 2]}, 5 * 3),
    ],
)
def test_weight_of_a_convolution_is_used_at_each_output_position(
    attributes: dict[str, Any], expected: int
):
    assert uses_of(convolution(**attributes), x=(3, 2, 9, 7)) == {"conv": expected}


def test_uses_do_not_depend_on_groups():
    g = Graph()
    y = g.add("Conv", "x", g.random("conv", 4, 1, 3, 3), outputs=("y",), group=4)
    assert uses_of(g.model({"x": (None, 4, 5, 5)}, [y]), x=(2, 4, 5, 5)) == {"conv": 9}


def test_weight_of_a_transposed_convolution_is_used_at_each_input_position():
    g = Graph()
    y = g.add("ConvTranspose", "x", g.random("up", 2, 3, 2, 2), outputs=("y",), strides=[2, 2])
    assert uses_of(g.model({"x": (None, 2, 4, 5)}, [y]), x=(2, 2, 4, 5)) == {"up": 20}


def test_weight_of_a_fully_connected_layer_is_used_once():
    g = Graph()
    y = g.add("Gemm", "x", g.random("fc", 5, 8), outputs=("y",), transB=1)
    assert uses_of(g.model({"x": (None, 8)}, [y]), x=(4, 8)) == {"fc": 1}


def test_weight_of_a_product_is_used_at_each_position_of_a_sequence():
    g = Graph()
    y = g.add("MatMul", "x", g.random("fc", 8, 5), outputs=("y",))
    assert uses_of(g.model({"x": (None, 6, 8)}, [y]), x=(4, 6, 8)) == {"fc": 6}


def test_matrices_of_a_stacked_weight_are_used_at_their_own_positions():
    g = Graph()
    y = g.add("MatMul", "x", g.random("heads", 3, 8, 5), outputs=("y",))
    assert uses_of(g.model({"x": (None, 3, 6, 8)}, [y]), x=(4, 3, 6, 8)) == {"heads": 6}


@pytest.mark.parametrize(
    ("equation", "shape", "expected"),
    [
        ("bsd,de->bse", (8, 5), 6),
        ("bsd,dhe->bshe", (8, 2, 5), 6),
        ("...d,de->...e", (8, 5), 6),
    ],
)
def test_weight_of_an_einsum_is_used_at_positions_that_it_has_no_index_of(
    equation: str, shape: tuple[int, ...], expected: int
):
    g = Graph()
    y = g.add("Einsum", "x", g.random("w", *shape), outputs=("y",), equation=equation)
    assert uses_of(g.model({"x": (None, 6, 8)}, [y]), x=(4, 6, 8)) == {"w": expected}


def test_weight_of_an_einsum_may_be_the_first_operand():
    g = Graph()
    y = g.add("Einsum", g.random("w", 5, 8), "x", outputs=("y",), equation="ed,bsd->bse")
    assert uses_of(g.model({"x": (None, 6, 8)}, [y]), x=(4, 6, 8)) == {"w": 6}


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_weights_of_a_recurrent_layer_are_used_in_each_step(direction: str):
    g = Graph()
    count = 2 if direction == "bidirectional" else 1
    w, r = g.random("w", count, 16, 3), g.random("r", count, 16, 4)
    steps = g.add("Transpose", "x", perm=[1, 0, 2])
    y = g.add("LSTM", steps, w, r, hidden_size=4, direction=direction)
    g.add("Transpose", y, perm=[2, 0, 1, 3], outputs=("y",))
    model = g.model({"x": (None, 7, 3)}, ["y"])
    assert uses_of(model, x=(2, 7, 3)) == {"w": 7, "r": 7}


def test_uses_by_several_nodes_add_up():
    g = Graph()
    g.random("shared", 2, 2, 3, 3)
    h = g.add("Conv", "x", "shared")  # 5×5
    y = g.add("Conv", h, "shared", outputs=("y",))  # 3×3
    assert uses_of(g.model({"x": (None, 2, 7, 7)}, [y]), x=(2, 2, 7, 7)) == {"shared": 25 + 9}


def test_uses_of_a_graph_with_a_fixed_batch_are_those_of_one_sample():
    g = Graph()
    h = g.add("Add", g.conv("x", "conv", 1, 2), g.random("table", 3, 2, 4, 4))
    model = g.model({"x": (3, 1, 4, 4)}, [g.add("Relu", h, outputs=("y",))])
    network, _ = import_network(model)
    assert network.forward.batch_size == 3
    assert uses_of(model, x=(2, 1, 4, 4)) == {"conv.weight": 16}


def test_weight_that_is_used_inside_a_body_is_left_out():
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["on"]),
            helper.make_node("MatMul", ["h", "inner"], ["next"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("h", TensorProto.FLOAT, [None, 4]),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, [None, 4]),
        ],
    )
    g = Graph()
    g.random("inner", 4, 4)
    trips = g.tensor("trips", np.array(3), np.int64)
    h = g.add("Loop", trips, "", "x", body=body)
    y = g.add("MatMul", h, g.random("outer", 4, 5), outputs=("y",))
    assert uses_of(g.model({"x": (None, 4)}, [y]), x=(2, 4)) == {"outer": 1}


def test_count_cost_is_multiply_adds_or_the_number_of_nonzeros():
    uses, nonzeros = {"a": 9, "b": 1}, {"a": 2, "b": 5}
    assert count_multiply_adds(uses, nonzeros) == count_cost(nonzeros, uses) == 23
    assert count_cost(nonzeros, None) == 7
