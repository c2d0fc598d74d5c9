"""Rounding as int8 files do it, with a gradient: what is computed is what the file computes, in float.

The gradient passes straight through where a value lies within the range, and is zero outside.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, distributed

from ltp_pipeline.system import distributed as ranks

HIGHEST_STEP = 255  # of an activation in 8 bits without a sign; the lowest is 0
RANGE_MOMENTUM = 0.01  # how far one batch moves a range
EMPTY_WEIGHT = 1e-3  # largest weight that is assumed where a kernel has none
LARGEST_BIAS = 2.0**30  # in steps


class _Rounded(torch.autograd.Function):
    """x in steps of a scale, back in float; the gradient of x where it lies between the lowest and the highest step."""

    @staticmethod
    def forward(
        context: Any, x: Tensor, scale: Tensor, zero: Tensor, lowest: float, highest: float
    ) -> Tensor:
        steps = torch.round(x / scale) + zero
        context.save_for_backward((steps >= lowest) & (steps <= highest))
        return (steps.clamp(lowest, highest) - zero) * scale

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        (inside,) = context.saved_tensors
        return gradient * inside, None, None, None, None


def round_to_scale(x: Tensor, scale: Tensor, zero: Tensor, lowest: float, highest: float) -> Tensor:
    """Round x to whole steps of a scale, of which there are those from `lowest` to `highest`."""
    y: Tensor = _Rounded.apply(x, scale, zero, lowest, highest)  # type: ignore[no-untyped-call]
    return y


def compute_scale_and_zero(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """The scale and the zero point of an activation's range."""
    low, high = low.clamp_max(0.0), high.clamp_min(0.0)
    scale = (high - low) / HIGHEST_STEP
    scale = torch.where(scale >= torch.finfo(scale.dtype).tiny, scale, torch.ones_like(scale))
    return scale, torch.round(-low / scale).clamp(0, HIGHEST_STEP)


def compute_weight_scale(w: Tensor, axis: int, largest: int) -> Tensor:
    """A scale per output channel; channels without weights get that of the others, for the sake of their biases."""
    spans = w.detach().abs().amax([i for i in range(w.dim()) if i != axis], keepdim=True)
    there = spans > 0
    usual = spans[there].mean() if bool(there.any()) else spans.new_tensor(EMPTY_WEIGHT)
    return torch.where(there, spans, usual) / largest


def round_weight(w: Tensor, scale: Tensor, largest: int) -> Tensor:
    """A weight as the file has it."""
    return round_to_scale(w, scale, torch.zeros_like(scale), -largest, largest)


@torch.no_grad()
def update_range(held: Tensor, x: Tensor, share: tuple[float, float]) -> None:
    """Move a range, in place, towards this share of the extremes of a batch; those of all processes count."""
    low, high = x.detach().aminmax()
    extremes = torch.stack([low, -high]).to(held)
    if ranks.is_distributed():
        distributed.all_reduce(extremes, distributed.ReduceOp.MIN)
    outermost = extremes.clamp_max(0.0) * extremes.new_tensor([share[0], -share[1]])
    if bool(outermost.isfinite().all()):
        held.lerp_(outermost, RANGE_MOMENTUM)


def round_activation(
    x: Tensor, held: Tensor, *, share: tuple[float, float] | None = None, training: bool = False
) -> Tensor:
    """An activation as the file has it; in training its range follows it, where a share is given."""
    x = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
    if training and share is not None:
        update_range(held, x, share)
    return round_to_scale(
        x, *compute_scale_and_zero(held[0].clone(), held[1].clone()), 0, HIGHEST_STEP
    )


def round_dynamic_activation(x: Tensor, *, training: bool = False) -> Tensor:  # noqa: ARG001 - the same at any time
    """An activation whose range is found at every run."""
    x = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
    return round_to_scale(x, *compute_scale_and_zero(*x.detach().aminmax()), 0, HIGHEST_STEP)
