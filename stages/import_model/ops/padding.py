"""Pad, explicit pads from `auto_pad`, and asymmetric pads, which torch does not have."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ltp_pipeline.graph.tensors import MAX_CONSTANT_ELEMENTS
from ltp_pipeline.stages.import_model.ops.common import (
    Axes,
    OptionalInts,
    accept_unsigned,
    check_sizes,
    positive_axes,
    to_ints,
    to_number,
)
from ltp_pipeline.stages.import_model.registry import op


def resolve_pads(
    auto_pad: str,
    pads: OptionalInts,
    size: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> list[int]:
    """Return pads in ONNX order: all begins, then all ends."""
    if auto_pad.startswith("SAME"):
        totals = []
        for length, width, stride, dilation in zip(size, kernel, strides, dilations, strict=True):
            last_start = (-(-length // stride) - 1) * stride
            reach = dilation * (width - 1) + 1
            totals.append(max(last_start + reach - length, 0))
        return halve_pads(totals, auto_pad)
    zeros = [0] * 2 * len(kernel)
    if auto_pad == "VALID":
        return zeros
    explicit_pads = list(pads or zeros)
    is_too_large = max(explicit_pads, default=0) > MAX_CONSTANT_ELEMENTS
    if len(explicit_pads) != len(zeros) or is_too_large:
        raise ValueError(f"pads {explicit_pads} do not fit a kernel of {list(kernel)}")
    return explicit_pads


def halve_pads(totals: Sequence[int], auto_pad: str) -> list[int]:
    """Divide the padding of each axis; with SAME_UPPER an odd element goes to the end."""
    small = [total // 2 for total in totals]
    large = [total - total // 2 for total in totals]
    return small + large if auto_pad == "SAME_UPPER" else large + small


def pad_tensor(x: Tensor, pads: Sequence[int], value: float = 0.0) -> Tensor:
    """Pad the last axes of a tensor; negative pads remove elements.

    Args:
        x: The tensor.
        pads: The begins of the axes, then their ends.
        value: Value of the new elements.
    """
    if not any(pads):
        return x
    count = len(pads) // 2
    torch_pads: list[int] = []  # the last axis first, its begin and its end together
    for i in reversed(range(count)):
        torch_pads += (pads[i], pads[count + i])
    return F.pad(x, torch_pads, value=value)


@op("Pad", constants=(1, 2, 3))
@accept_unsigned
def pad(
    x: Tensor,
    pads: Tensor | Sequence[int],
    value: Tensor | float | None = 0.0,
    axes: Axes = None,
    *,
    mode: str = "constant",
) -> Tensor:
    rank = x.dim()
    dims = positive_axes(axes, rank)
    sizes = to_ints(pads)
    count = len(dims)
    all_pads = [0] * 2 * rank
    for axis, begin, end in zip(dims, sizes[:count], sizes[count:], strict=True):
        all_pads[axis] = begin
        all_pads[rank + axis] = end
    lengths = zip(x.shape, all_pads[:rank], all_pads[rank:], strict=True)
    check_sizes([max(sum(parts), 0) for parts in lengths], x)
    if mode == "constant":
        if value is None or (isinstance(value, Tensor) and not value.numel()):
            value = 0
        return pad_tensor(x, all_pads, to_number(value))
    for axis in dims:
        begin = all_pads[axis]
        end = all_pads[rank + axis]
        if begin or end:
            positions = _find_source_positions(x.shape[axis], begin, end, mode)
            x = x.index_select(axis, positions.to(x.device))
    return x


def _find_source_positions(size: int, begin: int, end: int, mode: str) -> Tensor:
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
