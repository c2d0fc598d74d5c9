"""Activation functions."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ltp_pipeline.stages.import_model.ops.common import accept_unsigned, positive_axis
from ltp_pipeline.stages.import_model.registry import op


@op("Relu")
def relu(x: Tensor) -> Tensor:
    return F.relu(x)


@op("LeakyRelu")
def leaky_relu(x: Tensor, *, alpha: float = 0.01) -> Tensor:
    return F.leaky_relu(x, alpha)


@op("PRelu", since=7, weights=(1,))
@accept_unsigned
def p_relu(x: Tensor, slope: Tensor) -> Tensor:
    return torch.where(x < 0, slope * x, x)


@op("ThresholdedRelu", since=10)
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


@op("Celu", since=12)
def celu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return F.celu(x, alpha)


@op("Sigmoid")
def sigmoid(x: Tensor) -> Tensor:
    return torch.sigmoid(x)


@op("HardSigmoid")
def hard_sigmoid(x: Tensor, *, alpha: float = 0.20000000298023224, beta: float = 0.5) -> Tensor:
    return (alpha * x + beta).clamp(0, 1)


@op("HardSwish", since=14)
def hard_swish(x: Tensor) -> Tensor:
    return F.hardswish(x)


@op("Tanh")
def tanh(x: Tensor) -> Tensor:
    return torch.tanh(x)


@op("Softplus")
def softplus(x: Tensor) -> Tensor:
    return F.softplus(x)


@op("Softsign")
def softsign(x: Tensor) -> Tensor:
    return F.softsign(x)


@op("Mish", since=18)
def mish(x: Tensor) -> Tensor:
    return F.mish(x)


@op("Swish", since=24)
def swish(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return F.silu(x) if alpha == 1.0 else x * torch.sigmoid(alpha * x)


@op("Gelu", since=20)
def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    return F.gelu(x, approximate=approximate)


@op("Shrink", since=9)
def shrink(x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    zero = torch.zeros_like(x)
    return torch.where(x < -lambd, x + bias, torch.where(x > lambd, x - bias, zero)).to(x.dtype)


@op("Clip", since=6)
def clip_6(
    x: Tensor, *, max: float = 3.4028234663852886e38, min: float = -3.4028234663852886e38
) -> Tensor:
    return x.clamp(min, max)


@op("Clip", since=11, constants=(1, 2))
@accept_unsigned
def clip_11(x: Tensor, min: Tensor | None = None, max: Tensor | None = None) -> Tensor:
    if x.is_floating_point() and all(
        limit is None or limit.device.type == "cpu" for limit in (min, max)
    ):
        # With plain numbers one kernel does both sides, and its gradient is torch's own.
        low = None if min is None else min.item()
        high = None if max is None else max.item()
        return x if low is None and high is None else x.clamp(low, high)
    if min is not None:
        x = x.maximum(min.to(x.device))
    return x if max is None else x.minimum(max.to(x.device))


def _flatten_from_axis(x: Tensor, axis: int) -> Tensor:
    """Return the matrix view of opset 12 and earlier: a row holds all axes from `axis` on."""
    return x.reshape(math.prod(x.shape[: positive_axis(axis, x.dim())]), -1)


@op("Softmax")
def softmax_1(x: Tensor, *, axis: int = 1) -> Tensor:
    return F.softmax(_flatten_from_axis(x, axis), -1).reshape(x.shape)


@op("Softmax", since=13)
def softmax_13(x: Tensor, *, axis: int = -1) -> Tensor:
    return F.softmax(x, axis)


@op("LogSoftmax")
def log_softmax_1(x: Tensor, *, axis: int = 1) -> Tensor:
    return F.log_softmax(_flatten_from_axis(x, axis), -1).reshape(x.shape)


@op("LogSoftmax", since=13)
def log_softmax_13(x: Tensor, *, axis: int = -1) -> Tensor:
    return F.log_softmax(x, axis)


@op("Hardmax")
def hardmax_1(x: Tensor, *, axis: int = 1) -> Tensor:
    return hardmax_13(_flatten_from_axis(x, axis)).reshape(x.shape)


@op("Hardmax", since=13)
def hardmax_13(x: Tensor, *, axis: int = -1) -> Tensor:
    return torch.zeros_like(x).scatter(axis, x.argmax(axis, keepdim=True), 1.0)
