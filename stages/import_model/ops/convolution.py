"""Conv and ConvTranspose in one to three dimensions, and related operators."""

import math

import torch.nn.functional as F
from torch import Tensor

from ltp_pipeline.stages.import_model.ops.common import (
    OptionalInts,
    check_sizes,
    make_range,
    make_view_shape,
    to_ints,
)
from ltp_pipeline.stages.import_model.ops.padding import halve_pads, pad_tensor, resolve_pads
from ltp_pipeline.stages.import_model.registry import op

_CONV = {
    1: F.conv1d,
    2: F.conv2d,
    3: F.conv3d,
}
_CONV_TRANSPOSE = {
    1: F.conv_transpose1d,
    2: F.conv_transpose2d,
    3: F.conv_transpose3d,
}


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
    size = x.shape[2:]
    kernel = kernel_shape or w.shape[2:]
    strides = tuple(strides or [1] * n)
    dilations = tuple(dilations or [1] * n)
    extra = list(output_padding or [0] * n)
    full = []  # output size without padding
    for i in axes:
        reach = dilations[i] * (kernel[i] - 1) + 1
        starts = strides[i] * (size[i] - 1)
        full.append(max(starts + reach + extra[i], 0))
    channels = w.shape[1] * group
    check_sizes([len(x), channels, *full], x)
    margins = list(pads or [0] * 2 * n)
    if auto_pad == "VALID":
        margins = [0] * 2 * n
    if output_shape or auto_pad.startswith("SAME"):
        output_size = output_shape or [size[i] * strides[i] for i in axes]
        surplus = [full[i] - output_size[i - n] for i in axes]
        margins = halve_pads([max(elements, 0) for elements in surplus], auto_pad)
        if output_shape:
            # What a larger output has beyond the kernel's reach is added at the end.
            extra = [extra[i] - min(surplus[i], 0) for i in axes]
    begins = margins[:n]
    ends = margins[n:]
    convolve = _CONV_TRANSPOSE[n]
    y: Tensor
    fits = all(extra[i] < max(strides[i], dilations[i]) for i in axes)
    if begins == ends and fits:
        y = convolve(x, w, b, strides, tuple(begins), tuple(extra), group, dilations)
        return y
    y = convolve(x, w, None, strides, 0, 0, group, dilations)
    begins = [-begin for begin in begins]
    ends = [extra[i] - ends[i] for i in axes]
    y = pad_tensor(y, begins + ends)
    if b is None:
        return y
    return y + b.reshape(-1, *[1] * n)


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
        tap = make_range(kernel[i], x) * dilations[i] - begins[i]
        start = make_range(outputs[i], x) * strides[i]
        tap = tap.reshape(make_view_shape(4, i))
        start = start.reshape(make_view_shape(4, 2 + i))
        position = shifts[:, :, :, i] + tap + start
        positions.append(position.flatten(1))
    samples = _sample_bilinear(planes, *positions)
    if mask is not None:
        samples = samples * mask.reshape(n * offset_group, 1, taps * count)
    samples = samples.reshape(n, group, -1, count)
    channels = w.shape[0]
    matrix = w.reshape(group, channels // group, -1)
    y = (matrix @ samples).reshape(n, channels, *outputs)
    return y if b is None else y + b.reshape(-1, 1, 1)


def _sample_bilinear(planes: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """Sample planes at rows `y` and columns `x`, of shape (planes, points); zero outside."""
    height, width = planes.shape[2:]
    top = y.floor()
    left = x.floor()
    dy = y - top
    dx = x - left
    corners = [
        (top, left, (1 - dy) * (1 - dx)),
        (top, left + 1, (1 - dy) * dx),
        (top + 1, left, dy * (1 - dx)),
        (top + 1, left + 1, dy * dx),
    ]
    total = planes.new_zeros(())
    for row, column, weight in corners:
        near_row = row.clamp(0, height - 1)
        near_column = column.clamp(0, width - 1)
        is_inside = (row == near_row) & (column == near_column)
        index = (near_row * width + near_column).long().unsqueeze(1)
        index = index.expand(-1, planes.shape[1], -1)
        cells = planes.flatten(2).gather(2, index)
        total = total + cells * (weight * is_inside).unsqueeze(1)
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
    position = make_range(1, x)
    for i in range(n):
        reach = dilations[i] * (block[i] - 1) + 1
        count = (padded[i] - reach) // strides[i] + 1
        tap = make_range(block[i], x) * dilations[i]
        start = make_range(count, x) * strides[i]
        tap = tap.reshape(make_view_shape(2 * n, i))
        start = start.reshape(make_view_shape(2 * n, n + i))
        position = position * padded[i] + tap + start
    channels = x.shape[1] // math.prod(block)
    elements = x.reshape(len(x), channels, -1)
    y = x.new_zeros(len(x), channels, math.prod(padded))
    y = y.index_add(2, position.reshape(-1), elements)
    y = y.reshape(len(x), channels, *padded)
    return pad_tensor(y, [-margin for margin in margins])
