"""The equations of Learned Threshold Pruning (Azarian et al., 2021) as pure functions of tensors.

Numbers are the labels of the paper's LaTeX source; docs/explanation/method.md maps them to the
printed ones. Symbols:

- w: weights of a layer; v: their pruned version
- τ: threshold of the layer, on w²
- T: temperature of the layer
- λ: weight of the regularizer in the loss

Equations (R1) to (R3), (R6) and (R8) are our own, a small step from the paper's;
docs/explanation/method.md derives them. In these, r stands for the size of a weight: the weight w
itself, or the root mean square of the block that w is pruned with (R8). The gate is ρ, its width in
units of τ is c, and κ is the cost of one weight of a layer.
"""

from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor

TRANSITION = 8.0  # in units of T: beyond it the sigmoid is 0 or 1 to three digits


class WeightGradient(StrEnum):
    """Form of ∂v/∂w in the backward pass.

    Attributes:
        APPROXIMATE: Eq. (4), sigm((w² - τ) / T). The sigmoid counts as a constant, so that no gap
            opens around the threshold.
        CLAMPED: Eq. (20), with the σ_T terms of loss and regularizer, clamped by eq. (17).
        EXACT: Eq. (10), with the σ_T term and no clamp, for the paper's ablation.
    """

    APPROXIMATE = "approximate"
    CLAMPED = "clamped"
    EXACT = "exact"


def is_kept(w: Tensor, tau: Tensor | float) -> Tensor:
    """Evaluate step(w² - τ), the factor in v = w · step(w² - τ). Eq. (9)."""
    return w.square() > tau


def soft_gate(w: Tensor, tau: Tensor, T: Tensor | float) -> Tensor:
    """Evaluate sigm((w² - τ) / T), the degree to which each weight is kept. Factor of eq. (1)."""
    return torch.sigmoid((w.square() - tau) / T)


def sigma_T(w: Tensor, tau: Tensor, T: Tensor | float) -> Tensor:
    """Evaluate the derivative of the gate with respect to w, 2w/T · sigm · (1 - sigm). Eq. (14)."""
    s = soft_gate(w, tau, T)
    return 2 * w / T * s * (1 - s)


def soft_prune(
    w: Tensor, tau: Tensor, T: Tensor | float, gradient: WeightGradient = WeightGradient.APPROXIMATE
) -> Tensor:
    """Evaluate v = w · sigm((w² - τ) / T), differentiable in w and τ. Eq. (1).

    The gradient with respect to τ is eq. (10), with respect to w the requested form of it.
    """
    v: Tensor = _SoftPrune.apply(w, tau, T, gradient)  # type: ignore[no-untyped-call]
    return v


def soft_l0(w: Tensor, tau: Tensor, T: Tensor | float) -> Tensor:
    """Evaluate L0 = Σ sigm((w² - τ) / T), the differentiable count of kept weights. Eq. (2)."""
    return soft_gate(w, tau, T).sum()


def soft_l0_slope(w: Tensor, tau: Tensor, T: Tensor | float) -> Tensor:
    """Evaluate ∂L0/∂τ = -½ Σ σ_T(w)/w, written without the division. Eq. (16)."""
    s = soft_gate(w, tau, T)
    return -(s * (1 - s)).sum() / T


def threshold_step(grad_loss: Tensor, grad_l0: Tensor, lam: float, lr: float) -> Tensor:
    """Evaluate Δτ = -η_τ (∂L/∂τ + λ ∂L0/∂τ), a step down the loss of eq. (18). Eq. (8)."""
    return -lr * (grad_loss + lam * grad_l0)


def clamped_weight_gradient(
    grad: Tensor,
    w: Tensor,
    tau: Tensor,
    T: Tensor | float,
    lam: float,
    lr: float,
    momentum: float = 0.0,
    share: float = 0.1,
) -> Tensor:
    """Add λ σ_T to ∂L/∂w, eq. (20), and limit the step of weights near the threshold, eq. (17).

    With momentum β, a steady gradient moves a weight by η / (1 - β) times the gradient in each
    step. That is the η of eq. (17).

    Args:
        grad: ∂L/∂w.
        w: Weights of the layer.
        tau: Threshold of the layer.
        T: Temperature of the layer.
        lam: λ.
        lr: Learning rate of the weights.
        momentum: β of the optimizer.
        share: The largest step on w², as a fraction of T.
    """
    full = grad + lam * sigma_T(w, tau, T)
    eta = lr / (1 - momentum)
    limit = torch.as_tensor(share * T / eta)
    inside = (w.square() - tau).abs() < TRANSITION * T
    return torch.where(inside, full.clamp(-limit, limit), full)


