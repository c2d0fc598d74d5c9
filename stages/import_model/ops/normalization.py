"""Normalization layers.

Running statistics are detached: training updates them in place, and no gradient flows to them.
"""

# ruff: noqa: ARG001 - every attribute of the standard is a keyword, also where it changes nothing here

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, distributed

from ltp_pipeline.stages.import_model.ops.common import positive_axis, to_torch_type
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
        distributed.all_reduce(total := x.clone())
        return total

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        distributed.all_reduce(total := gradient.clone())
        return total


def _sum_over_ranks(x: Tensor) -> Tensor:
    total: Tensor = _SumOverRanks.apply(x)  # type: ignore[no-untyped-call]
    return total


def _normalize_batch(
    x: Tensor,
    mean: Tensor,
    var: Tensor,
    scale: Tensor,
    b: Tensor,
    training: bool,
    share: float,
    epsilon: float,
) -> Tensor:
    """Normalize by the stored statistics, or in training by those of the batch of all processes."""
    if not (training and ranks.is_distributed()):
        return F.batch_norm(x, mean, var, scale, b, training, share, epsilon)
    dims = [0, *range(2, x.dim())]
    wide = x.float()
    count = ranks.get_world_size() * x.numel() // x.shape[1]
    shape = [1, -1, *[1] * (x.dim() - 2)]
    batch_mean = _sum_over_ranks(wide.sum(dims)) / count
    centred = wide - batch_mean.view(shape)
    batch_var = _sum_over_ranks(centred.square().sum(dims)) / count
    with torch.no_grad():
        mean.lerp_(batch_mean.to(mean.dtype), share)
        var.lerp_((batch_var * (count / max(count - 1, 1))).to(var.dtype), share)
    factor = torch.rsqrt(batch_var + epsilon) * scale.float()
    return (centred * factor.view(shape) + b.float().view(shape)).to(x.dtype)


@op("BatchNormalization", since=7, weights=(1, 2), statistics=(3, 4))
def batch_normalization_7(
    x: Tensor,
    scale: Tensor,
    b: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    spatial: int = 1,
    training: bool = False,
    n_outputs: int = 1,
) -> Tensor | tuple[Tensor, ...]:
    if not spatial:  # statistics of each activation
        y = (x - mean) * torch.rsqrt(var + epsilon) * scale + b
    else:
        y = _normalize_batch(
            x, mean.detach(), var.detach(), scale, b, training, update_fraction(momentum), epsilon
        )
    return (y, mean, var, mean, var)[:n_outputs] if n_outputs > 1 else y


@op("BatchNormalization", since=14, weights=(1, 2), statistics=(3, 4))
def batch_normalization_14(
    x: Tensor,
    scale: Tensor,
    b: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
    training: bool = False,
    n_outputs: int = 1,
) -> Tensor | tuple[Tensor, ...]:
    if training or not training_mode:
        y = _normalize_batch(
            x, mean.detach(), var.detach(), scale, b, training, update_fraction(momentum), epsilon
        )
        return (y, mean, var)[:n_outputs] if n_outputs > 1 else y
    # A graph exported in train mode, run for evaluation: statistics of the batch, the stored ones
    # untouched.
    y = F.batch_norm(x, None, None, scale, b, True, 0.0, epsilon)
    if n_outputs == 1:
        return y
    batch_var, batch_mean = torch.var_mean(x.float(), [0, *range(2, x.dim())], correction=0)
    mean = mean * momentum + batch_mean.to(mean.dtype) * (1 - momentum)
    return y, mean, var * momentum + batch_var.to(var.dtype) * (1 - momentum)


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
    shape = x.shape[positive_axis(axis, x.dim()) :]
    if n_outputs == 1 and scale.shape == shape and (b is None or b.shape == shape):
        return F.layer_norm(x, shape, scale, b, epsilon)
    wide = x.to(to_torch_type(stash_type))
    dims = list(range(x.dim() - len(shape), x.dim()))
    variance, mean = torch.var_mean(wide, dims, correction=0, keepdim=True)
    inverse = torch.rsqrt(variance + epsilon)
    y = ((wide - mean) * inverse).to(x.dtype) * scale
    y = y if b is None else y + b
    return (y, mean, inverse)[:n_outputs] if n_outputs > 1 else y


def root_mean_square_norm(
    x: Tensor, scale: Tensor, axis: int, epsilon: float, stash_type: int = 1
) -> tuple[Tensor, Tensor]:
    """Divide `x` by its root mean square and multiply by `scale`.

    Returns:
        The result, and the inverse of the root mean square.
    """
    dims = list(range(positive_axis(axis, x.dim()), x.dim()))
    wide = x.to(to_torch_type(stash_type))
    inverse = torch.rsqrt(wide.square().mean(dims, keepdim=True) + epsilon)
    return (wide * inverse).to(x.dtype) * scale, inverse


@op("RMSNormalization", since=23, weights=(1,))
def rms_normalization(
    x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    return root_mean_square_norm(x, scale, axis, epsilon, stash_type)[0]


@op("SimplifiedLayerNormalization", weights=(1,))  # onnxruntime's own
def simplified_layer_normalization(
    x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> tuple[Tensor, Tensor]:
    return root_mean_square_norm(x, scale, axis, epsilon, stash_type)


@op("GroupNormalization", since=18, weights=(1, 2))
def group_normalization_18(
    x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5, num_groups: int
) -> Tensor:
    each = x.shape[1] // num_groups  # here scale and bias belong to groups, later to channels
    return F.group_norm(
        x, num_groups, scale.repeat_interleave(each), bias.repeat_interleave(each), epsilon
    )


@op("GroupNormalization", since=21, weights=(1, 2))
def group_normalization_21(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    *,
    epsilon: float = 1e-5,
    num_groups: int,
    stash_type: int = 1,
) -> Tensor:
    return F.group_norm(x, num_groups, scale, bias, epsilon)


@op("LRN")
def lrn(
    x: Tensor, *, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0, size: int
) -> Tensor:
    squares = x.square().flatten(2).unsqueeze(1)
    squares = F.pad(squares, (0, 0, (size - 1) // 2, size // 2))
    mean = F.avg_pool2d(squares, (size, 1), (1, 1)).reshape(x.shape)
    return x / (bias + alpha * mean).pow(beta)


@op("LpNormalization")
def lp_normalization(x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    norm = torch.linalg.vector_norm(x, p, axis, keepdim=True)
    return torch.where(
        norm == 0, torch.zeros_like(x), x / norm.where(norm != 0, torch.ones_like(norm))
    )


@op("MeanVarianceNormalization", since=9)
def mean_variance_normalization(x: Tensor, *, axes: Sequence[int] = (0, 2, 3)) -> Tensor:
    variance, mean = torch.var_mean(x, list(axes), correction=0, keepdim=True)
    return (x - mean) / (variance.sqrt() + 1e-9)
