"""Round values in float as int8 files round them, with a gradient for training.

The gradient passes straight through the rounding if a value is within the range, and is zero if it
is outside.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, distributed

from ltp_pipeline.exporters.int8.layers import EMPTY_WEIGHT_SPAN
from ltp_pipeline.exporters.int8.training_graph import HIGHEST_STEP
from ltp_pipeline.system import distributed as ranks

RANGE_MOMENTUM = 0.01  # how far one batch moves a range
LARGEST_BIAS = 2.0**30  # largest bias in steps of its scale


class _RoundedValue(torch.autograd.Function):
    """x rounded to steps of a scale, with the gradient of x for steps that are not clipped."""

    @staticmethod
    def forward(
        context: Any, x: Tensor, scale: Tensor, zero_point: Tensor, lowest: float, highest: float
    ) -> Tensor:
        steps = torch.round(x / scale) + zero_point
        context.save_for_backward((steps >= lowest) & (steps <= highest))
        return (steps.clamp(lowest, highest) - zero_point) * scale

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        (is_inside,) = context.saved_tensors
        return gradient * is_inside, None, None, None, None


def round_to_scale(
    x: Tensor, scale: Tensor, zero_point: Tensor, lowest: float, highest: float
) -> Tensor:
    """Round x to steps of a scale.

    Args:
        x: Values.
        scale: Size of a step; broadcasts over x.
        zero_point: The step that is zero.
        lowest: Lowest step; values below are clipped.
        highest: Highest step; values above are clipped.
    """
    y: Tensor = _RoundedValue.apply(x, scale, zero_point, lowest, highest)  # type: ignore[no-untyped-call]
    return y


def compute_scale_and_zero(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Return the scale and the zero point of an activation whose values lie in a range."""
    low = low.clamp_max(0.0)
    high = high.clamp_min(0.0)
    scale = (high - low) / HIGHEST_STEP
    scale = torch.where(scale >= torch.finfo(scale.dtype).tiny, scale, torch.ones_like(scale))
    return scale, torch.round(-low / scale).clamp(0, HIGHEST_STEP)


def compute_weight_scale(weight: Tensor, axis: int, largest: int) -> Tensor:
    """Return a scale per output channel, in a shape that divides the weight.

    A channel that is all zero needs a scale for its bias. It gets the average of the others.

    Args:
        weight: Values of the weight.
        axis: Axis of the output channels.
        largest: Largest absolute value in steps.
    """
    other_axes = [i for i in range(weight.dim()) if i != axis]
    spans = weight.detach().abs().amax(other_axes, keepdim=True)
    is_used = spans > 0
    default = spans.new_tensor(EMPTY_WEIGHT_SPAN)
    if bool(is_used.any()):
        default = spans[is_used].mean()
    return torch.where(is_used, spans, default) / largest


def round_weight(weight: Tensor, scale: Tensor, largest: float) -> Tensor:
    """Round a weight to steps of its scale, at most `largest` in absolute value."""
    return round_to_scale(weight, scale, torch.zeros_like(scale), -largest, largest)


@torch.no_grad()
def update_range(value_range: Tensor, x: Tensor, fraction: tuple[float, float]) -> None:
    """Move a range in place towards the extremes of a batch, over all processes.

    Args:
        value_range: Lower and upper end of the range.
        x: Values of the batch.
        fraction: Fractions of the smallest and of the largest value that the ends move to.
    """
    low, high = x.detach().aminmax()
    extremes = torch.stack([low, -high]).to(value_range)
    if ranks.is_distributed():
        distributed.all_reduce(extremes, distributed.ReduceOp.MIN)
    target = extremes.clamp_max(0.0) * extremes.new_tensor([fraction[0], -fraction[1]])
    if bool(target.isfinite().all()):
        value_range.lerp_(target, RANGE_MOMENTUM)


def round_activation(
    x: Tensor,
    value_range: Tensor,
    *,
    fraction: tuple[float, float] | None = None,
    training: bool = False,
) -> Tensor:
    """Round an activation to 255 steps of its range.

    Args:
        x: Values of the activation.
        value_range: Lower and upper end of the range.
        fraction: See `update_range`; None if the range stays.
        training: True to update the range.
    """
    x = _widen(x)
    if training and fraction is not None:
        update_range(value_range, x, fraction)
    # Copies, because the range may change before the gradient is computed.
    low, high = value_range[0].clone(), value_range[1].clone()
    return round_to_scale(x, *compute_scale_and_zero(low, high), 0, HIGHEST_STEP)


def round_dynamic_activation(x: Tensor, *, training: bool = False) -> Tensor:
    """Round an activation to 255 steps of the range of its values."""
    del training  # an instruction passes it; the range is the same
    x = _widen(x)
    return round_to_scale(x, *compute_scale_and_zero(*x.detach().aminmax()), 0, HIGHEST_STEP)


def _widen(x: Tensor) -> Tensor:
    """Return values in half precision as float32."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
