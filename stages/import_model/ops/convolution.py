"""Conv and ConvTranspose in one to three dimensions, and related operators."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ltp_pipeline.stages.import_model.ops.common import (
    OptionalInts,
    check_sizes,
    make_view_shape,
    to_ints,
)
from ltp_pipeline.stages.import_model.ops.padding import halve_pads, pad_tensor, resolve_pads
from ltp_pipeline.stages.import_model.registry import op

_CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_CONV_TRANSPOSE = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


@op("Conv", weights=(1, 2))
def conv(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: OptionalInts = None,
    group: int = 1,
    kernel_shape: OptionalInts = None,
    pads: OptionalInts = None,
    strides: OptionalInts = None,
) -> Tensor:
    n = x.dim() - 2
    kernel = kernel_shape or w.shape[2:]
    strides = tuple(strides or [1] * n)
    dilations = tuple(dilations or [1] * n)
    pads = resolve_pads(auto_pad, pads, x.shape[2:], kernel, strides, dilations)
    padding = tuple(pads[:n])
    if pads[:n] != pads[n:]:
        x = pad_tensor(x, pads)
        padding = (0,) * n
    result: Tensor = _CONV[n](x, w, b, strides, padding, dilations, group)
    return result


@op("ConvTranspose", weights=(1, 2))
def conv_transpose(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: OptionalInts = None,
    group: int = 1,
    kernel_shape: OptionalInts = None,
    output_padding: OptionalInts = None,
    output_shape: OptionalInts = None,
    pads: OptionalInts = None,
    strides: OptionalInts = None,
) -> Tensor:
    n = x.dim() - 2
    axes = range(n)
    kernel = kernel_shape or w.shape[2:]
    strides = tuple(strides or [1] * n)
    dilations = tuple(dilations or [1] * n)
    extra = list(output_padding or [0] * n)
    full = []  # output sizes without padding
    for i in axes:
        reach = dilations[i] * (kernel[i] - 1) + 1
        full.append(strides[i] * (x.shape[2 + i] - 1) + reach + extra[i])
    check_sizes([x.shape[0], w.shape[1] * group, *(max(size, 0) for size in full)], x)
    margins = list(pads or [0] * 2 * n)
    if output_shape:
        output_sizes = output_shape[-n:]
        # What a larger output has beyond the kernel's reach is added at the end.
        extra = [extra[i] + max(output_sizes[i] - full[i], 0) for i in axes]
        margins = halve_pads([max(full[i] - output_sizes[i], 0) for i in axes], auto_pad)
    elif auto_pad.startswith("SAME"):
        totals = [max(full[i] - x.shape[2 + i] * strides[i], 0) for i in axes]
        margins = halve_pads(totals, auto_pad)
    elif auto_pad == "VALID":
        margins = [0] * 2 * n
    begins = margins[:n]
    ends = margins[n:]
    convolve = _CONV_TRANSPOSE[n]
    y: Tensor
    if begins == ends and all(extra[i] < max(strides[i], dilations[i]) for i in axes):
        y = convolve(x, w, b, strides, tuple(begins), tuple(extra), group, dilations)
        return y
    y = convolve(x, w, None, strides, 0, 0, group, dilations)
    y = pad_tensor(y, [-begin for begin in begins] + [extra[i] - ends[i] for i in axes])
    return y if b is None else y + b.reshape(-1, *[1] * n)


@op("DeformConv", weights=(1, 3))
def deform_conv(
    x: Tensor,
    w: Tensor,
    offset: Tensor,
    b: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    dilations: OptionalInts = None,
    group: int = 1,
    kernel_shape: OptionalInts = None,
    offset_group: int = 1,
    pads: OptionalInts = None,
    strides: OptionalInts = None,
) -> Tensor:
    """Compute DeformConv with two spatial axes.

    Every kernel tap is sampled at its offset, then each group is one matrix product.
    """
    n = x.shape[0]
    size = x.shape[2:]
    kernel = kernel_shape or w.shape[2:]
    strides = strides or (1, 1)
    dilations = dilations or (1, 1)
    begins = pads or (0, 0)
    taps = math.prod(kernel)
    outputs = offset.shape[2:]
    count = math.prod(outputs)
    planes = x.reshape(n * offset_group, -1, *size)
    shifts = offset.reshape(n * offset_group, *kernel, 2, *outputs)
    positions = []
    for i in range(2):
        tap = torch.arange(kernel[i], device=x.device) * dilations[i] - begins[i]
        start = torch.arange(outputs[i], device=x.device) * strides[i]
        tap = tap.reshape(make_view_shape(4, i))
        start = start.reshape(make_view_shape(4, 2 + i))
        position = shifts[:, :, :, i] + tap + start
        positions.append(position.flatten(1))
    samples = _sample_bilinear(planes, *positions)
    if mask is not None:
        samples = samples * mask.reshape(n * offset_group, 1, taps * count)
    samples = samples.reshape(n, group, -1, count)
    y = w.reshape(group, w.shape[0] // group, -1) @ samples
    y = y.reshape(n, w.shape[0], *outputs)
    return y if b is None else y + b.reshape(-1, 1, 1)


def _sample_bilinear(planes: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """Sample planes at rows `y` and columns `x`, of shape (planes, points); zero outside."""
    height, width = planes.shape[2:]
    rows = (y.floor(), y.floor() + 1)
    columns = (x.floor(), x.floor() + 1)
    row_weights = (1 - (y - rows[0]), y - rows[0])
    column_weights = (1 - (x - columns[0]), x - columns[0])
    total = planes.new_zeros(())
    for i, j in ((0, 0), (0, 1), (1, 0), (1, 1)):
        row = rows[i].clamp(0, height - 1)
        column = columns[j].clamp(0, width - 1)
        is_inside = (row == rows[i]) & (column == columns[j])
        weight = row_weights[i] * column_weights[j] * is_inside
        index = (row * width + column).long().unsqueeze(1).expand(-1, planes.shape[1], -1)
        total = total + planes.flatten(2).gather(2, index) * weight.unsqueeze(1)
    return total


@op("Col2Im", constants=(1, 2))
def col2im(
    x: Tensor,
    image_shape: Tensor,
    block_shape: Tensor,
    *,
    dilations: OptionalInts = None,
    pads: OptionalInts = None,
    strides: OptionalInts = None,
) -> Tensor:
    image = to_ints(image_shape)
    block = to_ints(block_shape)
    n = len(image)
    strides = strides or [1] * n
    dilations = dilations or [1] * n
    margins = list(pads or [0] * 2 * n)
    padded = [image[i] + margins[i] + margins[n + i] for i in range(n)]
    check_sizes([len(x), *padded], x)
    # Position in the padded image of each element of `x`: all axes of a block, then all blocks.
    position = torch.zeros((), dtype=torch.int64, device=x.device)
    for i in range(n):
        reach = dilations[i] * (block[i] - 1) + 1
        count = (padded[i] - reach) // strides[i] + 1
        tap = torch.arange(block[i], device=x.device) * dilations[i]
        start = torch.arange(count, device=x.device) * strides[i]
        tap = tap.reshape(make_view_shape(2 * n, i))
        start = start.reshape(make_view_shape(2 * n, n + i))
        position = position * padded[i] + tap + start
    channels = x.shape[1] // math.prod(block)
    columns = x.reshape(len(x), channels, -1)
    y = x.new_zeros(len(x), channels, math.prod(padded))
    y = y.index_add(2, position.reshape(-1), columns)
    return pad_tensor(y.reshape(len(x), channels, *padded), [-margin for margin in margins])
