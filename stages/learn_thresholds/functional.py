"""The equations of Learned Threshold Pruning (Azarian et al., 2021) as pure functions of tensors.

Numbers are the labels of the paper's LaTeX source; docs/method.md maps them to the printed ones. Symbols: w weights of
a layer, v their pruned version, τ the layer's threshold on w², T its temperature, λ the weight of the regulariser.
Equations (R1) to (R3), (R6) and (R8) are ours, a small step from the paper's; docs/method.md derives them. In these, r
stands for the size of a weight: it is w itself, or the root mean square of the block that w is pruned with (R8).
"""

from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor

TRANSITION = 8.0  # in units of T: beyond it the sigmoid is 0 or 1 to three digits


class WeightGradient(StrEnum):
    """How ∂v/∂w is taken in the backward pass."""

    APPROXIMATE = "4"  # sigm((w² - τ) / T): the sigmoid as a constant, so that no gap opens around the threshold
    CLAMPED = "20"  # with the σ_T term and the regulariser's, clamped by eq. (17)
    EXACT = "10"  # with the σ_T term and no clamp, for the paper's ablation


def is_kept(w: Tensor, tau: Tensor | float) -> Tensor:
    """Evaluate step(w² - τ), the factor in v = w · step(w² - τ). Eq. (9)."""
    return w.square() > tau


def soft_gate(w: Tensor, tau: Tensor, T: Tensor | float) -> Tensor:
    """Evaluate sigm((w² - τ) / T), how far each weight is kept. The factor in eq. (1)."""
    return torch.sigmoid((w.square() - tau) / T)


def sigma_T(w: Tensor, tau: Tensor, T: Tensor | float) -> Tensor:
    """Derivative of the gate with respect to w: 2w/T · sigm · (1 - sigm). Eq. (14)."""
    s = soft_gate(w, tau, T)
    return 2 * w / T * s * (1 - s)


def soft_prune(
    w: Tensor, tau: Tensor, T: Tensor | float, gradient: WeightGradient = WeightGradient.APPROXIMATE
) -> Tensor:
    """v = w · sigm((w² - τ) / T), differentiable in w and τ. Eq. (1), with gradients (10) for τ and (4) for w."""
    v: Tensor = _SoftPrune.apply(w, tau, T, gradient)  # type: ignore[no-untyped-call]
    return v


def soft_l0(w: Tensor, tau: Tensor, T: Tensor | float) -> Tensor:
    """L0 = Σ sigm((w² - τ) / T), the differentiable count of kept weights. Eq. (2)."""
    return soft_gate(w, tau, T).sum()


def soft_l0_slope(w: Tensor, tau: Tensor, T: Tensor | float) -> Tensor:
    """∂L0/∂τ = -½ Σ σ_T(w)/w, written without the division. Eq. (16)."""
    s = soft_gate(w, tau, T)
    return -(s * (1 - s)).sum() / T


def threshold_step(grad_loss: Tensor, grad_l0: Tensor, lam: float, lr: float) -> Tensor:
    """Δτ = -η_τ (∂L/∂τ + λ ∂L0/∂τ), a step down the loss L + λ Σ L0 of eq. (18). Eq. (8)."""
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
    """Add λ σ_T to ∂L/∂w, eq. (20), and keep the step of weights in the transition region small against T, eq. (17).

    With momentum β a steady gradient moves a weight by η / (1 - β) of it a step, so that is the η of (17).
    """
    full = grad + lam * sigma_T(w, tau, T)
    eta = lr / (1 - momentum)
    limit = torch.as_tensor(share * T / eta)
    inside = (w.square() - tau).abs() < TRANSITION * T
    return torch.where(inside, full.clamp(-limit, limit), full)


def layer_temperature(w: Tensor, t0: float) -> Tensor:
    """T = T0 · σ²_|w|. Eq. (12)."""
    return t0 * w.abs().var(correction=0)


def rectified_gates(rs: list[Tensor], taus: Tensor, cs: Sequence[float]) -> list[Tensor]:
    """ρ = max(0, 2 sigm((r² - τ) / T) - 1) with T = cτ: exactly zero below the threshold, rising softly above. (R1).

    For several layers at once, so that a network of many small ones does not spend its time between them.
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
    """v = w · ρ, differentiable in τ, with ∂v/∂w taken as 1 above the threshold and 0 below, as eq. (4) does. (R2).

    The gate is that of `rs`, by (R8); without them, of the weights themselves.

    The layers at the positions `scaled` are brought back to the scale of what they keep, s · w · ρ by (R6): here, so
    that gradients need no pass of their own for it.
    """
    vs: tuple[Tensor, ...] = _RectifiedPrune.apply(taus, cs, scaled, rs or ws, *ws)  # type: ignore[no-untyped-call]
    return vs


def kept_norm_ratio(w: Tensor, v: Tensor) -> Tensor:
    """s = ‖w where v ≠ 0‖ / ‖v‖: by how much the gate shrank a layer; a constant for gradients. (R6)."""
    w, v = w.detach(), v.detach()
    kept = v.sign().mul_(
        w
    )  # but for signs, which a norm does not see; several times faster than a comparison
    s: Tensor = kept.norm() / v.norm().clamp_min(torch.finfo(v.dtype).tiny)
    return s


def log_threshold_step(grad_loss: Tensor, lr: float, cs: Tensor) -> Tensor:
    """Δ log τ = -η c ∂L/∂log τ, clipped to η: eq. (8) free of scale, without its λ, which is solved for. (R3).

    The gradient grows as 1/c, because the gate rises within cτ; the factor c takes that out again.
    """
    return -lr * (cs * grad_loss).clamp(-1, 1)


class _RectifiedPrune(torch.autograd.Function):
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
        # ρ is never negative: its sign is the mask, and several times faster than a comparison
        grad_ws = torch._foreach_sign(gates)
        torch._foreach_mul_(grad_ws, [g.contiguous() for g in grads])
        for i, s in ctx.scales.items():
            grad_ws[i].mul_(s)
        # ∂ρ/∂τ = -(1 - ρ²) / 2c · r²/τ² above the threshold; τ divides last and twice, because τ² may underflow
        slopes = (
            gates  # in place: a new tensor of that size costs more than what is computed with it
        )
        torch._foreach_mul_(slopes, gates)
        torch._foreach_neg_(slopes)
        torch._foreach_add_(slopes, 1.0)
        for factors in (rs, rs, ws):
            torch._foreach_mul_(slopes, factors)
        sums = torch.stack(
            [torch.dot(g.flatten(), s.flatten()) for g, s in zip(grad_ws, slopes, strict=True)]
        )
        return -sums / taus / (2 * taus.new_tensor(ctx.cs) * taus), None, None, None, *grad_ws


class _SoftPrune(torch.autograd.Function):
    """Keeps only w for the backward pass and computes the sigmoid again there: no second copy of the weights."""

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