def layer_temperature(w: Tensor, t0: float) -> Tensor:
    """Evaluate T = T0 · σ²_|w|. Eq. (12)."""
    return t0 * w.abs().var(correction=0)


def rectified_gates(rs: list[Tensor], taus: Tensor, cs: Sequence[float]) -> list[Tensor]:
    """Evaluate ρ = max(0, 2 sigm((r² - τ) / T) - 1) with T = cτ, for several layers at once. (R1).

    The gate is exactly zero below the threshold and rises softly above it. Layers are computed
    together, so that a network of many small layers does not spend its time between them.

    Args:
        rs: r of each layer.
        taus: Thresholds of the layers.
        cs: Gate widths of the layers.
    """
    starts = [r.new_full((), -0.5 / c) for r, c in zip(rs, cs, strict=True)]
    gates = torch._foreach_addcmul(
        starts, rs, rs, [0.5 / (c * tau) for c, tau in zip(cs, taus.tolist(), strict=True)]
    )
    torch._foreach_tanh_(gates)
    torch._foreach_clamp_min_(gates, 0.0)
    return list(gates)


def rectified_prune(
    ws: list[Tensor],
    taus: Tensor,
    cs: Sequence[float],
    scaled: Collection[int] = (),
    rs: list[Tensor] | None = None,
) -> tuple[Tensor, ...]:
    """Evaluate v = w · ρ, differentiable in τ, for several layers at once. (R2).

    ∂v/∂w is taken as min(1, r² / τ). Weights above the threshold learn as eq. (4) has it. A pruned
    weight learns the less, the farther it is below the threshold, and can return.

    Args:
        ws: Weights of each layer.
        taus: Thresholds of the layers.
        cs: Gate widths of the layers.
        scaled: Positions of layers that are brought back to the norm of the weights they keep,
            v = s · w · ρ. (R6). This is done here, because a separate pass would need gradients
            of its own.
        rs: r of each layer (R8); None if weights are pruned one by one.
    """
    vs: tuple[Tensor, ...] = _RectifiedPrune.apply(taus, cs, scaled, rs or ws, *ws)  # type: ignore[no-untyped-call]
    return vs


def kept_norm_ratio(w: Tensor, v: Tensor) -> Tensor:
    """Return s = ‖w where v ≠ 0‖ / ‖v‖, the factor by which the gate shrank a layer. (R6).

    Gradients treat it as a constant.
    """
    w = w.detach()
    v = v.detach()
    # The kept weights, apart from their signs, which a norm does not see. This is several times
    # faster than a comparison.
    kept_weights = v.sign().mul_(w)
    s: Tensor = kept_weights.norm() / v.norm().clamp_min(torch.finfo(v.dtype).tiny)
    return s


def gate_slopes(rs: list[Tensor], taus: Tensor, cs: Sequence[float]) -> Tensor:
    """Evaluate D = -∂n/∂log τ for the soft count n = Σ ρ of each layer, as eq. (16) does. (R3).

    D = Σ (1 - ρ²) r² / 2cτ over the weights with ρ > 0.

    Args:
        rs: r of each layer.
        taus: Thresholds of the layers.
        cs: Gate widths of the layers.
    """
    gates = rectified_gates(rs, taus, cs)
    sums = []
    for r, gate in zip(rs, gates, strict=True):
        is_open = gate.sign()
        sums.append(torch.dot((is_open - gate.square()).flatten(), r.square().flatten()))
    return torch.stack(sums) / (2 * taus.new_tensor(cs) * taus)


