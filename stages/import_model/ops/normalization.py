"""Normalization layers.

Running statistics are detached: training updates them in place, and no gradient flows to them.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, distributed

from ltp_pipeline.stages.import_model.ops.common import (
    make_view_shape,
    positive_axis,
    to_torch_type,
)
from ltp_pipeline.stages.import_model.registry import op
from ltp_pipeline.system import distributed as ranks


def update_fraction(momentum: float) -> float:
    """Return the fraction by which one batch moves running statistics.

    A file that fixes its statistics (momentum 1) is trained like any other.
    """
    return 1 - momentum if momentum < 1 else 0.1


class _SumOverRanks(torch.autograd.Function):
    """A sum over all processes, whose gradient is the sum of their gradients."""

    @staticmethod
    def forward(_: Any, x: Tensor) -> Tensor:
        total = x.clone()
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        total = gradient.clone()
        distributed.all_reduce(total)
        return total


def _sum_over_ranks(x: Tensor) -> Tensor:
    total: Tensor = _SumOverRanks.apply(x)  # type: ignore[no-untyped-call]
    return total


def _batch_axes(x: Tensor) -> list[int]:
    """Return all axes but that of the channels."""
    return [0, *range(2, x.dim())]


def _normalize_over_ranks(
    x: Tensor,
    mean: Tensor,
    var: Tensor,
    scale: Tensor,
    b: Tensor,
    fraction: float,
    epsilon: float,
) -> Tensor:
    """Normalize by the statistics of the batch of all processes, and move the stored ones."""
    dims = _batch_axes(x)
    shape = make_view_shape(x.dim(), 1)
    wide = x.float()
    count = ranks.get_world_size() * x.numel() // x.shape[1]
    batch_mean = _sum_over_ranks(wide.sum(dims)) / count
    centered = wide - batch_mean.view(shape)
    batch_var = _sum_over_ranks(centered.square().sum(dims)) / count
    unbiased_var = batch_var * (count / max(count - 1, 1))
    with torch.no_grad():
        mean.lerp_(batch_mean.to(mean.dtype), fraction)
        var.lerp_(unbiased_var.to(var.dtype), fraction)
    factor = torch.rsqrt(batch_var + epsilon) * scale.float()
    y = centered * factor.view(shape) + b.float().view(shape)
    return y.to(x.dtype)


@op("BatchNormalization", weights=(1, 2), statistics=(3, 4))
def batch_normalization(
    x: Tensor,
    scale: Tensor,
    b: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    spatial: int = 1,
    training_mode: int = 0,
    training: bool = False,
    n_outputs: int = 1,
) -> tuple[Tensor, ...]:
    if not spatial:  # statistics of each activation
        y = (x - mean) * torch.rsqrt(var + epsilon) * scale + b
    elif training_mode and not training:
        # A graph exported in train mode, run for evaluation: statistics of the batch, the stored
        # ones untouched.
        y = F.batch_norm(x, None, None, scale, b, True, 0.0, epsilon)
        if n_outputs > 1:
            fraction = 1 - momentum
            batch_var, batch_mean = torch.var_mean(x.float(), _batch_axes(x), correction=0)
            mean = mean * momentum + batch_mean.to(mean.dtype) * fraction
            var = var * momentum + batch_var.to(var.dtype) * fraction
    else:
        statistics = (mean.detach(), var.detach())
        fraction = update_fraction(momentum)
        if training and ranks.is_distributed():
            y = _normalize_over_ranks(x, *statistics, scale, b, fraction, epsilon)
        else:
            y = F.batch_norm(x, *statistics, scale, b, training, fraction, epsilon)
    return y, mean, var, mean, var


@op("InstanceNormalization", weights=(1, 2))
def instance_normalization(x: Tensor, scale: Tensor, b: Tensor, *, epsilon: float = 1e-5) -> Tensor:
    return torch.instance_norm(
        x, scale, b, None, None, True, 0.0, epsilon, torch.backends.cudnn.enabled
    )


@op("LayerNormalization", weights=(1, 2))  # before opset 17 onnxruntime's own
def layer_normalization(
    x: Tensor,
    scale: Tensor,
    b: Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    n_outputs: int = 1,
) -> Tensor | tuple[Tensor, ...]:
    first = positive_axis(axis, x.dim())
    shape = x.shape[first:]
    is_full = scale.shape == shape and (b is None or b.shape == shape)
    if n_outputs == 1 and is_full:
        return F.layer_norm(x, shape, scale, b, epsilon)
    wide = x.to(to_torch_type(stash_type))
    dims = list(range(first, x.dim()))
    variance, mean = torch.var_mean(wide, dims, correction=0, keepdim=True)
    inverse = torch.rsqrt(variance + epsilon)
    normalized = (wide - mean) * inverse
    y = normalized.to(x.dtype) * scale
    if b is not None:
        y = y + b
    return y, mean, inverse


@op("SimplifiedLayerNormalization", weights=(1,))  # onnxruntime's own
def simplified_layer_normalization(
    x: Tensor,
    scale: Tensor,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> tuple[Tensor, Tensor]:
    rank = x.dim()
    dims = list(range(positive_axis(axis, rank), rank))
    wide = x.to(to_torch_type(stash_type))
    mean_square = wide.square().mean(dims, keepdim=True)
    inverse = torch.rsqrt(mean_square + epsilon)
    return (wide * inverse).to(x.dtype) * scale, inverse


op("RMSNormalization", weights=(1,))(simplified_layer_normalization)


@op("GroupNormalization", weights=(1, 2))
def group_normalization(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    *,
    epsilon: float = 1e-5,
    num_groups: int,
    stash_type: int = 1,
) -> Tensor:
    if scale.numel() == num_groups:  # up to opset 20, scale and bias belong to groups
        channels = x.shape[1] // num_groups
        scale = scale.repeat_interleave(channels)
        bias = bias.repeat_interleave(channels)
    return F.group_norm(x, num_groups, scale, bias, epsilon)


@op("LRN")
def lrn(
    x: Tensor,
    *,
    alpha: float = 1e-4,
    beta: float = 0.75,
    bias: float = 1.0,
    size: int,
) -> Tensor:
    squares = x.square().flatten(2).unsqueeze(1)
    before = (size - 1) // 2
    squares = F.pad(squares, (0, 0, before, size // 2))
    mean = F.avg_pool2d(squares, (size, 1), (1, 1))
    divisor = bias + alpha * mean.reshape(x.shape)
    return x / divisor.pow(beta)


@op("LpNormalization")
def lp_normalization(x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    norm = torch.linalg.vector_norm(x, p, axis, keepdim=True)
    divisor = norm.where(norm != 0, torch.ones_like(norm))
    return torch.where(norm == 0, torch.zeros_like(x), x / divisor)


@op("MeanVarianceNormalization")
def mean_variance_normalization(x: Tensor, *, axes: Sequence[int] = (0, 2, 3)) -> Tensor:
    variance, mean = torch.var_mean(x, list(axes), correction=0, keepdim=True)
    return (x - mean) / (variance.sqrt() + 1e-9)
