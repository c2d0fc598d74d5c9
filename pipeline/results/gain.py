"""The gain: how many times fewer weights LTP has than the baseline needs for the same accuracy."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ltp_pipeline.results.metric import Metric

WIDE_RATIO = 1.5  # ratio of compressions up to which two points are near each other


class TradeoffPoint(NamedTuple):
    """A network of the baseline: its compression, and its metric on one split."""

    compression: float
    value: float


@dataclass(frozen=True)
class Gain:
    """How many times fewer weights LTP has than the baseline needs for the same accuracy.

    Attributes:
        value: Compression of LTP / that of the baseline at equal accuracy.
        compression_at_equal_accuracy: That compression; None if it was not measured.
        bound: Whether the gain is at least or at most `value`; None if it is known.
        reason: Why there is no compression at equal accuracy.
        ends: The two points that it was interpolated between.
    """

    value: float
    compression_at_equal_accuracy: float | None
    bound: Literal["at least", "at most"] | None = None
    reason: str | None = None
    ends: tuple[TradeoffPoint, ...] = ()

    @property
    def is_wide(self) -> bool:
        """Whether the two points are too far apart for a straight line between them."""
        if not self.ends:
            return False
        inside, outside = self.ends
        return outside.compression > WIDE_RATIO * inside.compression


def find_compared_value(
    metric: Metric, accuracy: float, original: float | None, budget: float | None
) -> float:
    """Return the accuracy at which two networks are compared.

    It is the accuracy of the first one, or the worst accuracy within a budget if that is worse.
    """
    if budget is None or original is None:
        return accuracy
    return metric.find_worst((accuracy, metric.find_worst_allowed(original, budget)), float)


def sort_points(metric: Metric, points: Sequence[TradeoffPoint]) -> list[TradeoffPoint]:
    """Return points in the order of compression; of equal compressions, the best last."""
    return sorted(points, key=lambda point: (point.compression, metric.oriented_value(point.value)))


def bracket_value(
    metric: Metric, points: Sequence[TradeoffPoint], least: float
) -> tuple[TradeoffPoint | None, TradeoffPoint | None]:
    """Return the sparsest point that reaches an accuracy, and the next sparser point."""
    outside = None
    for point in reversed(sort_points(metric, points)):
        if metric.is_no_worse(point.value, least):
            return point, outside
        outside = point
    return None, outside


def compute_gain(
    metric: Metric,
    compression: float,
    least: float,
    points: Sequence[TradeoffPoint],
    interpolate: bool,
) -> Gain:
    """Return the gain of a network over the points of the baseline at an accuracy.

    Args:
        metric: The metric.
        compression: Compression of the network.
        least: The accuracy.
        points: Points of the baseline.
        interpolate: Whether the baseline's compression is interpolated, linear in its logarithm,
            between the points around the accuracy. Otherwise it is that of the sparsest point that
            reaches the accuracy.
    """
    if not points:
        raise ValueError("there is no gain over a baseline without points")
    inside, outside = bracket_value(metric, points, least)
    if inside is None:
        mildest = min(point.compression for point in points)
        reason = f"no measured point of the baseline is as accurate, down to {mildest:.3g}×"
        return Gain(compression / mildest, None, "at least", reason)
    if outside is None:
        reason = (
            f"the sparsest measured point of the baseline, {inside.compression:.3g}×, "
            "is still as accurate"
        )
        return Gain(compression / inside.compression, None, "at most", reason)
    if not interpolate:
        return Gain(compression / inside.compression, inside.compression)
    equal = interpolate_compression(metric, inside, outside, least)
    return Gain(compression / equal, equal, ends=(inside, outside))


def interpolate_compression(
    metric: Metric, inside: TradeoffPoint, outside: TradeoffPoint, accuracy: float
) -> float:
    """Return the compression at an accuracy between two points, linear in log compression."""
    fall = metric.compute_drop(inside.value, outside.value)
    weight = 0.0
    if fall > 0:
        weight = min(max(metric.compute_drop(inside.value, accuracy) / fall, 0.0), 1.0)
    logarithm = (1 - weight) * math.log(inside.compression) + weight * math.log(outside.compression)
    return min(max(math.exp(logarithm), inside.compression), outside.compression)
