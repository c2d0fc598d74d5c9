"""Resize and Upsample, GridSample and AffineGrid.

Axes are resized one at a time, as weighted sums of a few neighbors.
"""

# ruff: noqa: ARG001 - every attribute of the standard is a keyword, also where it changes nothing here

import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ltp_pipeline.stages.import_model.ops.common import check_sizes, positive_axes, to_ints
from ltp_pipeline.stages.import_model.registry import op


def _source_coordinates(
    mode: str, size: int, wanted: int, scale: float, roi: tuple[float, float]
) -> Tensor:
    """Return the position of each new element along the old axis.

    Single precision is used, because rounding decides the neighbor.
    """
    x = torch.arange(wanted, dtype=torch.float32)
    scale = float(np.float32(scale))
    if mode == "half_pixel":
        return (x + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        adjust = wanted / (scale * size)  # how much rounding the size moved the centre
        return size / 2 * (1 - adjust) + (x + 0.5) / scale - 0.5
    if mode == "pytorch_half_pixel":
        return (x + 0.5) / scale - 0.5 if wanted > 1 else torch.zeros_like(x)
    if mode == "align_corners":
        return x * ((size - 1) / (wanted - 1)) if wanted > 1 else torch.zeros_like(x)
    if mode == "asymmetric":
        return x / scale
    if mode == "tf_half_pixel_for_nn":
        return (x + 0.5) / scale
    if mode == "tf_crop_and_resize":
        start, end = roi
        if wanted == 1:
            return torch.full_like(x, (start + end) * (size - 1) / 2)
        return start * (size - 1) + x * ((end - start) * (size - 1) / (wanted - 1))
    raise ValueError(f"unknown coordinate_transformation_mode {mode!r}")


def _nearest_taps(x: Tensor, mode: str) -> Tensor:
    if mode == "round_prefer_floor":
        return torch.ceil(x - 0.5)
    if mode == "round_prefer_ceil":
        return torch.floor(x + 0.5)
    return torch.floor(x) if mode == "floor" else torch.ceil(x)


def _linear_taps(distance: Tensor, a: float) -> Tensor:
    return (1 - distance.abs()).clamp(min=0)


def _cubic_taps(distance: Tensor, a: float) -> Tensor:
    d = distance.abs()
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return torch.where(d <= 1, near, torch.where(d < 2, far, torch.zeros_like(d)))


_KERNELS = {"linear": (_linear_taps, 1), "cubic": (_cubic_taps, 2)}


def _make_taps(
    x: Tensor, mode: str, scale: float, a: float, antialias: int
) -> tuple[Tensor, Tensor]:
    """Return the neighbors of each coordinate and their weights, of shape (elements, taps)."""
    kernel, radius = _KERNELS[mode]
    shrink = min(scale, 1.0) if antialias else 1.0
    # The neighbour at or below x comes first, so that an x on the grid has itself as the second of
    # the middle pair.
    base = torch.ceil(x) - 1
    start = math.floor(-radius / shrink) + 1
    offsets = torch.arange(start, 2 - start, dtype=torch.float64)
    index = base.unsqueeze(1) + offsets
    weight = kernel((index - x.unsqueeze(1)) * shrink, a)
    return index.long(), weight / weight.sum(1, keepdim=True) if antialias else weight


class _ResizeSettings:
    """The attributes of one Resize node."""

    def __init__(
        self,
        mode: str,
        coordinates: str,
        nearest: str,
        a: float,
        outside: int,
        fill: float,
        antialias: int,
    ):
        self.mode = mode
        self.coordinates = coordinates
        self.nearest = nearest
        self.a = a
        self.outside = outside
        self.fill = fill
        self.antialias = antialias


def _resize_axis(
    x: Tensor,
    axis: int,
    wanted: int,
    scale: float,
    roi: tuple[float, float],
    settings: _ResizeSettings,
) -> Tensor:
    size = x.shape[axis]
    where = _source_coordinates(settings.coordinates, size, wanted, scale, roi)
    if settings.mode == "nearest":
        # Before opset 11 nothing was said about rounding; onnxruntime rounds up where it shrinks.
        rounding = settings.nearest or ("floor" if scale >= 1 else "ceil")
        index = _nearest_taps(where, rounding).long().clamp(0, size - 1)
        y = x.index_select(axis, index.to(x.device))
    else:
        taps, weight = _make_taps(
            where.double(), settings.mode, scale, settings.a, settings.antialias
        )
        if settings.outside:
            weight = weight * ((taps >= 0) & (taps < size))
            weight = weight / weight.sum(1, keepdim=True)
        y = _sum_weighted(x, axis, taps.clamp(0, size - 1), weight)
    if settings.coordinates == "tf_crop_and_resize":
        outside = ((where < 0) | (where > size - 1)).to(x.device)
        view = [-1 if i == axis else 1 for i in range(x.dim())]
        y = torch.where(
            outside.reshape(view), torch.as_tensor(settings.fill, dtype=y.dtype, device=y.device), y
        )
    return y


def _sum_weighted(x: Tensor, axis: int, taps: Tensor, weight: Tensor) -> Tensor:
    """Return weighted sums of elements along an axis.

    A small axis is multiplied by a matrix, a large one is summed tap by tap.
    """
    size, count = x.shape[axis], taps.shape[1]
    if size <= 16 * count:
        matrix = torch.zeros(len(taps), size, dtype=torch.float64).scatter_add(1, taps, weight)
        return torch.movedim(torch.movedim(x, axis, -1) @ matrix.T.to(x), -1, axis)
    view = [-1 if i == axis else 1 for i in range(x.dim())]
    y = torch.zeros((), dtype=x.dtype, device=x.device)
    for t in range(count):
        y = y + x.index_select(axis, taps[:, t].to(x.device)) * weight[:, t].to(x).reshape(view)
    return y


def _output_sizes(
    x: Tensor, axes: list[int], scales: list[float], sizes: list[int], policy: str
) -> list[tuple[int, float]]:
    """Return the output size and the scale of each axis."""
    if scales:
        # In single precision, like the scales: 40 by 1.3 gives 52 there, and 51.99 in double.
        return [
            (math.floor(np.float32(x.shape[a]) * np.float32(s)), s)
            for a, s in zip(axes, scales, strict=True)
        ]
    ratios = [w / x.shape[a] for a, w in zip(axes, sizes, strict=True)]
    if policy == "stretch":
        return list(zip(sizes, ratios, strict=True))
    ratio = min(ratios) if policy == "not_larger" else max(ratios)
    return [(math.floor(ratio * x.shape[a] + 0.5), ratio) for a in axes]


def _resize_with_torch(
    x: Tensor, axes: list[int], wanted: list[tuple[int, float]], settings: _ResizeSettings
) -> Tensor | None:
    """Resize images by integer factors, in the modes that torch has kernels for."""
    old = [(x.shape[a], *w) for a, w in zip(axes, wanted, strict=True) if w != (x.shape[a], 1.0)]
    resized = [a for a, w in zip(axes, wanted, strict=True) if w != (x.shape[a], 1.0)]
    exact = all(size * scale == new for size, new, scale in old)
    if (
        x.dim() != 4
        or resized != [2, 3]
        or not exact
        or not x.is_floating_point()
        or settings.antialias
    ):
        return None
    size = [new for _, new, _ in old]
    way = (settings.mode, settings.coordinates)
    if (
        way == ("nearest", "asymmetric")
        and (settings.nearest or "floor") == "floor"
        and min(s for *_, s in old) >= 1
    ):
        return F.interpolate(x, size, mode="nearest")
    if way in (("linear", "half_pixel"), ("linear", "pytorch_half_pixel")) and min(size) > 1:
        return F.interpolate(x, size, mode="bilinear", align_corners=False)
    if way == ("linear", "align_corners"):
        return F.interpolate(x, size, mode="bilinear", align_corners=True)
    return None


def _resize_axes(
    x: Tensor,
    axes: list[int],
    wanted: list[tuple[int, float]],
    roi: list[float],
    settings: _ResizeSettings,
) -> Tensor:
    check_sizes([*(s for i, s in enumerate(x.shape) if i not in axes), *(w for w, _ in wanted)], x)
    direct = _resize_with_torch(x, axes, wanted, settings)
    if direct is not None:
        return direct
    dtype = x.dtype
    if settings.mode != "nearest" and not x.is_floating_point():
        x = x.float()
    region = roi or [0.0] * len(axes) + [1.0] * len(axes)
    for i, (axis, (size, scale)) in enumerate(zip(axes, wanted, strict=True)):
        part = (region[i], region[len(axes) + i])
        if size == x.shape[axis] and scale == 1 and part == (0.0, 1.0):
            continue
        x = _resize_axis(x, axis, size, scale, part, settings)
    return x.to(dtype)


@op("Upsample", since=7)
def upsample_7(x: Tensor, *, mode: str = "nearest", scales: Sequence[float]) -> Tensor:
    return _upsample_axes(x, list(scales), mode)


@op("Upsample", since=9, constants=(1,))
def upsample_9(x: Tensor, scales: Tensor, *, mode: str = "nearest") -> Tensor:
    return _upsample_axes(x, scales.tolist(), mode)


@op("Resize", since=10, constants=(1,))
def resize_10(x: Tensor, scales: Tensor, *, mode: str = "nearest") -> Tensor:
    return _upsample_axes(x, scales.tolist(), mode)


def _upsample_axes(x: Tensor, scales: list[float], mode: str) -> Tensor:
    axes = list(range(x.dim()))
    settings = _ResizeSettings(mode, "asymmetric", "", -0.75, 0, 0.0, 0)
    return _resize_axes(x, axes, _output_sizes(x, axes, scales, [], "stretch"), [], settings)


@op("Resize", since=11, constants=(1, 2, 3))
def resize_11(
    x: Tensor,
    roi: Tensor | None = None,
    scales: Tensor | None = None,
    sizes: Tensor | None = None,
    *,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Tensor:
    chosen = positive_axes(axes, x.dim())
    factors = [] if scales is None else scales.tolist()
    output_sizes = _output_sizes(x, chosen, factors, to_ints(sizes), keep_aspect_ratio_policy)
    is_crop = coordinate_transformation_mode == "tf_crop_and_resize"
    region = roi.tolist() if is_crop and roi is not None else []
    settings = _ResizeSettings(
        mode,
        coordinate_transformation_mode,
        nearest_mode,
        cubic_coeff_a,
        exclude_outside,
        extrapolation_value,
        antialias,
    )
    return _resize_axes(x, chosen, output_sizes, region, settings)


@op("GridSample", since=16)
def grid_sample_16(
    x: Tensor,
    grid: Tensor,
    *,
    align_corners: int = 0,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
) -> Tensor:
    return F.grid_sample(x, grid, mode, padding_mode, bool(align_corners))


@op("GridSample", since=20)
def grid_sample_20(
    x: Tensor,
    grid: Tensor,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Tensor:
    torch_mode = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    return F.grid_sample(x, grid, torch_mode, padding_mode, bool(align_corners))


@op("AffineGrid", since=20, constants=(1,))
def affine_grid(theta: Tensor, size: Tensor, *, align_corners: int = 0) -> Tensor:
    return F.affine_grid(theta, check_sizes(to_ints(size)), bool(align_corners))
