"""Quantised arithmetic, computed in double precision and rounded as the standard says."""

# ruff: noqa: ARG001 - every attribute of the standard is a keyword, also where it changes nothing here

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ltp_pipeline.stages.import_model.ops.common import positive_axis, torch_type
from ltp_pipeline.stages.import_model.ops.padding import pads_for, torch_pads
from ltp_pipeline.stages.import_model.registry import op

_CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


def _spread(values: Tensor, x: Tensor, axis: int, block: int) -> Tensor:
    """Scales or zero points in a shape that broadcasts against `x`: one for all, one per slice or one per block."""
    values = values.to(x.device)
    if values.numel() == 1:
        return values.reshape(())
    axis = positive_axis(axis, x.dim())
    if block:
        return values.repeat_interleave(block, axis).narrow(axis, 0, x.shape[axis])
    return values.reshape([-1 if i == axis else 1 for i in range(x.dim())])


def _saturated(x: Tensor, dtype: torch.dtype) -> Tensor:
    limits = torch.iinfo(dtype)
    return x.clamp(limits.min, limits.max).to(dtype)


@op("QuantizeLinear", since=10, constants=(1, 2))
def quantize_linear(
    x: Tensor,
    y_scale: Tensor,
    y_zero_point: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Tensor:
    dtype = torch.uint8 if not output_dtype else torch_type(output_dtype)
    dtype = dtype if y_zero_point is None else y_zero_point.dtype
    y = torch.round(x / _spread(y_scale.to(x.dtype), x, axis, block_size)).double()
    if y_zero_point is not None:
        y = y + _spread(y_zero_point.double(), x, axis, block_size)
    return _saturated(y, dtype)


@op("DequantizeLinear", since=10, constants=(1, 2))
def dequantize_linear(
    x: Tensor,
    x_scale: Tensor,
    x_zero_point: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Tensor:
    scale = _spread(x_scale, x, axis, block_size)
    y = x.to(torch.float64 if x.dtype is torch.int32 else torch.float32)
    if x_zero_point is not None:
        y = y - _spread(x_zero_point.to(y.dtype), x, axis, block_size)
    return (y * scale).to(torch_type(output_dtype) if output_dtype else x_scale.dtype)


def _centred(x: Tensor, zero_point: Tensor | None, axis: int) -> Tensor:
    y = x.double()
    if zero_point is None:
        return y
    if zero_point.dim() == x.dim() and zero_point.dim() > 1:
        return y - zero_point.double()
    return y - _spread(zero_point.double(), x, axis, 0)


@op("MatMulInteger", since=10, constants=(2, 3))
def mat_mul_integer(
    a: Tensor, b: Tensor, a_zero_point: Tensor | None = None, b_zero_point: Tensor | None = None
) -> Tensor:
    return (_centred(a, a_zero_point, -2 if a.dim() > 1 else 0) @ _centred(b, b_zero_point, -1)).to(torch.int32)


@op("QLinearMatMul", since=10, constants=(1, 2, 4, 5, 6, 7))
def q_linear_mat_mul(
    a: Tensor,
    a_scale: Tensor,
    a_zero_point: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero_point: Tensor,
    y_scale: Tensor,
    y_zero_point: Tensor,
) -> Tensor:
    scaled_a = _centred(a, a_zero_point, -2) * _spread(a_scale.double(), a, -2, 0)
    scaled_b = _centred(b, b_zero_point, -1) * _spread(b_scale.double(), b, -1, 0)
    y = torch.round(scaled_a @ scaled_b / y_scale.double()) + y_zero_point.double()
    return _saturated(y, y_zero_point.dtype)


def _conv(
    x: Tensor,
    w: Tensor,
    auto_pad: str,
    dilations: Sequence[int] | None,
    group: int,
    pads: Sequence[int] | None,
    strides: Sequence[int] | None,
) -> Tensor:
    n = x.dim() - 2
    steps, spread = tuple(strides or [1] * n), tuple(dilations or [1] * n)
    ends = pads_for(auto_pad, pads, x.shape[2:], w.shape[2:], steps, spread)
    y: Tensor = _CONV[n](F.pad(x, torch_pads(ends)), w, None, steps, 0, spread, group)
    return y


@op("ConvInteger", since=10, constants=(2, 3))
def conv_integer(
    x: Tensor,
    w: Tensor,
    x_zero_point: Tensor | None = None,
    w_zero_point: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    data, kernel = _centred(x, x_zero_point, 1), _centred(w, w_zero_point, 0)
    return _conv(data, kernel, auto_pad, dilations, group, pads, strides).to(torch.int32)


@op("QLinearConv", since=10, constants=(1, 2, 4, 5, 6, 7))
def q_linear_conv(
    x: Tensor,
    x_scale: Tensor,
    x_zero_point: Tensor,
    w: Tensor,
    w_scale: Tensor,
    w_zero_point: Tensor,
    y_scale: Tensor,
    y_zero_point: Tensor,
    b: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    data, kernel = _centred(x, x_zero_point, 1), _centred(w, w_zero_point, 0)
    y = _conv(data, kernel, auto_pad, dilations, group, pads, strides)
    if b is not None:
        y = y + b.double().reshape(-1, *[1] * (x.dim() - 2))
    y = y * (x_scale.double() * _spread(w_scale.double(), y, 1, 0) / y_scale.double())
    return _saturated(torch.round(y) + y_zero_point.double(), y_zero_point.dtype)
