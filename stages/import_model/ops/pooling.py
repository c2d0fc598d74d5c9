"""Pooling, with torch's own kernels if they agree with ONNX and sliding windows otherwise."""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ltp_pipeline.stages.import_model.ops.common import check_sizes, to_ints
from ltp_pipeline.stages.import_model.ops.padding import resolve_pads, to_torch_pads
from ltp_pipeline.stages.import_model.registry import op

_MAX_POOL = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_AVERAGE_POOL = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


class PoolingWindow:
    """Geometry of a pooling node for one input size.

    It has the begin and end of the padding, and how far the last window reaches.
    """

    def __init__(
        self,
        size: Sequence[int],
        kernel: Sequence[int],
        auto_pad: str,
        pads: Sequence[int] | None,
        strides: Sequence[int] | None,
        dilations: Sequence[int] | None,
        ceil_mode: int,
    ) -> None:
        n = len(kernel)
        self.kernel = tuple(kernel)
        self.strides = tuple(strides or [1] * n)
        self.dilations = tuple(dilations or [1] * n)
        if len(size) != n or min([1, *self.kernel, *self.strides, *self.dilations]) < 1:
            raise ValueError(
                f"kernel {list(kernel)} does not fit a tensor with {len(size)} spatial axes"
            )
        self.pads = resolve_pads(auto_pad, pads, size, kernel, self.strides, self.dilations)
        self.reach = [d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]
        self.outputs: list[int] = []
        for i, s in enumerate(size):
            begin, end = self.pads[i], self.pads[n + i]
            steps = s + begin + end - self.reach[i]
            count = (-(-steps // self.strides[i]) if ceil_mode else steps // self.strides[i]) + 1
            if ceil_mode and (count - 1) * self.strides[i] >= s + begin:
                count -= 1  # a window that starts in the end padding is dropped
            self.outputs.append(count)
        if min(self.outputs) < 1:  # torch does not always notice, and may never come back
            raise ValueError(
                f"a window of {self.reach} does not fit into {list(size)} with pads {self.pads}"
            )
        check_sizes(s + self.pads[i] + self.pads[n + i] for i, s in enumerate(size))
        # What must be appended for the last window; negative where the last elements are not read.
        spans = [
            (c - 1) * st + r
            for c, st, r in zip(self.outputs, self.strides, self.reach, strict=True)
        ]
        self.tails = [sp - s - b for sp, s, b in zip(spans, size, self.pads[:n], strict=True)]
        self.symmetric = self.pads[:n] == self.pads[n:] and all(
            p <= k // 2 for p, k in zip(self.pads[:n], self.kernel, strict=True)
        )

    def pad_for_windows(self, x: Tensor, value: float) -> Tensor:
        """Return `x` with exactly the elements that the windows read."""
        fill = to_torch_pads([*self.pads[: len(self.kernel)], *self.tails])
        return F.pad(x, fill, value=value) if any(fill) else x

    def unfold_windows(self, x: Tensor) -> Tensor:
        """Return the windows of a padded `x`.

        The spatial axes count windows. A further axis at the end holds their elements.
        """
        n = len(self.kernel)
        for i in range(n):
            x = x.unfold(2 + i, self.reach[i], self.strides[i])[..., :: self.dilations[i]]
        return x.flatten(2 + n)


@op("MaxPool")
def max_pool(
    x: Tensor,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    storage_order: int = 0,
    strides: Sequence[int] | None = None,
    n_outputs: int = 1,
) -> Tensor | tuple[Tensor, Tensor]:
    n = len(kernel_shape)
    window = PoolingWindow(x.shape[2:], kernel_shape, auto_pad, pads, strides, dilations, ceil_mode)
    data = x if x.is_floating_point() else x.float()
    if window.symmetric and n_outputs == 1:
        y: Tensor = _MAX_POOL[n](
            data,
            window.kernel,
            window.strides,
            tuple(window.pads[:n]),
            window.dilations,
            bool(ceil_mode),
        )
        return y.to(x.dtype)
    data = window.pad_for_windows(data, float("-inf"))
    if n_outputs == 1:
        y = _MAX_POOL[n](data, window.kernel, window.strides, 0, window.dilations)
        return y.to(x.dtype)
    y, where = _MAX_POOL[n](
        data, window.kernel, window.strides, 0, window.dilations, return_indices=True
    )
    return y.to(x.dtype), _to_global_index(where, x, data, window, bool(storage_order))


def _to_global_index(
    where: Tensor, x: Tensor, padded: Tensor, window: PoolingWindow, column_major: bool
) -> Tensor:
    """Return indices into the whole of `x` from indices into one padded plane."""
    axes = list(range(x.dim() - 2))
    coordinates = torch.unravel_index(where, padded.shape[2:])
    index = torch.zeros_like(where)
    for i in reversed(axes) if column_major else axes:
        index = index * x.shape[2 + i] + coordinates[i] - window.pads[i]
    plane = torch.arange(math.prod(x.shape[:2]), device=x.device) * math.prod(x.shape[2:])
    return index + plane.reshape(*x.shape[:2], *[1 for _ in axes])


@op("AveragePool", since=7)
def average_pool(
    x: Tensor,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    n = len(kernel_shape)
    window = PoolingWindow(x.shape[2:], kernel_shape, auto_pad, pads, strides, dilations, ceil_mode)
    dilated = max(window.dilations) > 1
    if window.symmetric and not dilated:
        padding = tuple(window.pads[:n])
        y: Tensor = _AVERAGE_POOL[n](
            x, window.kernel, window.strides, padding, bool(ceil_mode), bool(count_include_pad)
        )
        return y
    # The mean over a window divided by the share of it that counts.
    counted = torch.ones((1, 1, *x.shape[2:]), dtype=x.dtype, device=x.device)
    if count_include_pad:
        counted = F.pad(counted, to_torch_pads(window.pads), value=1.0)
        extra = [t - e for t, e in zip(window.tails, window.pads[n:], strict=True)]
        counted = F.pad(counted, to_torch_pads([0] * n + extra))
    else:
        counted = window.pad_for_windows(counted, 0.0)
    pad_for_windows = window.pad_for_windows(x, 0.0)
    if dilated:
        return window.unfold_windows(pad_for_windows).mean(-1) / window.unfold_windows(
            counted
        ).mean(-1)
    total: Tensor = _AVERAGE_POOL[n](pad_for_windows, window.kernel, window.strides)
    share: Tensor = _AVERAGE_POOL[n](counted, window.kernel, window.strides)
    return total / share


@op("LpPool", since=2)
def lp_pool(
    x: Tensor,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int],
    p: int = 2,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    window = PoolingWindow(x.shape[2:], kernel_shape, auto_pad, pads, strides, dilations, ceil_mode)
    y: Tensor = torch.linalg.vector_norm(
        window.unfold_windows(window.pad_for_windows(x, 0.0)), p, -1
    )
    return y


def _spatial_axes(x: Tensor) -> tuple[int, ...]:
    return tuple(range(2, x.dim()))


@op("GlobalAveragePool")
def global_average_pool(x: Tensor) -> Tensor:
    return x.mean(dim=_spatial_axes(x), keepdim=True)


@op("GlobalMaxPool")
def global_max_pool(x: Tensor) -> Tensor:
    return x.amax(dim=_spatial_axes(x), keepdim=True)


@op("GlobalLpPool", since=2)
def global_lp_pool(x: Tensor, *, p: int = 2) -> Tensor:
    y: Tensor = torch.linalg.vector_norm(x, p, _spatial_axes(x), keepdim=True)
    return y


@op("MaxUnpool", since=9, constants=(1, 2))
def max_unpool(
    x: Tensor,
    indices: Tensor,
    output_shape: Tensor | None = None,
    *,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    n = len(kernel_shape)
    begins_ends = to_ints(pads) or [0] * 2 * n
    steps = strides or [1] * n
    sizes = [
        (x.shape[2 + i] - 1) * steps[i] + kernel_shape[i] - begins_ends[i] - begins_ends[n + i]
        for i in range(n)
    ]
    shape = check_sizes([*x.shape[:2], *sizes])
    flat = x.new_zeros(math.prod(shape)).scatter(0, indices.to(x.device).reshape(-1), x.reshape(-1))
    y = flat.reshape(shape)
    if output_shape is None:
        return y
    extra = [new - old for new, old in zip(to_ints(output_shape), shape, strict=True)]
    return F.pad(y, to_torch_pads([0] * len(extra) + extra))
