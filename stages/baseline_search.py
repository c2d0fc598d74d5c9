"""Which point of the baseline's curve to measure next, given accuracies on the validation split."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ltp_pipeline.results.gain import (
    WIDE_RATIO,
    TradeoffPoint,
    bracket_value,
    interpolate_compression,
    sort_points,
)
from ltp_pipeline.results.metric import Metric

MAX_POINTS = 4  # points of the curve, including the one at LTP's compression
# Ratio of compressions below which two points around the accuracy of a budget are near enough.
# Without a budget it is WIDE.
NARROW = 1.1
NEAR = 1.05  # ratio of compressions below which a further point adds no information
# Factors by which a step beyond all measured points changes the compression.
MIN_STEP = 1.2
MAX_STEP = 3.0
DEFAULT_STEP = 2.0  # used if the accuracies measured so far do not fall


def next_compression(
    metric: Metric,
    points: Sequence[TradeoffPoint],
    original: TradeoffPoint,
    accuracy: float,
    max_compression: float,
    near: float = WIDE_RATIO,
) -> float | None:
    """Return the compression to measure next, so that two near points bracket an accuracy.

    The search uses the secant in log compression. Accuracy falls late and then fast, for which a
    secant alone is a bad guess. So a step goes at most half of the way to the original, a factor
    of MAX_STEP beyond the sparsest point, or into the middle third between two points.

    Args:
        metric: The metric.
        points: Points measured so far.
        original: The unpruned network.
        accuracy: The accuracy to bracket.
        max_compression: The compression at which every layer keeps one weight.
        near: Ratio of compressions at which two points are near enough.

    Returns:
        A compression ratio; None if the search is done or no point would add information.
    """
    if len(points) >= MAX_POINTS:
        return None
    inside, outside = bracket_value(metric, points, accuracy)
    ordered = sort_points(metric, points)
    compression = None
    if inside is None:
        compression = _step_milder(metric, ordered[0], original, accuracy)
    elif outside is None:
        compression = _step_sparser(metric, ordered, original, accuracy, max_compression)
    elif outside.compression > near * inside.compression:
        compression = _step_between(metric, inside, outside, accuracy)
    if compression is None:
        return None
    for point in (original, *points):
        if 1 / NEAR < compression / point.compression < NEAR:
            return None
    return compression


def _step_milder(
    metric: Metric, mildest: TradeoffPoint, original: TradeoffPoint, accuracy: float
) -> float | None:
    """Step from the least compressed point toward the original, at most half of the way."""
    low = math.log(original.compression)
    high = math.log(mildest.compression)
    nearest = high - math.log(MIN_STEP)
    farthest = low + (high - low) / 2
    if nearest <= low:
        return None
    root = farthest
    fall = metric.compute_drop(original.value, mildest.value)
    if fall > 0:
        root = low + (high - low) * metric.compute_drop(original.value, accuracy) / fall
    return math.exp(min(max(root, farthest), max(nearest, farthest)))


def _step_sparser(
    metric: Metric,
    ordered: Sequence[TradeoffPoint],
    original: TradeoffPoint,
    accuracy: float,
    max_compression: float,
) -> float:
    """Step beyond the sparsest point, by the secant through it and the point before it."""
    last = ordered[-1]
    before = ordered[-2] if len(ordered) > 1 else original
    slope = 0.0
    if last.compression > before.compression:
        fall = metric.compute_drop(before.value, last.value)
        slope = fall / math.log(last.compression / before.compression)
    factor = DEFAULT_STEP
    if slope > 0:  # false also if the fall is so small that the slope underflows
        step = metric.compute_drop(last.value, accuracy) / slope
        factor = math.exp(min(step, math.log(MAX_STEP)))
    return min(last.compression * max(factor, MIN_STEP), max_compression)


def _step_between(
    metric: Metric, inside: TradeoffPoint, outside: TradeoffPoint, accuracy: float
) -> float:
    """Step into the middle third between two points."""
    low = math.log(inside.compression)
    high = math.log(outside.compression)
    third = (high - low) / 3
    secant = math.log(interpolate_compression(metric, inside, outside, accuracy))
    return math.exp(min(max(secant, low + third), high - third))
