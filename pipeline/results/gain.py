"""The gain: how many times fewer weights LTP has than the baseline needs for the same accuracy."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ltp_pipeline.results.metric import Metric

WIDE_RATIO = 1.5  # ratio of compressions up to which two points are near each other
Bound = Literal["at least", "at most"]


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
    bound: Bound | None = None
    reason: str | None = None  # why there is no compression at equal accuracy
    ends: tuple[TradeoffPoint, ...] = ()  # the two measured points that it was interpolated between

    @property
    def is_wide(self) -> bool:
        """Whether the two points are too far apart for a straight line between them."""
        return (
            len(self.ends) == 2 and self.ends[1].compression > WIDE_RATIO * self.ends[0].compression
        )


def find_compared_value(
    metric: Metric, accuracy: float, original: float | None, budget: float | None
) -> float:
    """Return the accuracy at which two networks are compared.

    It is the accuracy of the first one, or the worst accuracy within a budget if that is worse.
    """
    if budget is None or original is None:
        return accuracy
    return metric.find_worst((accuracy, metric.find_worst_allowed(original, budget)), float)


def compute_gain(
    metric: Metric,
    compression: float,
    accuracy: float,
    original: float | None,
    budget: float | None,
    points: Sequence[TradeoffPoint],
) -> Gain:
    """Return the gain of a network over the points of the baseline.

    Args:
        metric: The metric.
        compression: Compression of the network.
        accuracy: The network's value of the metric.
        original: The original's value of the metric.
        budget: Largest drop, if both networks are compared within it; None compares at equal
            accuracy.
        points: Points of the baseline.
    """
    least = find_compared_value(metric, accuracy, original, budget)
    return compute_gain_at(metric, compression, least, points, interpolate=budget is None)


def sort_points(metric: Metric, points: Sequence[TradeoffPoint]) -> list[TradeoffPoint]:
    """Return points in the order of compression; of equal compressions, the best last."""
    return sorted(points, key=lambda point: (point.compression, metric.oriented_value(point.value)))


def bracket_value(
    metric: Metric, points: Sequence[TradeoffPoint], least: float
) -> tuple[TradeoffPoint | None, TradeoffPoint | None]:
    """Return the sparsest point that reaches an accuracy, and the next sparser point."""
    listed = sort_points(metric, points)
    reached = [i for i, point in enumerate(listed) if metric.is_no_worse(point.value, least)]
    if not reached:
        return None, listed[0] if listed else None
    inside = reached[-1]
    return listed[inside], listed[inside + 1] if inside + 1 < len(listed) else None


def compute_gain_at(
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
        why = f"no measured point of the baseline is as accurate, down to {mildest:.3g}×"
        return Gain(compression / mildest, None, "at least", why)
    if outside is None:
        why = (
            f"the sparsest measured point of the baseline, {inside.compression:.3g}×, "
            "is still as accurate"
        )
        return Gain(compression / inside.compression, None, "at most", why)
    if not interpolate:
        return Gain(compression / inside.compression, inside.compression)
    equal = interpolate_compression(metric, inside, outside, least)
    return Gain(compression / equal, equal, ends=(inside, outside))


def interpolate_compression(
    metric: Metric, inside: TradeoffPoint, outside: TradeoffPoint, accuracy: float
) -> float:
    """Return the compression at an accuracy between two points, linear in log compression."""
    apart = metric.compute_drop(inside.value, outside.value)
    share = (
        min(max(metric.compute_drop(inside.value, accuracy) / apart, 0.0), 1.0)
        if apart > 0
        else 0.0
    )
    compression = math.exp(
        (1 - share) * math.log(inside.compression) + share * math.log(outside.compression)
    )
    return min(max(compression, inside.compression), outside.compression)
