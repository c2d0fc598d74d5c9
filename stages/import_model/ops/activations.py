"""Activation functions."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ltp_pipeline.stages.import_model.ops.common import (
    accept_unsigned,
    positive_axis,
    register_functions,
)
from ltp_pipeline.stages.import_model.registry import OpFunction, op

register_functions(
    {
        "HardSwish": F.hardswish,
        "Mish": F.mish,
        "Relu": F.relu,
        "Sigmoid": torch.sigmoid,
        "Softplus": F.softplus,
        "Softsign": F.softsign,
        "Tanh": torch.tanh,
    }
)


@op("LeakyRelu")
def leaky_relu(x: Tensor, *, alpha: float = 0.01) -> Tensor:
    return F.leaky_relu(x, alpha)


@op("PRelu", weights=(1,))
@accept_unsigned
def p_relu(x: Tensor, slope: Tensor) -> Tensor:
    return torch.where(x < 0, slope * x, x)


@op("ThresholdedRelu")
def thresholded_relu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return F.threshold(x, alpha, 0.0)


@op("Elu")
def elu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return F.elu(x, alpha)


@op("Selu")
def selu(
    x: Tensor, *, alpha: float = 1.6732631921768188, gamma: float = 1.0507010221481323
) -> Tensor:
    return gamma * F.elu(x, alpha)


@op("Celu")
def celu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return F.celu(x, alpha)


@op("HardSigmoid")
def hard_sigmoid(x: Tensor, *, alpha: float = 0.20000000298023224, beta: float = 0.5) -> Tensor:
    return (alpha * x + beta).clamp(0, 1)


@op("Swish")
def swish(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    if alpha == 1.0:
        return F.silu(x)
    return x * torch.sigmoid(alpha * x)


@op("Gelu")
def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    return F.gelu(x, approximate=approximate)


@op("Shrink")
def shrink(x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    zero = torch.zeros_like(x)
    y = torch.where(x > lambd, x - bias, zero)
    y = torch.where(x < -lambd, x + bias, y)
    return y.to(x.dtype)


@op("Clip")
def clip_6(
    x: Tensor, *, max: float = 3.4028234663852886e38, min: float = -3.4028234663852886e38
) -> Tensor:
    return x.clamp(min, max)


@op("Clip", since=11, constants=(1, 2))
@accept_unsigned
def clip_11(x: Tensor, min: Tensor | None = None, max: Tensor | None = None) -> Tensor:
    limits = [limit for limit in (min, max) if limit is not None]
    if not limits:
        return x
    if x.is_floating_point() and all(limit.device.type == "cpu" for limit in limits):
        # With plain numbers one kernel does both sides, and its gradient is torch's own.
        low = None if min is None else min.item()
        high = None if max is None else max.item()
        return x.clamp(low, high)
    if min is not None:
        x = x.maximum(min.to(x.device))
    if max is not None:
        x = x.minimum(max.to(x.device))
    return x


@op("Softmax", since=13)
def softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    return F.softmax(x, axis)


@op("LogSoftmax", since=13)
def log_softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    return F.log_softmax(x, axis)


@op("Hardmax", since=13)
def hardmax(x: Tensor, *, axis: int = -1) -> Tensor:
    highest = x.argmax(axis, keepdim=True)
    return torch.zeros_like(x).scatter(axis, highest, 1.0)


def _register_flattened(name: str, function: OpFunction) -> None:
    """Register the versions of opset 12 and earlier: a row holds all axes from `axis` on."""

    @op(name)
    def flattened(x: Tensor, *, axis: int = 1) -> Tensor:
        axis = positive_axis(axis, x.dim())
        rows = math.prod(x.shape[:axis])
        y: Tensor = function(x.reshape(rows, -1))
        return y.reshape(x.shape)


_register_flattened("Softmax", softmax)
_register_flattened("LogSoftmax", log_softmax)
_register_flattened("Hardmax", hardmax)
