"""Which point of the baseline's curve to measure next, from accuracies on the validation split."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ltp_pipeline.results.gain import WIDE, TradeoffPoint, between, bracket, by_compression
from ltp_pipeline.results.metric import Metric

MAX_POINTS = 4  # with the one at LTP's compression
NARROW = 1.1  # ratio of compressions below which two points around a budget's accuracy are near enough; else WIDE
NEAR = 1.05  # points that are nearer to each other tell nothing new
STEP, FARTHEST = (
    1.2,
    3.0,
)  # by which a step beyond all points changes the compression, at least and upwards at most
UPWARDS = 2.0  # a step upwards where the accuracies tell nothing


def next_compression(
    metric: Metric,
    points: Sequence[TradeoffPoint],
    original: TradeoffPoint,
    wanted: float,
    most: float,
    near: float = WIDE,
) -> float | None:
    """The compression to measure next, so that an accuracy of `wanted` comes to lie between two near points.

    None when it does, or when no more can be learned. By the secant in log compression; accuracy falls late and then
    fast, for which a secant alone is a bad guess, so a step is at most half of the way to the original, a factor of
    FARTHEST beyond the sparsest point, or into the middle third between two points. `most` is the largest compression
    that leaves every layer a weight.
    """
    if len(points) >= MAX_POINTS:
        return None
    inside, outside = bracket(metric, points, wanted)
    listed = by_compression(metric, points)
    if inside is None:
        found = _step_milder(metric, listed[0], original, wanted)
    elif outside is None:
        found = _step_sparser(metric, listed, original, wanted, most)
    else:
        is_wide = outside.compression > near * inside.compression
        found = _step_between(metric, inside, outside, wanted) if is_wide else None
    told = [original.compression, *(point.compression for point in points)]
    return found if found is not None and all(_is_new(found, c) for c in told) else None


def _step_milder(
    metric: Metric, mildest: TradeoffPoint, original: TradeoffPoint, wanted: float
) -> float | None:
    """Between the original and the mildest point: by the secant, but no more than half of the way."""
    low, high = math.log(original.compression), math.log(mildest.compression)
    nearest, farthest = high - math.log(STEP), low + (high - low) / 2
    if nearest <= low:
        return None
    root = farthest
    fall = metric.drop(original.accuracy, mildest.accuracy)
    if fall > 0:
        root = low + (high - low) * metric.drop(original.accuracy, wanted) / fall
    return math.exp(min(max(root, farthest), max(nearest, farthest)))


def _step_sparser(
    metric: Metric,
    listed: Sequence[TradeoffPoint],
    original: TradeoffPoint,
    wanted: float,
    most: float,
) -> float:
    """Beyond the sparsest point: by the secant through it and the one before it."""
    before, last = (listed[-2] if len(listed) > 1 else original), listed[-1]
    factor = UPWARDS
    fall = metric.drop(before.accuracy, last.accuracy)
    slope = (
        fall / math.log(last.compression / before.compression)
        if last.compression > before.compression
        else 0.0
    )
    if slope > 0:  # the smallest of falls gives none
        factor = math.exp(min(metric.drop(last.accuracy, wanted) / slope, math.log(FARTHEST)))
    return min(last.compression * max(factor, STEP), most)


def _step_between(
    metric: Metric, inside: TradeoffPoint, outside: TradeoffPoint, wanted: float
) -> float:
    """In the middle third between two points."""
    low, high = math.log(inside.compression), math.log(outside.compression)
    third = (high - low) / 3
    return math.exp(
        min(max(math.log(between(metric, inside, outside, wanted)), low + third), high - third)
    )


def _is_new(one: float, other: float) -> bool:
    return not 1 / NEAR < one / other < NEAR
