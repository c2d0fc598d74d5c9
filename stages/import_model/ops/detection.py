"""Operators of object detection: regions and boxes."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ltp_pipeline.stages.import_model.ops.common import check_sizes
from ltp_pipeline.stages.import_model.registry import op


def _sort_corners(boxes: Tensor, center_point_box: int) -> tuple[Tensor, Tensor]:
    """Return the lower and upper corner of each box, whatever the order of its corners."""
    if center_point_box:
        half = boxes[..., 2:] / 2
        return boxes[..., :2] - half, boxes[..., :2] + half
    first, second = boxes[..., :2], boxes[..., 2:]
    return torch.minimum(first, second), torch.maximum(first, second)


def _intersection_over_union(low: Tensor, high: Tensor) -> Tensor:
    """Return the intersection over union of every pair of boxes."""
    inner = torch.minimum(high.unsqueeze(0), high.unsqueeze(1)) - torch.maximum(
        low.unsqueeze(0), low.unsqueeze(1)
    )
    shared = inner.clamp(min=0).prod(-1)
    area = (high - low).prod(-1)
    union = area.unsqueeze(0) + area.unsqueeze(1) - shared
    return torch.where(union > 0, shared / union, torch.zeros_like(union))


@op("NonMaxSuppression", since=10, constants=(2, 3, 4))
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
    chosen = []
    for batch in range(scores.shape[0] if most > 0 else 0):
        overlapping = (
            _intersection_over_union(*_sort_corners(boxes[batch], center_point_box)) > limit
        )
        for label in range(scores.shape[1]):
            score = scores[batch, label]
            order = score.argsort(descending=True, stable=True)
            if score_threshold is not None:
                order = order[score[order] > float(score_threshold)]
            selected_boxes: list[int] = []
            while len(order) and len(selected_boxes) < most:
                best = int(order[0])
                selected_boxes.append(best)
                order = order[1:]
                order = order[~overlapping[best, order]]
            chosen += [[batch, label, box] for box in selected_boxes]
    return torch.tensor(chosen, dtype=torch.int64, device=boxes.device).reshape(-1, 3)


def _find_neighbors(position: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the cells below and above each coordinate.

    Returns:
        The lower cell, the upper cell, the weight of the upper cell, and whether the coordinate
        counts.
    """
    inside = (position >= -1) & (position <= size)
    clamped = position.clamp(0, size - 1)
    low = clamped.floor().long().clamp(max=size - 1)
    high = (low + 1).clamp(max=size - 1)
    return low, high, clamped - low, inside


def _roi_align(
    x: Tensor,
    rois: Tensor,
    batch_indices: Tensor,
    mode: str,
    size: tuple[int, int],
    sampling_ratio: int,
    spatial_scale: float,
    half_pixel: bool,
) -> Tensor:
    shift = 0.5 if half_pixel else 0.0
    left, top, right, bottom = (rois * spatial_scale - shift).unbind(1)
    axes = []
    for start, end, count, length in (
        (top, bottom, size[0], x.shape[2]),
        (left, right, size[1], x.shape[3]),
    ):
        extent = end - start if half_pixel else (end - start).clamp(min=1.0)
        step = extent / count
        samples = (
            torch.full_like(step, sampling_ratio)
            if sampling_ratio > 0
            else step.ceil().clamp(min=0)
        )
        most = max(int(samples.max()), 1) if len(samples) else 1
        number = torch.arange(most, device=x.device)
        bins = torch.arange(count, device=x.device).reshape(1, -1, 1)
        inner = (number + 0.5) * (step / samples.clamp(min=1)).unsqueeze(1)
        position = (
            start.reshape(-1, 1, 1) + bins * step.reshape(-1, 1, 1) + inner.unsqueeze(1)
        ).flatten(1)
        used = (number < samples.unsqueeze(1)).unsqueeze(1).expand(-1, count, -1).flatten(1)
        axes.append((*_find_neighbors(position, length), used, samples, most))
    (y0, y1, fy, in_y, used_y, n_y, most_y), (x0, x1, fx, in_x, used_x, n_x, most_x) = axes
    check_sizes([len(rois), x.shape[1], y0.shape[1], x0.shape[1]])
    batch = batch_indices.to(x.device).long().reshape(-1, 1, 1)
    inside = (in_y.unsqueeze(2) & in_x.unsqueeze(1)).unsqueeze(-1)
    corners = []
    for rows, share_y in ((y0, 1 - fy), (y1, fy)):
        for columns, share_x in ((x0, 1 - fx), (x1, fx)):
            value = x[batch, :, rows.unsqueeze(2), columns.unsqueeze(1)]
            corners.append(
                value * (share_y.unsqueeze(2) * share_x.unsqueeze(1)).unsqueeze(-1) * inside
            )
    used = (used_y.unsqueeze(2) & used_x.unsqueeze(1)).unsqueeze(-1)
    pooled = (len(rois), size[0], most_y, size[1], most_x, x.shape[1])
    if mode == "avg":
        total = (torch.stack(corners).sum(0) * used).reshape(pooled).sum((2, 4))
        cells = (n_y * n_x).clamp(min=1).reshape(-1, 1, 1, 1)
        return (total / cells).permute(0, 3, 1, 2)
    # The standard's maximum is over the weighted corners, not over the interpolated values.
    best = torch.stack(corners).amax(0).masked_fill(~used, float("-inf"))
    return best.reshape(pooled).amax((2, 4)).permute(0, 3, 1, 2)


@op("RoiAlign", since=10, constants=(1, 2))
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
    size = (output_height, output_width)
    return _roi_align(
        x,
        rois.to(x.device),
        batch_indices,
        mode,
        size,
        sampling_ratio,
        spatial_scale,
        half_pixel=False,
    )


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
    size = (output_height, output_width)
    half = coordinate_transformation_mode == "half_pixel"
    return _roi_align(
        x,
        rois.to(x.device),
        batch_indices,
        mode,
        size,
        sampling_ratio,
        spatial_scale,
        half_pixel=half,
    )


@op("MaxRoiPool", constants=(1,))
def max_roi_pool(
    x: Tensor, rois: Tensor, *, pooled_shape: Sequence[int], spatial_scale: float = 1.0
) -> Tensor:
    rois = rois.to(x.device)
    boxes = torch.round(rois[:, 1:] * spatial_scale).long()
    inside = []  # for both spatial axes: whether a cell belongs to a bin, (rois, bins, cells)
    for first, last, bins, length in (
        (boxes[:, 1], boxes[:, 3], pooled_shape[0], x.shape[2]),
        (boxes[:, 0], boxes[:, 2], pooled_shape[1], x.shape[3]),
    ):
        extent = (last - first + 1).clamp(min=1).double() / bins
        number = torch.arange(bins, device=x.device)
        begin = torch.floor(number * extent.unsqueeze(1)) + first.unsqueeze(1)
        end = torch.ceil((number + 1) * extent.unsqueeze(1)) + first.unsqueeze(1)
        cell = torch.arange(length, device=x.device)
        inside.append((cell >= begin.unsqueeze(2)) & (cell < end.unsqueeze(2)))
    planes = x[rois[:, 0].long()]
    check_sizes([*planes.shape, *pooled_shape])
    never = float("-inf")
    rows = planes.unsqueeze(2).masked_fill(~inside[0][:, None, :, :, None], never).amax(3)
    y = rows.unsqueeze(3).masked_fill(~inside[1][:, None, None], never).amax(4)
    return torch.where(y == never, torch.zeros_like(y), y)
