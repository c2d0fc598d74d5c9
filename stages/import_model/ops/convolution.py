"""Conv and ConvTranspose in one to three dimensions, and related operators."""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ltp_pipeline.stages.import_model.ops.common import check_sizes, to_ints
from ltp_pipeline.stages.import_model.ops.padding import resolve_pads, split_pads, to_torch_pads
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
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    n = x.dim() - 2
    kernel = tuple(kernel_shape or w.shape[2:])
    strides = tuple(strides or [1] * n)
    dilations = tuple(dilations or [1] * n)
    pads = resolve_pads(auto_pad, pads, x.shape[2:], kernel, strides, dilations)
    x, padding = split_pads(x, pads)
    result: Tensor = _CONV[n](x, w, b, strides, padding, dilations, group)
    return result


@op("ConvTranspose", weights=(1, 2))
def conv_transpose(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    n = x.dim() - 2
    kernel = tuple(kernel_shape or w.shape[2:])
    strides = tuple(strides or [1] * n)
    dilations = tuple(dilations or [1] * n)
    extra = tuple(output_padding or [0] * n)
    full = [
        s * (i - 1) + d * (k - 1) + 1 + e
        for s, i, d, k, e in zip(strides, x.shape[2:], dilations, kernel, extra, strict=True)
    ]
    output_sizes = list(output_shape[-n:]) if output_shape else None
    if (
        output_sizes is not None
    ):  # what a larger output has beyond the kernel's reach is added at the end
        extra = tuple(e + max(o - f, 0) for e, o, f in zip(extra, output_sizes, full, strict=True))
    if output_sizes is None and auto_pad.startswith("SAME"):
        output_sizes = [i * s for i, s in zip(x.shape[2:], strides, strict=True)]
    if output_sizes is None:
        ends = list(pads or [0] * 2 * n) if auto_pad != "VALID" else [0] * 2 * n
    else:
        total = [max(f - o, 0) for f, o in zip(full, output_sizes, strict=True)]
        small = [t // 2 for t in total]
        large = [t - s for t, s in zip(total, small, strict=True)]
        ends = [*small, *large] if auto_pad == "SAME_UPPER" else [*large, *small]
    check_sizes([x.shape[0], w.shape[1] * group, *(max(f, 0) for f in full)], x)
    y: Tensor
    if ends[:n] == ends[n:] and all(
        e < max(s, d) for e, s, d in zip(extra, strides, dilations, strict=True)
    ):
        y = _CONV_TRANSPOSE[n](x, w, b, strides, tuple(ends[:n]), extra, group, dilations)
        return y
    y = _CONV_TRANSPOSE[n](x, w, None, strides, 0, 0, group, dilations)
    y = F.pad(
        y,
        to_torch_pads(
            [-p for p in ends[:n]] + [e - p for e, p in zip(extra, ends[n:], strict=True)]
        ),
    )
    return y if b is None else y + b.reshape(-1, *[1] * n)


@op("DeformConv", since=19, weights=(1, 3))
def deform_conv(
    x: Tensor,
    w: Tensor,
    offset: Tensor,
    b: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    offset_group: int = 1,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    """Compute DeformConv with two spatial axes.

    Every kernel tap is sampled at its offset, then each group is one matrix product.
    """
    n, c, height, width = x.shape
    rows, columns = kernel_shape or w.shape[2:]
    down, right = strides or (1, 1)
    spread_y, spread_x = dilations or (1, 1)
    top, left = (pads or (0, 0, 0, 0))[:2]
    taps = rows * columns
    out_y, out_x = offset.shape[2:]

    def steps(count: int, step: int) -> Tensor:
        return torch.arange(count, device=x.device, dtype=x.dtype) * step

    tap_y = (steps(rows, spread_y) - top).repeat_interleave(columns)
    tap_x = (steps(columns, spread_x) - left).repeat(rows)
    shift = offset.reshape(n * offset_group, taps, 2, out_y, out_x)
    y = shift[:, :, 0] + tap_y.reshape(-1, 1, 1) + steps(out_y, down).reshape(-1, 1)
    z = shift[:, :, 1] + tap_x.reshape(-1, 1, 1) + steps(out_x, right)
    planes = x.reshape(n * offset_group, c // offset_group, height, width)
    samples = _sample_bilinear(planes, y.flatten(1), z.flatten(1)).reshape(
        *planes.shape[:2], taps, out_y * out_x
    )
    if mask is not None:
        samples = samples * mask.reshape(n * offset_group, 1, taps, out_y * out_x)
    samples = samples.reshape(n, group, c // group * taps, out_y * out_x)
    result = w.reshape(group, w.shape[0] // group, -1) @ samples
    result = result.reshape(n, w.shape[0], out_y, out_x)
    return result if b is None else result + b.reshape(-1, 1, 1)


def _sample_bilinear(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """Sample the planes `x` at rows `y` and columns `z` by bilinear interpolation.

    `y` and `z` have shape (planes, points). Values outside of a plane are zero.
    """
    height, width = x.shape[2:]
    result = torch.zeros((), dtype=x.dtype, device=x.device)
    for row, share_y in ((y.floor(), 1 - (y - y.floor())), (y.floor() + 1, y - y.floor())):
        for column, share_z in ((z.floor(), 1 - (z - z.floor())), (z.floor() + 1, z - z.floor())):
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            index = (row.clamp(0, height - 1) * width + column.clamp(0, width - 1)).long()
            value = x.flatten(2).gather(2, index.unsqueeze(1).expand(-1, x.shape[1], -1))
            result = result + value * (share_y * share_z * inside).unsqueeze(1)
    return result


@op("Col2Im", since=18, constants=(1, 2))
def col2im(
    x: Tensor,
    image_shape: Tensor,
    block_shape: Tensor,
    *,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    image, block = to_ints(image_shape), to_ints(block_shape)
    n = len(image)
    begins_ends = list(pads or [0] * 2 * n)
    padded = [s + begins_ends[i] + begins_ends[n + i] for i, s in enumerate(image)]
    check_sizes([*x.shape[:1], *padded], x)
    index = torch.zeros((), dtype=torch.int64, device=x.device)
    for i in range(n):
        reach, step = (dilations or [1] * n)[i], (strides or [1] * n)[i]
        count = (padded[i] - reach * (block[i] - 1) - 1) // step + 1
        tap = torch.arange(block[i], device=x.device).reshape([-1] + [1] * (2 * n - 1 - i))
        start = torch.arange(count, device=x.device).reshape([-1] + [1] * (n - 1 - i))
        index = index * padded[i] + tap * reach + start * step
    channels = x.shape[1] // math.prod(block)
    columns = x.reshape(x.shape[0], channels, -1)
    image_sum = x.new_zeros(x.shape[0], channels, math.prod(padded)).index_add(
        2, index.reshape(-1), columns
    )
    crops = to_torch_pads([-p for p in begins_ends])
    return F.pad(image_sum.reshape(x.shape[0], channels, *padded), crops)
