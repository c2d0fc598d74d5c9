"""Operators of object detection: regions and boxes."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ltp_pipeline.stages.import_model.ops.common import check_sizes, make_range
from ltp_pipeline.stages.import_model.registry import op


def _intersection_over_union(boxes: Tensor, center_point_box: int) -> Tensor:
    """Return the intersection over union of every pair of boxes."""
    first = boxes[:, :2]
    second = boxes[:, 2:]
    if center_point_box:
        first, second = first - second / 2, first + second / 2
    low = torch.minimum(first, second)
    high = torch.maximum(first, second)
    shared_low = torch.maximum(low.unsqueeze(0), low.unsqueeze(1))
    shared_high = torch.minimum(high.unsqueeze(0), high.unsqueeze(1))
    shared = (shared_high - shared_low).clamp(min=0).prod(-1)
    area = (high - low).prod(-1)
    union = area.unsqueeze(0) + area.unsqueeze(1) - shared
    return torch.where(union > 0, shared / union, torch.zeros_like(union))


@op("NonMaxSuppression", constants=(2, 3, 4))
def non_max_suppression(
    boxes: Tensor,
    scores: Tensor,
    max_output_boxes_per_class: Tensor | None = None,
    iou_threshold: Tensor | None = None,
    score_threshold: Tensor | None = None,
    *,
    center_point_box: int = 0,
) -> Tensor:
    most = 0 if max_output_boxes_per_class is None else int(max_output_boxes_per_class)
    limit = 0.0 if iou_threshold is None else float(iou_threshold)
    check_sizes([boxes.shape[1], boxes.shape[1]])
    selected: list[list[int]] = []
    for batch in range(scores.shape[0] if most > 0 else 0):
        is_overlapping = _intersection_over_union(boxes[batch], center_point_box) > limit
        for label in range(scores.shape[1]):
            score = scores[batch, label]
            order = score.argsort(descending=True, stable=True)
            if score_threshold is not None:
                order = order[score[order] > float(score_threshold)]
            end = len(selected) + most
            while len(order) and len(selected) < end:
                best = int(order[0])
                selected.append([batch, label, best])
                order = order[1:]
                order = order[~is_overlapping[best, order]]
    indices = torch.tensor(selected, dtype=torch.int64, device=boxes.device)
    return indices.reshape(-1, 3)


class _AxisSamples(NamedTuple):
    """Sampling points along one axis of regions.

    Attributes:
        cells: Cells below and above each point, of shape (2, regions, bins · most).
        weights: Weights of these cells; zero for points outside of the image.
        is_used: False for points that fill up bins with less than the most points.
        counts: Number of points in a bin of each region.
        most: The highest of these numbers.
    """

    cells: Tensor
    weights: Tensor
    is_used: Tensor
    counts: Tensor
    most: int


def _sample_axis(
    start: Tensor,
    end: Tensor,
    bins: int,
    length: int,
    sampling_ratio: int,
    is_half_pixel: bool,
) -> _AxisSamples:
    extent = end - start
    if not is_half_pixel:
        extent = extent.clamp(min=1.0)
    step = extent / bins
    counts = step.ceil().clamp(min=0)
    if sampling_ratio > 0:
        counts = torch.full_like(step, sampling_ratio)
    most = max(1, *counts.int().tolist())
    number = make_range(most, start)
    is_used = (number < counts.unsqueeze(1)).repeat(1, bins)
    distance = step / counts.clamp(min=1)
    inner = (number + 0.5) * distance.unsqueeze(1)
    offset = make_range(bins, start) * step.unsqueeze(1)
    first = start.unsqueeze(1) + offset
    position = first.unsqueeze(2) + inner.unsqueeze(1)
    position = position.flatten(1)
    is_inside = (position >= -1) & (position <= length)
    position = position.clamp(0, length - 1)
    low = position.floor().long()
    high = (low + 1).clamp(max=length - 1)
    fraction = position - low
    cells = torch.stack([low, high])
    weights = torch.stack([1 - fraction, fraction]) * is_inside
    return _AxisSamples(cells, weights, is_used, counts, most)


@op("RoiAlign", since=16, constants=(1, 2))
def roi_align_16(
    x: Tensor,
    rois: Tensor,
    batch_indices: Tensor,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Tensor:
    is_half_pixel = coordinate_transformation_mode == "half_pixel"
    shift = 0.5 if is_half_pixel else 0.0
    channels, height, width = x.shape[1:]
    edges = rois.to(x.device) * spatial_scale - shift
    left, top, right, bottom = edges.unbind(1)
    rows = _sample_axis(top, bottom, output_height, height, sampling_ratio, is_half_pixel)
    columns = _sample_axis(left, right, output_width, width, sampling_ratio, is_half_pixel)
    bins = (len(rois), output_height, rows.most, output_width, columns.most, channels)
    check_sizes(bins)
    batch = batch_indices.to(x.device).long().reshape(-1, 1, 1)
    corners = []
    for row, row_weight in zip(rows.cells, rows.weights, strict=True):
        for column, column_weight in zip(columns.cells, columns.weights, strict=True):
            value = x[batch, :, row.unsqueeze(2), column.unsqueeze(1)]
            weight = row_weight.unsqueeze(2) * column_weight.unsqueeze(1)
            corners.append(value * weight.unsqueeze(-1))
    is_used = rows.is_used.unsqueeze(2) & columns.is_used.unsqueeze(1)
    is_used = is_used.unsqueeze(-1)
    if mode == "avg":
        samples = torch.stack(corners).sum(0) * is_used
        counts = (rows.counts * columns.counts).clamp(min=1)
        total = samples.reshape(bins).sum((2, 4))
        y = total / counts.reshape(-1, 1, 1, 1)
    else:
        # The standard's maximum is over the weighted corners, not over the interpolated values.
        samples = torch.stack(corners).amax(0)
        samples = samples.masked_fill(~is_used, float("-inf"))
        y = samples.reshape(bins).amax((2, 4))
    return y.permute(0, 3, 1, 2)


@op("RoiAlign", constants=(1, 2))
def roi_align_10(
    x: Tensor,
    rois: Tensor,
    batch_indices: Tensor,
    *,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Tensor:
    return roi_align_16(
        x,
        rois,
        batch_indices,
        coordinate_transformation_mode="output_half_pixel",
        mode=mode,
        output_height=output_height,
        output_width=output_width,
        sampling_ratio=sampling_ratio,
        spatial_scale=spatial_scale,
    )


@op("MaxRoiPool", constants=(1,))
def max_roi_pool(
    x: Tensor,
    rois: Tensor,
    *,
    pooled_shape: Sequence[int],
    spatial_scale: float = 1.0,
) -> Tensor:
    rois = rois.to(x.device)
    edges = torch.round(rois[:, 1:] * spatial_scale).long()
    left, top, right, bottom = edges.unbind(1)
    planes = x[rois[:, 0].long()]
    check_sizes([*planes.shape, *pooled_shape])
    is_row = _find_bin_cells(top, bottom, pooled_shape[0], x.shape[2])
    is_column = _find_bin_cells(left, right, pooled_shape[1], x.shape[3])
    never = float("-inf")
    is_other_row = ~is_row[:, None, :, :, None]
    is_other_column = ~is_column[:, None, None]
    rows = planes.unsqueeze(2).masked_fill(is_other_row, never).amax(3)
    y = rows.unsqueeze(3).masked_fill(is_other_column, never).amax(4)
    return torch.where(y == never, torch.zeros_like(y), y)


def _find_bin_cells(first: Tensor, last: Tensor, bins: int, length: int) -> Tensor:
    """Return which cells along an axis belong to a bin, of shape (regions, bins, cells)."""
    length_in_cells = (last - first + 1).clamp(min=1)
    extent = (length_in_cells.double() / bins).unsqueeze(1)
    number = make_range(bins, first)
    begin = torch.floor(number * extent) + first.unsqueeze(1)
    end = torch.ceil((number + 1) * extent) + first.unsqueeze(1)
    cell = make_range(length, first)
    return (cell >= begin.unsqueeze(2)) & (cell < end.unsqueeze(2))