def balance_step(grad_loss: Tensor, slopes: Tensor, costs: Tensor, rate: float) -> Tensor:
    """Evaluate Δ log τ = -rate · log(m / λ), limited to ±rate, with m = G / (κ D). (R3).

    This moves towards the fixed point of eq. (8), where every layer loses the same for each unit of
    cost that it saves: m is that loss in a layer, and λ = Σ G / Σ κ D in all layers together. The
    step depends neither on the scale of the loss nor on the size of a layer.

    Args:
        grad_loss: G = ∂L/∂log τ of each layer.
        slopes: D of each layer.
        costs: κ of each layer.
        rate: The largest step.
    """
    saved = (costs * slopes).clamp_min(torch.finfo(slopes.dtype).tiny)
    lam = grad_loss.sum() / saved.sum()
    if not lam > 0:  # the loss does not rise with the thresholds, so there is nothing to balance
        return torch.zeros_like(grad_loss)
    prices = grad_loss / saved / lam
    return -rate * prices.clamp_min(torch.finfo(prices.dtype).tiny).log().clamp(-1, 1)


class _RectifiedPrune(torch.autograd.Function):
    """Pruning by the rectified gate."""

    @staticmethod
    def forward(
        ctx: Any,
        taus: Tensor,
        cs: Sequence[float],
        scaled: Collection[int],
        rs: list[Tensor],
        *ws: Tensor,
    ) -> tuple[Tensor, ...]:
        gates = rectified_gates(rs, taus, cs)
        vs = torch._foreach_mul(ws, gates)
        ctx.scales = {i: kept_norm_ratio(ws[i], vs[i]) for i in scaled}
        for i, s in ctx.scales.items():
            vs[i].mul_(s)
        ctx.save_for_backward(taus, *ws, *rs, *gates)
        ctx.cs = cs
        return tuple(vs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        taus, *rest = ctx.saved_tensors
        ws, rs, gates = (rest[i * len(grads) : (i + 1) * len(grads)] for i in range(3))
        upstream = [g.contiguous() for g in grads]
        # Above the threshold, ∂ρ/∂τ = -(1 - ρ²) / 2c · r²/τ², and 0 below it. ρ is never negative,
        # so its sign is the mask, which is several times faster to compute than a comparison. τ
        # divides last and twice, because τ² may underflow.
        squares = torch._foreach_mul(rs, rs)
        slopes = torch._foreach_sign(gates)
        torch._foreach_addcmul_(slopes, gates, gates, value=-1.0)
        torch._foreach_mul_(slopes, squares)
        torch._foreach_mul_(slopes, ws)
        sums = [torch.dot(g.flatten(), s.flatten()) for g, s in zip(upstream, slopes, strict=True)]
        # In place, because a new tensor of that size costs more than what is computed with it.
        grad_ws = squares
        torch._foreach_mul_(grad_ws, taus.reciprocal().tolist())
        torch._foreach_clamp_max_(grad_ws, 1.0)
        torch._foreach_mul_(grad_ws, upstream)
        for i, s in ctx.scales.items():
            grad_ws[i].mul_(s)
            sums[i] = sums[i] * s
        grad_taus = -torch.stack(sums) / taus / (2 * taus.new_tensor(ctx.cs) * taus)
        return grad_taus, None, None, None, *grad_ws


class _SoftPrune(torch.autograd.Function):
    """Soft pruning that saves only w for the backward pass and computes the sigmoid again there.

    So no second copy of the weights is held.
    """

    @staticmethod
    def forward(
        ctx: Any, w: Tensor, tau: Tensor, T: Tensor | float, gradient: WeightGradient
    ) -> Tensor:
        ctx.save_for_backward(w, tau)
        ctx.T, ctx.gradient = T, gradient
        return w * soft_gate(w, tau, T)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        w, tau = ctx.saved_tensors
        grad_v = grads[0]
        s = soft_gate(w, tau, ctx.T)
        half_sigma = w * (s * (1 - s)) / ctx.T  # ½ σ_T(w)
        grad_tau = -(grad_v * half_sigma).sum()
        if ctx.gradient != WeightGradient.APPROXIMATE:
            return grad_v * (s + 2 * w * half_sigma), grad_tau, None, None
        return grad_v * s, grad_tau, None, None  # eq. (21): ∂L_T/∂w ≈ sigm((w² - τ) / T) · ∂L/∂v
