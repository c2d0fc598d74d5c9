"""Rounding matches the ONNX standard, and its gradient passes straight through."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from ltp_pipeline.stages.train import fake_quantize as fake

numbers = st.lists(st.floats(-100, 100, width=32), min_size=2, max_size=20)


def standard(x: np.ndarray) -> np.ndarray:
    """x through DynamicQuantizeLinear and DequantizeLinear, by onnx."""
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    return np.asarray(ReferenceEvaluator(model).run(None, {"x": x})[0])


@settings(deadline=None)
@given(numbers)
def test_round_dynamic_activation_matches_onnx(values: list[float]) -> None:
    x = np.array(values, np.float32)
    if np.ptp(np.append(x, 0)) < 1e-20:  # onnx divides by zero
        return
    assert np.array_equal(fake.round_dynamic_activation(torch.from_numpy(x)).numpy(), standard(x))


@settings(deadline=None)
@given(numbers, st.floats(-50, 0), st.floats(0.1, 50))
def test_round_activation_gradient_is_zero_outside_range(
    values: list[float], low: float, high: float
) -> None:
    x = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    value_range = torch.tensor([low, high], dtype=torch.float64)
    factors = torch.arange(1, len(values) + 1, dtype=torch.float64)
    (fake.round_activation(x, value_range) * factors).sum().backward()
    step = float((value_range[1] - value_range[0]) / 255)
    inside = (x.detach() >= low + step) & (x.detach() <= high - step)
    outside = (x.detach() < low - step) | (x.detach() > high + step)
    assert x.grad is not None
    assert torch.equal(x.grad[inside], factors[inside])
    assert not x.grad[outside].any()


def test_rounding_gradient_passes_straight_through() -> None:
    """By hand in float64: d(ŵ·x̂)/dw = x̂ and d(ŵ·x̂)/dx = ŵ, as without rounding."""
    torch.manual_seed(0)
    w = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    x = torch.rand(4, dtype=torch.float64, requires_grad=True)
    value_range = torch.tensor([0.0, 1.0], dtype=torch.float64)
    scale = fake.compute_weight_scale(w, 0, 64)
    small, narrow = fake.round_weight(w, scale, 64), fake.round_activation(x, value_range)
    (small @ narrow).sum().backward()
    assert w.grad is not None
    assert x.grad is not None
    assert torch.equal(w.grad, narrow.detach().expand(3, 4))
    assert torch.equal(x.grad, small.detach().sum(0))


@settings(deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([64, 127]), st.sampled_from([0, 1]))
def test_round_weight_moves_by_half_a_step_at_most(seed: int, largest: int, axis: int) -> None:
    torch.manual_seed(seed)
    w = torch.randn(5, 7) * (torch.rand(5, 7) < 0.4)
    scale = fake.compute_weight_scale(w, axis, largest)
    rounded = fake.round_weight(w, scale, largest)
    assert not rounded[w == 0].any()
    assert bool(((rounded - w).abs() <= 0.5001 * scale).all())
    assert bool(((rounded / scale).round().abs() <= largest).all())


def test_compute_weight_scale_of_empty_channel_is_average() -> None:
    assert fake.compute_weight_scale(
        torch.tensor([[0.0, 0.0], [1.0, -3.0], [1.0, 0.0]]), 0, 1
    ).ravel().tolist() == [2, 3, 1]
    assert (
        fake.compute_weight_scale(torch.zeros(2, 2), 0, 1).ravel().tolist()
        == [pytest.approx(fake.EMPTY_WEIGHT_SPAN)] * 2
    )


def test_round_activation_updates_range_in_training_only() -> None:
    x, value_range = torch.tensor([-2.0, 8.0]), torch.tensor([-1.0, 4.0])
    fake.round_activation(x, value_range, fraction=(1.0, 0.5))
    fake.round_activation(x, value_range, training=True)
    assert value_range.tolist() == [-1, 4]
    fake.round_activation(x, value_range, fraction=(1.0, 0.75), training=True)
    assert value_range.tolist() == pytest.approx(
        [-1 - fake.RANGE_MOMENTUM, 4 + 2 * fake.RANGE_MOMENTUM]
    )


def test_update_range_ignores_zero_fraction_and_infinity() -> None:
    value_range = torch.tensor([0.0, 4.0])
    fake.round_activation(
        torch.tensor([-2.0, 4.0]), value_range, fraction=(0.0, 1.0), training=True
    )
    fake.round_activation(
        torch.tensor([-2.0, torch.inf]), value_range, fraction=(0.0, 1.0), training=True
    )
    assert value_range.tolist() == [0, 4]
