"""The paper's equations against closed forms and finite differences, in float64."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ltp_pipeline.stages.learn_thresholds import functional as F

TAU = torch.tensor(0.04, dtype=torch.float64)
T = 0.01


def weights(seed: int = 0, count: int = 64) -> Tensor:
    return (
        torch.randn(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 0.2
    )


def slope(function, x: Tensor, step: float = 1e-6) -> Tensor:
    """Central difference of an elementwise function."""
    return (function(x + step) - function(x - step)) / (2 * step)


def test_eq_9_keeps_weights_whose_square_is_above_the_threshold():
    w = torch.tensor([0.1, -0.3, 0.2, -0.2])
    assert F.is_kept(w, 0.04 + 1e-6).tolist() == [False, True, False, False]
    assert F.is_kept(w, w.square()).tolist() == [False] * 4


def test_eq_1_is_the_weight_times_the_sigmoid():
    w = weights()
    assert torch.allclose(F.soft_prune(w, TAU, T), w * torch.sigmoid((w**2 - TAU) / T), rtol=1e-12)


def test_eq_1_approaches_eq_9_when_the_temperature_falls():
    w = weights()
    assert torch.allclose(F.soft_prune(w, TAU, 1e-9), w * F.is_kept(w, TAU), atol=1e-9)


def test_eq_14_is_the_derivative_of_the_gate():
    w = weights()
    assert torch.allclose(
        F.sigma_T(w, TAU, T), slope(lambda x: F.soft_gate(x, TAU, T), w), atol=1e-6
    )


def test_eq_10_gives_the_gradient_of_the_threshold():
    w, grad_v = weights(), weights(1)
    tau = TAU.clone().requires_grad_()
    (F.soft_prune(w, tau, T) * grad_v).sum().backward()
    numeric = slope(lambda t: (w * F.soft_gate(w, t, T) * grad_v).sum(), TAU)
    assert torch.allclose(tau.grad, numeric, rtol=1e-6)
    assert torch.allclose(tau.grad, (-0.5 * F.sigma_T(w, TAU, T) * grad_v).sum(), rtol=1e-12)


def test_eq_10_gives_the_exact_gradient_of_the_weight_when_asked():
    w = weights().requires_grad_()
    grad_v = weights(1)
    (F.soft_prune(w, TAU, T, F.WeightGradient.EXACT) * grad_v).sum().backward()
    exact = slope(lambda x: x * F.soft_gate(x, TAU, T), w.detach()) * grad_v
    assert torch.allclose(w.grad, exact, atol=1e-6)


def test_eq_4_and_21_treat_the_sigmoid_as_a_constant():
    w = weights().requires_grad_()
    grad_v = weights(1)
    (F.soft_prune(w, TAU, T) * grad_v).sum().backward()
    assert torch.allclose(w.grad, torch.sigmoid((w.detach() ** 2 - TAU) / T) * grad_v, rtol=1e-12)


def test_eq_2_counts_kept_weights_softly():
    w = torch.tensor([0.0, 0.5, -0.5, 0.2], dtype=torch.float64)
    assert F.soft_l0(w, torch.tensor(0.04, dtype=torch.float64), 1e-4).item() == pytest.approx(2.5)


def test_eq_16_is_the_derivative_of_eq_2():
    w = weights()
    assert torch.allclose(
        F.soft_l0_slope(w, TAU, T), slope(lambda t: F.soft_l0(w, t, T), TAU), rtol=1e-6
    )
    assert torch.allclose(
        F.soft_l0_slope(w, TAU, T), -0.5 * (F.sigma_T(w, TAU, T) / w).sum(), rtol=1e-9
    )


def test_eq_8_moves_the_threshold_against_loss_and_count():
    step = F.threshold_step(torch.tensor([1.0]), torch.tensor([-4.0]), lam=0.5, lr=0.1)
    assert step.item() == pytest.approx(0.1)


def test_eq_12_scales_with_the_variance_of_the_sizes():
    w = weights()
    assert F.layer_temperature(w, 1e-3).item() == pytest.approx(
        1e-3 * w.abs().var(correction=0).item()
    )
    assert F.layer_temperature(3 * w, 1e-3).item() == pytest.approx(
        9 * F.layer_temperature(w, 1e-3).item()
    )


@given(st.floats(1e-6, 1.0), st.floats(1e-6, 1.0), st.integers(0, 100))
def test_soft_pruning_never_grows_a_weight_nor_turns_its_sign(
    tau: float, temperature: float, seed: int
):
    w = weights(seed)
    v = F.soft_prune(w, torch.tensor(tau, dtype=torch.float64), temperature)
    assert torch.all(v.abs() <= w.abs())
    assert torch.all(v * w >= 0)


def test_r1_is_the_rectified_sigmoid_with_a_temperature_as_wide_as_the_threshold():
    w = weights()
    expected = (2 * torch.sigmoid((w**2 - TAU) / TAU) - 1).clamp(min=0)
    assert torch.allclose(F.rectified_gates([w], TAU[None], [1.0])[0], expected, atol=1e-12)


def test_r1_is_exactly_zero_below_the_threshold_and_nowhere_above():
    w = weights()
    v = F.rectified_prune([w], TAU[None], [1.0])[0]
    assert torch.equal(v != 0, w**2 > TAU)


def test_r1_of_another_width_has_a_temperature_of_that_share_of_the_threshold():
    w = weights()
    expected = (2 * torch.sigmoid((w**2 - TAU) / (0.3 * TAU)) - 1).clamp(min=0)
    assert torch.allclose(F.rectified_gates([w], TAU[None], [0.3])[0], expected, atol=1e-12)


def test_r2_passes_the_gradient_in_proportion_to_the_squares_of_pruned_weights():
    w = weights().requires_grad_()
    grad_v = weights(1)
    (F.rectified_prune([w], TAU[None], [1.0])[0] * grad_v).sum().backward()
    passed = (w.detach() ** 2 / TAU).clamp(max=1.0)
    assert torch.allclose(w.grad, grad_v * passed, rtol=1e-12)


def test_r2_leaves_zeros_of_the_original_without_a_gradient():
    w = weights()
    w[::3] = 0.0
    w.requires_grad_()
    F.rectified_prune([w], TAU[None], [1.0])[0].sum().backward()
    assert torch.equal(w.grad == 0, w == 0)


@pytest.mark.parametrize("c", [1.0, 0.2])
def test_r2_gives_the_exact_gradient_of_the_threshold(c: float):
    w, grad_v = weights(), weights(1)
    tau = TAU.clone().requires_grad_()
    (F.rectified_prune([w], tau[None], [c])[0] * grad_v).sum().backward()
    numeric = slope(
        lambda t: (w * F.rectified_gates([w], t[None], [c])[0] * grad_v).sum(), TAU, 1e-7
    )
    assert torch.allclose(tau.grad, numeric, rtol=1e-5)


@pytest.mark.parametrize("c", [1.0, 0.2])
def test_r8_gates_all_weights_of_a_block_by_the_mean_of_their_squares(c: float):
    w = weights().view(8, 8)
    squares = w.view(2, 4, 8).square().mean(1)
    r = squares.sqrt().repeat_interleave(4, 0)
    expected = w * torch.tanh((squares - TAU) / (2 * c * TAU)).clamp(min=0).repeat_interleave(4, 0)
    assert torch.allclose(F.rectified_prune([w], TAU[None], [c], rs=[r])[0], expected, atol=1e-12)


@pytest.mark.parametrize("c", [1.0, 0.2])
def test_r8_gives_the_exact_gradient_of_the_threshold_and_that_of_r2_to_weights_of_blocks(
    c: float,
):
    w, grad_v = weights().view(8, 8).requires_grad_(), weights(1).view(8, 8)
    r = w.detach().view(2, 4, 8).square().mean(1).sqrt().repeat_interleave(4, 0)
    tau = TAU.clone().requires_grad_()
    (F.rectified_prune([w], tau[None], [c], rs=[r])[0] * grad_v).sum().backward()
    numeric = slope(
        lambda t: (w.detach() * F.rectified_gates([r], t[None], [c])[0] * grad_v).sum(), TAU, 1e-7
    )
    assert torch.allclose(tau.grad, numeric, rtol=1e-5)
    assert torch.allclose(w.grad, grad_v * (r**2 / TAU).clamp(max=1.0), rtol=1e-12)
    assert 0 < int((r**2 > TAU).sum()) < r.numel()


def test_prune_layers_together_equals_each_alone():
    ws = [
        weights(seed).view(shape).requires_grad_()
        for seed, shape in enumerate([(-1,), (2, -1), (-1, 4)])
    ]
    taus = torch.stack([TAU, 2 * TAU, 3 * TAU]).requires_grad_()
    sum((v**3).sum() for v in F.rectified_prune(ws, taus, [1.0, 0.5, 0.1])).backward()
    for i, w in enumerate(ws):
        alone, tau = (
            w.detach().clone().requires_grad_(),
            taus.detach()[i : i + 1].clone().requires_grad_(),
        )
        (F.rectified_prune([alone], tau, [(1.0, 0.5, 0.1)[i]])[0] ** 3).sum().backward()
        assert torch.allclose(w.grad, alone.grad)
        assert torch.allclose(taus.grad[i], tau.grad[0])


def test_r6_within_r2_is_a_constant_factor_in_values_and_gradients():
    ws = [weights(seed).requires_grad_() for seed in (0, 2)]
    taus, grad_v = torch.stack([TAU, 2 * TAU]).requires_grad_(), weights(1)
    plain = F.rectified_prune(ws, taus, [1.0, 0.5])
    s = F.kept_norm_ratio(ws[1], plain[1])
    expected = torch.autograd.grad(
        (plain[0] * grad_v).sum() + (s * plain[1] * grad_v).sum(), [*ws, taus]
    )
    found = F.rectified_prune(ws, taus, [1.0, 0.5], scaled=[1])
    assert torch.equal(found[0], plain[0])
    assert torch.equal(found[1], s * plain[1])
    gradients = torch.autograd.grad(sum((v * grad_v).sum() for v in found), [*ws, taus])
    assert all(map(torch.allclose, gradients, expected))


def test_gate_slopes_are_the_derivative_of_the_soft_count_by_log_thresholds():
    ws = [weights(0), 3 * weights(1)]
    taus = torch.tensor([0.2, 1.5], dtype=torch.float64)
    cs = [0.7, 0.2]

    def soft_counts(log_taus: torch.Tensor) -> torch.Tensor:
        gates = F.rectified_gates(ws, log_taus.exp(), cs)
        return torch.stack([gate.sum() for gate in gates])

    step = 1e-6
    expected = (soft_counts(taus.log() - step) - soft_counts(taus.log() + step)) / (2 * step)
    assert torch.allclose(F.gate_slopes(ws, taus, cs), expected, rtol=1e-5)


def test_balance_step_lowers_thresholds_of_layers_that_lose_more_for_the_cost_they_save():
    step = F.balance_step(
        torch.tensor([3.0, 1.0, 2.0]), torch.tensor([1.0, 1.0, 1.0]), torch.ones(3), rate=0.1
    )
    assert step.tolist() == pytest.approx([-0.1 * math.log(1.5), 0.1 * math.log(2), 0.0], abs=1e-6)


def test_balance_step_is_zero_where_loss_for_saved_cost_is_equal():
    slopes = torch.tensor([1.0, 5.0, 0.2])
    costs = torch.tensor([1.0, 4.0, 100.0])
    step = F.balance_step(0.3 * slopes * costs, slopes, costs, rate=0.1)
    assert step.abs().max().item() < 1e-6


def test_balance_step_does_not_depend_on_the_scale_of_the_loss():
    grads = torch.tensor([3.0, 1.0, 2.0])
    slopes = torch.tensor([1.0, 2.0, 1.0])
    steps = [F.balance_step(k * grads, slopes, torch.ones(3), 0.1) for k in (1.0, 1e-4, 1e4)]
    assert torch.allclose(steps[0], steps[1])
    assert torch.allclose(steps[0], steps[2])


def test_balance_step_is_limited_to_the_rate():
    step = F.balance_step(torch.tensor([1e6, -1.0, 1.0]), torch.ones(3), torch.ones(3), rate=0.1)
    assert step.tolist() == pytest.approx([-0.1, 0.1, 0.1])


@pytest.mark.parametrize("grads", [[0.0, 0.0], [-2.0, 1.0]])
def test_balance_step_is_zero_if_the_loss_does_not_rise_with_the_thresholds(grads: list[float]):
    step = F.balance_step(torch.tensor(grads), torch.ones(2), torch.ones(2), rate=0.1)
    assert step.tolist() == [0.0, 0.0]


def test_r6_brings_a_layer_back_to_the_norm_of_what_is_kept_and_passes_no_gradient():
    w = weights().requires_grad_()
    v = F.rectified_prune([w], TAU[None], [1.0])[0]
    s = F.kept_norm_ratio(w, v)
    assert not s.requires_grad
    assert torch.allclose((s * v).norm(), w[w**2 > TAU].norm())
    assert F.kept_norm_ratio(w, torch.zeros_like(w)).isfinite()


def test_eq_20_is_the_gradient_of_the_whole_objective_where_the_clamp_does_not_bind():
    w, grad_v, lam = weights(), weights(1), 0.3
    full = slope(lambda x: x * F.soft_gate(x, TAU, T) * grad_v + lam * F.soft_gate(x, TAU, T), w)
    by_loss = slope(lambda x: x * F.soft_gate(x, TAU, T) * grad_v, w)
    found = F.clamped_weight_gradient(by_loss, w, TAU, T, lam, lr=1e-6)
    assert torch.allclose(found, full, atol=1e-6)


def test_eq_17_bounds_the_step_of_weights_in_the_transition_region():
    w = torch.full((4,), TAU.sqrt().item(), dtype=torch.float64)
    found = F.clamped_weight_gradient(torch.full_like(w, 1e3), w, TAU, T, lam=1.0, lr=0.1)
    assert torch.all(0.1 * found.abs() <= 0.1 * T + 1e-12)


def test_eq_17_bounds_the_step_that_momentum_makes_of_a_steady_gradient():
    lr, beta = 0.1, 0.9
    w = torch.full((4,), TAU.sqrt().item(), dtype=torch.float64)
    found = F.clamped_weight_gradient(
        torch.full_like(w, 1e3), w, TAU, T, lam=1.0, lr=lr, momentum=beta
    )
    velocity = torch.zeros_like(w)
    for _ in range(500):  # SGD's rule, until the velocity is steady
        velocity = beta * velocity + found
    assert torch.allclose(lr * velocity, torch.full_like(w, 0.1 * T), rtol=1e-9)


def test_eq_17_leaves_weights_outside_the_transition_region_their_gradient():
    w = torch.tensor([0.0, 1.0], dtype=torch.float64)
    grad, tau = torch.full_like(w, 1e3), torch.tensor(0.5, dtype=torch.float64)
    assert torch.allclose(
        F.clamped_weight_gradient(grad, w, tau, T, lam=0.3, lr=0.1, momentum=0.9), grad, rtol=1e-12
    )


@pytest.mark.parametrize(
    ("distance", "limited"), [(-7.9, True), (-8.1, False), (7.9, True), (8.1, False)]
)
def test_eq_17_takes_eight_temperatures_on_either_side_for_the_transition_region(
    distance: float, limited: bool
):
    tau = torch.tensor(0.5, dtype=torch.float64)
    w = (tau + distance * T).sqrt()[None]
    found = F.clamped_weight_gradient(torch.full_like(w, 1e3), w, tau, T, lam=0.0, lr=0.1)
    assert found.item() == pytest.approx(0.1 * T / 0.1 if limited else 1e3)


def test_low_threshold_gets_no_gradient():
    """Where the gate is one, 1 - ρ² is zero to the last bit: nothing is left for a tiny τ² to magnify."""
    w, tau = torch.randn(1000), torch.tensor(1e-12, requires_grad=True)
    F.rectified_prune([w], tau[None], [1.0])[0].square().sum().backward()
    assert tau.grad.item() == 0.0
