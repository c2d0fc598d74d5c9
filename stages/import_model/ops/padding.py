"""Pad, explicit pads from `auto_pad`, and asymmetric pads, which torch does not have."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ltp_pipeline.graph.tensors import MAX_CONSTANT_ELEMENTS
from ltp_pipeline.stages.import_model.ops.common import (
    accept_unsigned,
    check_sizes,
    positive_axes,
    to_ints,
    to_number,
)
from ltp_pipeline.stages.import_model.registry import op


def resolve_pads(
    auto_pad: str,
    pads: Sequence[int] | None,
    size: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> list[int]:
    """Return pads in ONNX order: all begins, then all ends."""
    if auto_pad in ("NOTSET", ""):
        explicit_pads = list(pads or [0] * 2 * len(kernel))
        if (
            len(explicit_pads) != 2 * len(kernel)
            or max(explicit_pads, default=0) > MAX_CONSTANT_ELEMENTS
        ):
            raise ValueError(f"pads {explicit_pads} do not fit a kernel of {list(kernel)}")
        return explicit_pads
    if auto_pad == "VALID":
        return [0] * 2 * len(kernel)
    total = [
        max((-(-i // s) - 1) * s + d * (k - 1) + 1 - i, 0)
        for i, k, s, d in zip(size, kernel, strides, dilations, strict=True)
    ]
    small = [t // 2 for t in total]
    large = [t - s for t, s in zip(total, small, strict=True)]
    return [*small, *large] if auto_pad == "SAME_UPPER" else [*large, *small]


def to_torch_pads(pads: Sequence[int]) -> list[int]:
    """Return ONNX pads in the order of torch.nn.functional.pad.

    The last dimension is first, with begin and end together.
    """
    n = len(pads) // 2
    return [pads[i + side * n] for i in reversed(range(n)) for side in (0, 1)]


def split_pads(
    x: Tensor, pads: Sequence[int], value: float = 0.0
) -> tuple[Tensor, tuple[int, ...]]:
    """Apply asymmetric pads to `x`, and return those that the operator can apply itself."""
    n = len(pads) // 2
    if list(pads[:n]) == list(pads[n:]):
        return x, tuple(pads[:n])
    return F.pad(x, to_torch_pads(pads), value=value), (0,) * n


@op("Pad", since=2)
def pad_2(x: Tensor, *, mode: str = "constant", pads: Sequence[int], value: float = 0.0) -> Tensor:
    return _pad_axes(x, list(pads), list(range(x.dim())), mode, value)


@op("Pad", since=11, constants=(1, 2, 3))
@accept_unsigned
def pad_11(
    x: Tensor,
    pads: Tensor,
    constant_value: Tensor | None = None,
    axes: Tensor | None = None,
    *,
    mode: str = "constant",
) -> Tensor:
    value = 0 if constant_value is None or not constant_value.numel() else to_number(constant_value)
    return _pad_axes(x, to_ints(pads), positive_axes(axes, x.dim()), mode, value)


def _pad_axes(x: Tensor, pads: list[int], axes: list[int], mode: str, value: float) -> Tensor:
    begins, ends = [0] * x.dim(), [0] * x.dim()
    for axis, begin, end in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        begins[axis], ends[axis] = begin, end
    check_sizes([max(s + b + e, 0) for s, b, e in zip(x.shape, begins, ends, strict=True)], x)
    if mode == "constant":
        return F.pad(x, to_torch_pads([*begins, *ends]), value=value)
    for axis in axes:
        if begins[axis] or ends[axis]:
            x = x.index_select(
                axis, _source_positions(x.shape[axis], begins[axis], ends[axis], mode).to(x.device)
            )
    return x


def _source_positions(size: int, begin: int, end: int, mode: str) -> Tensor:
    """Return the position that each position along a padded axis repeats."""
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
