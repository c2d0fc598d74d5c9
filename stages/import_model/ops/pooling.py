"""Pooling, with torch's own kernels if they agree with ONNX and sliding windows otherwise."""

import math
from collections.abc import Sequence
from operator import sub

import torch
import torch.nn.functional as F
from torch import Tensor

from ltp_pipeline.stages.import_model.ops.common import (
    OptionalInts,
    check_sizes,
    make_range,
    to_ints,
)
from ltp_pipeline.stages.import_model.ops.padding import pad_tensor, resolve_pads
from ltp_pipeline.stages.import_model.registry import OpFunction, op

_MAX_POOL: dict[int, OpFunction] = {
    1: F.max_pool1d,
    2: F.max_pool2d,
    3: F.max_pool3d,
}
_AVERAGE_POOL: dict[int, OpFunction] = {
    1: F.avg_pool1d,
    2: F.avg_pool2d,
    3: F.avg_pool3d,
}


class PoolingWindow:
    """Geometry of a pooling node for one input size.

    It has the begins and ends of the padding, and how far the last window reaches.
    """

    def __init__(
        self,
        size: Sequence[int],
        kernel: Sequence[int],
        auto_pad: str,
        pads: OptionalInts,
        strides: OptionalInts,
        dilations: OptionalInts,
        ceil_mode: int,
    ) -> None:
        n = len(kernel)
        self.kernel = tuple(kernel)
        self.strides = tuple(strides or [1] * n)
        self.dilations = tuple(dilations or [1] * n)
        self.ceil_mode = bool(ceil_mode)
        steps = [*self.kernel, *self.strides, *self.dilations]
        if len(size) != n or min(steps, default=1) < 1:
            raise ValueError(
                f"kernel {list(kernel)} does not fit a tensor with {len(size)} spatial axes"
            )
        pads = resolve_pads(auto_pad, pads, size, kernel, self.strides, self.dilations)
        self.begins = tuple(pads[:n])
        self.ends = tuple(pads[n:])
        self.reach: list[int] = []
        # What must be appended for the last window; negative where the last elements are not read.
        self.tails: list[int] = []
        for i, length in enumerate(size):
            begin = self.begins[i]
            stride = self.strides[i]
            reach = self.dilations[i] * (kernel[i] - 1) + 1
            padded = length + begin + self.ends[i]
            last = (padded - reach) // stride  # number of the last window
            if ceil_mode:
                last = -(-(padded - reach) // stride)
                if last * stride >= length + begin:
                    last -= 1  # a window that starts in the end padding is dropped
            if last < 0:  # torch does not always notice, and may never come back
                raise ValueError(
                    f"a window of {reach} does not fit into {list(size)} with pads {pads}"
                )
            self.reach.append(reach)
            self.tails.append(last * stride + reach - length - begin)
        check_sizes(map(sum, zip(size, self.begins, self.ends, strict=True)))
        fits = all(pad <= width // 2 for pad, width in zip(self.begins, kernel, strict=True))
        self.is_symmetric = self.begins == self.ends and fits

    def pad_input(self, x: Tensor, value: float) -> Tensor:
        """Return `x` with exactly the elements that the windows read."""
        return pad_tensor(x, [*self.begins, *self.tails], value)

    def unfold_windows(self, x: Tensor) -> Tensor:
        """Return the windows of a padded `x`.

        The spatial axes count windows. A further axis at the end holds their elements.
        """
        n = len(self.kernel)
        for i in range(n):
            x = x.unfold(2 + i, self.reach[i], self.strides[i])
            x = x[..., :: self.dilations[i]]
        return x.flatten(2 + n)


@op("MaxPool")
def max_pool(
    x: Tensor,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: OptionalInts = None,
    kernel_shape: Sequence[int],
    pads: OptionalInts = None,
    storage_order: int = 0,
    strides: OptionalInts = None,
    n_outputs: int = 1,
) -> Tensor | tuple[Tensor, Tensor]:
    window = PoolingWindow(x.shape[2:], kernel_shape, auto_pad, pads, strides, dilations, ceil_mode)
    pool = _MAX_POOL[len(kernel_shape)]
    data = x if x.is_floating_point() else x.float()
    has_indices = n_outputs > 1
    padding = window.begins
    is_ceil = window.ceil_mode
    if has_indices or not window.is_symmetric:
        data = window.pad_input(data, float("-inf"))
        padding = (0,) * len(padding)
        is_ceil = False
    result = pool(
        data, window.kernel, window.strides, padding, window.dilations, is_ceil, has_indices
    )
    if not has_indices:
        y: Tensor = result
        return y.to(x.dtype)
    y, position = result
    position = _to_global_index(position, x, data, window, bool(storage_order))
    return y.to(x.dtype), position


def _to_global_index(
    position: Tensor, x: Tensor, padded: Tensor, window: PoolingWindow, column_major: bool
) -> Tensor:
    """Return indices into the whole of `x` from indices into one padded plane."""
    size = x.shape[2:]
    coordinates = torch.unravel_index(position, padded.shape[2:])
    index = make_range(math.prod(x.shape[:2]), x)  # of the plane
    index = index.reshape(*x.shape[:2], *[1] * len(size))
    axes = range(len(size))
    for i in reversed(axes) if column_major else axes:
        index = index * size[i] + coordinates[i] - window.begins[i]
    return index


@op("AveragePool")
def average_pool(
    x: Tensor,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: OptionalInts = None,
    kernel_shape: Sequence[int],
    pads: OptionalInts = None,
    strides: OptionalInts = None,
) -> Tensor:
    window = PoolingWindow(x.shape[2:], kernel_shape, auto_pad, pads, strides, dilations, ceil_mode)
    pool = _AVERAGE_POOL[len(kernel_shape)]
    is_dilated = max(window.dilations) > 1
    if window.is_symmetric and not is_dilated:
        y: Tensor = pool(
            x,
            window.kernel,
            window.strides,
            window.begins,
            window.ceil_mode,
            bool(count_include_pad),
        )
        return y
    counted = x.new_ones(1, 1, *x.shape[2:])
    if count_include_pad:
        counted = pad_tensor(counted, [*window.begins, *window.ends], 1.0)
        tails = list(map(sub, window.tails, window.ends))
        counted = pad_tensor(counted, [0] * len(tails) + tails)
    else:
        counted = window.pad_input(counted, 0.0)
    # The mean over a window divided by the fraction of it that counts.
    means: list[Tensor] = []
    for data in (window.pad_input(x, 0.0), counted):
        if is_dilated:
            means.append(window.unfold_windows(data).mean(-1))
        else:
            means.append(pool(data, window.kernel, window.strides))
    return means[0] / means[1]


@op("LpPool")
def lp_pool(
    x: Tensor,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: OptionalInts = None,
    kernel_shape: Sequence[int],
    p: int = 2,
    pads: OptionalInts = None,
    strides: OptionalInts = None,
) -> Tensor:
    window = PoolingWindow(x.shape[2:], kernel_shape, auto_pad, pads, strides, dilations, ceil_mode)
    windows = window.unfold_windows(window.pad_input(x, 0.0))
    y: Tensor = torch.linalg.vector_norm(windows, p, -1)
    return y


def _spatial_axes(x: Tensor) -> tuple[int, ...]:
    return tuple(range(2, x.dim()))


@op("GlobalAveragePool")
def global_average_pool(x: Tensor) -> Tensor:
    return x.mean(dim=_spatial_axes(x), keepdim=True)


@op("GlobalMaxPool")
def global_max_pool(x: Tensor) -> Tensor:
    return x.amax(dim=_spatial_axes(x), keepdim=True)


@op("GlobalLpPool")
def global_lp_pool(x: Tensor, *, p: int = 2) -> Tensor:
    y: Tensor = torch.linalg.vector_norm(x, p, _spatial_axes(x), keepdim=True)
    return y


@op("MaxUnpool", constants=(1, 2))
def max_unpool(
    x: Tensor,
    indices: Tensor,
    output_shape: Tensor | None = None,
    *,
    kernel_shape: Sequence[int],
    pads: OptionalInts = None,
    strides: OptionalInts = None,
) -> Tensor:
    n = len(kernel_shape)
    steps = strides or [1] * n
    margins = pads or [0] * 2 * n
    shape = list(x.shape[:2])
    for i, length in enumerate(x.shape[2:]):
        padded = (length - 1) * steps[i] + kernel_shape[i]
        shape.append(padded - margins[i] - margins[n + i])
    count = math.prod(check_sizes(shape))
    positions = indices.to(x.device).reshape(-1)
    y = x.new_zeros(count).scatter(0, positions, x.reshape(-1))
    y = y.reshape(shape)
    if output_shape is None:
        return y
    sizes = zip(to_ints(output_shape), shape, strict=True)
    extra = [new - old for new, old in sizes]
    return pad_tensor(y, [0] * len(extra) + extra)
