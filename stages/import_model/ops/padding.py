"""Pad, explicit pads from ONNX's `auto_pad`, and what to do where torch only pads symmetrically."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ltp_pipeline.graph.tensors import MAX_CONSTANT_ELEMENTS
from ltp_pipeline.stages.import_model.ops.common import (
    any_integer,
    checked,
    ints,
    number,
    positive_axes,
)
from ltp_pipeline.stages.import_model.registry import op


def pads_for(
    auto_pad: str,
    pads: Sequence[int] | None,
    size: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> list[int]:
    """Pads in ONNX order, all begins and then all ends."""
    if auto_pad in ("NOTSET", ""):
        given = list(pads or [0] * 2 * len(kernel))
        if len(given) != 2 * len(kernel) or max(given, default=0) > MAX_CONSTANT_ELEMENTS:
            raise ValueError(f"pads {given} do not fit a kernel of {list(kernel)}")
        return given
    if auto_pad == "VALID":
        return [0] * 2 * len(kernel)
    total = [
        max((-(-i // s) - 1) * s + d * (k - 1) + 1 - i, 0)
        for i, k, s, d in zip(size, kernel, strides, dilations, strict=True)
    ]
    small = [t // 2 for t in total]
    large = [t - s for t, s in zip(total, small, strict=True)]
    return [*small, *large] if auto_pad == "SAME_UPPER" else [*large, *small]


def torch_pads(pads: Sequence[int]) -> list[int]:
    """ONNX pads in the order of torch.nn.functional.pad: last dimension first, begin and end together."""
    n = len(pads) // 2
    return [pads[i + side * n] for i in reversed(range(n)) for side in (0, 1)]


def split_pads(
    x: Tensor, pads: Sequence[int], value: float = 0.0
) -> tuple[Tensor, tuple[int, ...]]:
    """Leave symmetric pads to the operator; apply asymmetric ones to `x` first."""
    n = len(pads) // 2
    if list(pads[:n]) == list(pads[n:]):
        return x, tuple(pads[:n])
    return F.pad(x, torch_pads(pads), value=value), (0,) * n


@op("Pad", since=2)
def pad_2(x: Tensor, *, mode: str = "constant", pads: Sequence[int], value: float = 0.0) -> Tensor:
    return _pad(x, list(pads), list(range(x.dim())), mode, value)


@op("Pad", since=11, constants=(1, 2, 3))
@any_integer
def pad_11(
    x: Tensor,
    pads: Tensor,
    constant_value: Tensor | None = None,
    axes: Tensor | None = None,
    *,
    mode: str = "constant",
) -> Tensor:
    value = 0 if constant_value is None or not constant_value.numel() else number(constant_value)
    return _pad(x, ints(pads), positive_axes(axes, x.dim()), mode, value)


def _pad(x: Tensor, pads: list[int], axes: list[int], mode: str, value: float) -> Tensor:
    begins, ends = [0] * x.dim(), [0] * x.dim()
    for axis, begin, end in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        begins[axis], ends[axis] = begin, end
    checked([max(s + b + e, 0) for s, b, e in zip(x.shape, begins, ends, strict=True)], x)
    if mode == "constant":
        return F.pad(x, torch_pads([*begins, *ends]), value=value)
    for axis in axes:
        if begins[axis] or ends[axis]:
            x = x.index_select(
                axis, _source(x.shape[axis], begins[axis], ends[axis], mode).to(x.device)
            )
    return x


def _source(size: int, begin: int, end: int, mode: str) -> Tensor:
    """For each position along a padded axis the position it repeats."""
    position = torch.arange(-begin, size + end)
    if mode == "edge":
        return position.clamp(0, size - 1)
    if mode == "wrap":
        return position % size
    if mode != "reflect":
        raise ValueError(f"unknown mode {mode!r}")
    period = max(2 * (size - 1), 1)
    position = position % period
    return torch.where(position < size, position, period - position)
