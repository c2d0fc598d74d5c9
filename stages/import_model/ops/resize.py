"""Resize and Upsample, GridSample and AffineGrid.

Axes are resized one at a time, as weighted sums of a few neighbors.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ltp_pipeline.stages.import_model.ops.common import (
    OptionalInts,
    check_sizes,
    make_view_shape,
    positive_axes,
    to_ints,
)
from ltp_pipeline.stages.import_model.registry import OpFunction, op


class _ResizedAxis(NamedTuple):
    """One axis that is resized: its number, sizes and scale, and the fractions of it to read."""

    number: int
    size: int
    new_size: int
    scale: float
    start: float = 0.0
    end: float = 1.0


class _ResizeSettings(NamedTuple):
    """Attributes of a Resize node; the defaults are those of Upsample."""

    mode: str
    coordinates: str = "asymmetric"
    rounding: str = ""
    cubic_coeff_a: float = -0.75
    exclude_outside: int = 0
    fill: float = 0.0
    antialias: int = 0


def _find_source_coordinates(mode: str, axis: _ResizedAxis) -> Tensor:
    """Return the position of each new element along the old axis.

    Single precision is used, because rounding decides the neighbor.
    """
    x = torch.arange(axis.new_size, dtype=torch.float32)
    scale = float(np.float32(axis.scale))
    last = axis.size - 1
    new_last = axis.new_size - 1
    match mode:
        case "asymmetric":
            return x / scale
        case "tf_half_pixel_for_nn":
            return (x + 0.5) / scale
        case "pytorch_half_pixel" | "align_corners" if new_last == 0:
            return torch.zeros_like(x)
        case "half_pixel" | "pytorch_half_pixel":
            return (x + 0.5) / scale - 0.5
        case "half_pixel_symmetric":
            adjust = axis.new_size / (scale * axis.size)  # by which rounding moved the center
            center = axis.size / 2 * (1 - adjust)
            return center + (x + 0.5) / scale - 0.5
        case "align_corners":
            return x * (last / new_last)
        case "tf_crop_and_resize" if new_last == 0:
            return torch.full_like(x, (axis.start + axis.end) * last / 2)
        case "tf_crop_and_resize":
            length = (axis.end - axis.start) * last
            return axis.start * last + x * (length / new_last)
    raise ValueError(f"unknown coordinate_transformation_mode {mode!r}")


def _round_to_neighbor(x: Tensor, rounding: str) -> Tensor:
    if rounding == "round_prefer_floor":
        return torch.ceil(x - 0.5)
    if rounding == "round_prefer_ceil":
        return torch.floor(x + 0.5)
    return torch.floor(x) if rounding == "floor" else torch.ceil(x)


def _weigh_linear(distance: Tensor, a: float) -> Tensor:
    return (1 - distance.abs()).clamp(min=0)


def _weigh_cubic(distance: Tensor, a: float) -> Tensor:
    d = distance.abs()
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    weight = torch.where(d < 2, far, 0.0)
    return torch.where(d <= 1, near, weight)


# The weight of a neighbor by its distance, and the number of neighbors on each side.
_KERNELS: dict[str, tuple[OpFunction, int]] = {
    "linear": (_weigh_linear, 1),
    "cubic": (_weigh_cubic, 2),
}


def _find_neighbors(x: Tensor, scale: float, settings: _ResizeSettings) -> tuple[Tensor, Tensor]:
    """Return the neighbors of each coordinate and their weights, of shape (elements, neighbors)."""
    weigh, radius = _KERNELS[settings.mode]
    shrink = min(scale, 1.0) if settings.antialias else 1.0
    # The neighbor at or below x comes first, so that an x on the grid has itself as the second of
    # the middle pair.
    base = torch.ceil(x) - 1
    start = math.floor(-radius / shrink) + 1
    offsets = torch.arange(start, 2 - start, dtype=torch.float64)
    index = base.unsqueeze(1) + offsets
    distance = (index - x.unsqueeze(1)) * shrink
    weight: Tensor = weigh(distance, settings.cubic_coeff_a)
    if settings.antialias:
        weight = weight / weight.sum(1, keepdim=True)
    return index.long(), weight


def _resize_axis(x: Tensor, axis: _ResizedAxis, settings: _ResizeSettings) -> Tensor:
    last = axis.size - 1
    source = _find_source_coordinates(settings.coordinates, axis)
    if settings.mode == "nearest":
        # Before opset 11 nothing was said about rounding; onnxruntime rounds up where it shrinks.
        rounding = settings.rounding or ("floor" if axis.scale >= 1 else "ceil")
        index = _round_to_neighbor(source, rounding).long().clamp(0, last)
        y = x.index_select(axis.number, index.to(x.device))
    else:
        index, weight = _find_neighbors(source.double(), axis.scale, settings)
        if settings.exclude_outside:
            weight = weight * ((index >= 0) & (index <= last))
            weight = weight / weight.sum(1, keepdim=True)
        y = _sum_weighted(x, axis.number, index.clamp(0, last), weight)
    if settings.coordinates == "tf_crop_and_resize":
        is_outside = (source < 0) | (source > last)
        is_outside = is_outside.reshape(make_view_shape(x.dim(), axis.number))
        y = y.masked_fill(is_outside.to(x.device), settings.fill)
    return y


def _sum_weighted(x: Tensor, axis: int, index: Tensor, weight: Tensor) -> Tensor:
    """Return weighted sums of elements along an axis.

    A small axis is multiplied by a matrix, a large one is summed neighbor by neighbor.
    """
    size = x.shape[axis]
    count = index.shape[1]
    if size <= 16 * count:
        matrix = torch.zeros(len(index), size, dtype=torch.float64)
        matrix = matrix.scatter_add(1, index, weight)
        y = x.movedim(axis, -1) @ matrix.T.to(x)
        return y.movedim(-1, axis)
    view = make_view_shape(x.dim(), axis)
    y = x.new_zeros(())
    index = index.to(x.device)
    weight = weight.to(x)
    for i in range(count):
        neighbor = x.index_select(axis, index[:, i])
        y = y + neighbor * weight[:, i].reshape(view)
    return y


def _find_output_sizes(
    sizes: Sequence[int],
    scales: Sequence[float],
    new_sizes: Sequence[int],
    policy: str,
) -> list[tuple[int, float]]:
    """Return the new size and the scale of axes of the given sizes."""
    if scales:
        # In single precision, like the scales: 40 by 1.3 gives 52 there, and 51.99 in double.
        exact_sizes = np.array(sizes, np.float32) * np.array(scales, np.float32)
        rounded = map(math.floor, exact_sizes)
        return list(zip(rounded, scales, strict=True))
    pairs = zip(new_sizes, sizes, strict=True)
    ratios = [new_size / size for new_size, size in pairs]
    if policy == "stretch":
        return list(zip(new_sizes, ratios, strict=True))
    ratio = min(ratios) if policy == "not_larger" else max(ratios)
    return [(math.floor(ratio * size + 0.5), ratio) for size in sizes]


def _resize_with_torch(
    x: Tensor, axes: Sequence[_ResizedAxis], settings: _ResizeSettings
) -> Tensor | None:
    """Resize images by exact factors, in the modes that torch has kernels for."""
    numbers = [axis.number for axis in axes]
    is_image = x.dim() == 4 and numbers == [2, 3] and x.is_floating_point()
    is_exact = all(axis.size * axis.scale == axis.new_size for axis in axes)
    if not is_image or not is_exact or settings.antialias:
        return None
    new_size = [axis.new_size for axis in axes]
    is_enlarged = min(axis.scale for axis in axes) >= 1
    match settings.mode, settings.coordinates, settings.rounding:
        case "nearest", "asymmetric", "" | "floor" if is_enlarged:
            return F.interpolate(x, new_size, mode="nearest")
        case "linear", "half_pixel" | "pytorch_half_pixel", _ if min(new_size) > 1:
            return F.interpolate(x, new_size, mode="bilinear", align_corners=False)
        case "linear", "align_corners", _:
            return F.interpolate(x, new_size, mode="bilinear", align_corners=True)
    return None


def _resize_axes(x: Tensor, axes: Sequence[_ResizedAxis], settings: _ResizeSettings) -> Tensor:
    sizes = list(x.shape)
    changed: list[_ResizedAxis] = []
    for axis in axes:
        sizes[axis.number] = axis.new_size
        if axis != _ResizedAxis(axis.number, axis.new_size, axis.new_size, 1.0):
            changed.append(axis)
    check_sizes(sizes, x)
    y = _resize_with_torch(x, changed, settings)
    if y is not None:
        return y
    y = x
    if settings.mode != "nearest" and not x.is_floating_point():
        y = x.float()
    for axis in changed:
        y = _resize_axis(y, axis, settings)
    return y.to(x.dtype)


@op("Upsample", constants=(1,))
def upsample(x: Tensor, scales: Tensor | Sequence[float], *, mode: str = "nearest") -> Tensor:
    factors = scales.tolist() if isinstance(scales, Tensor) else scales
    output_sizes = _find_output_sizes(x.shape, factors, [], "stretch")
    axes = []
    for i, (new_size, scale) in enumerate(output_sizes):
        axes.append(_ResizedAxis(i, x.shape[i], new_size, scale))
    return _resize_axes(x, axes, _ResizeSettings(mode))


op("Resize", constants=(1,))(upsample)


@op("Resize", since=11, constants=(1, 2, 3))
def resize(
    x: Tensor,
    roi: Tensor | None = None,
    scales: Tensor | None = None,
    sizes: Tensor | None = None,
    *,
    antialias: int = 0,
    axes: OptionalInts = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Tensor:
    numbers = positive_axes(axes, x.dim())
    old_sizes = [x.shape[number] for number in numbers]
    factors = [] if scales is None else scales.tolist()
    output_sizes = _find_output_sizes(old_sizes, factors, to_ints(sizes), keep_aspect_ratio_policy)
    region = [0.0] * len(numbers) + [1.0] * len(numbers)
    if coordinate_transformation_mode == "tf_crop_and_resize" and roi is not None:
        region = roi.tolist() or region
    resized = []
    for i, (new_size, scale) in enumerate(output_sizes):
        start = region[i]
        end = region[len(numbers) + i]
        axis = _ResizedAxis(numbers[i], old_sizes[i], new_size, scale, start, end)
        resized.append(axis)
    settings = _ResizeSettings(
        mode,
        coordinate_transformation_mode,
        nearest_mode,
        cubic_coeff_a,
        exclude_outside,
        extrapolation_value,
        antialias,
    )
    return _resize_axes(x, resized, settings)


@op("GridSample", since=20)
def grid_sample(
    x: Tensor,
    grid: Tensor,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Tensor:
    torch_mode = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    return F.grid_sample(x, grid, torch_mode, padding_mode, bool(align_corners))


op("GridSample")(partial(grid_sample, mode="bilinear"))


@op("AffineGrid", constants=(1,))
def affine_grid(theta: Tensor, size: Tensor, *, align_corners: int = 0) -> Tensor:
    return F.affine_grid(theta, check_sizes(to_ints(size)), bool(align_corners))
