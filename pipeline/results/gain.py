"""The gain: how many times fewer weights LTP has than the baseline needs for the same accuracy."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ltp_pipeline.results.metric import Metric

WIDE_RATIO = 1.5  # ratio of compressions up to which two points are near each other
Bound = Literal["at least", "at most"]


class TradeoffPoint(NamedTuple):
    """A network of the baseline: its compression, and its accuracy on one split, which is the metric's value."""

    compression: float
    value: float


@dataclass(frozen=True)
class Gain:
    """Compression / the one of the baseline at equal accuracy; where that is not measured, the bound that is known."""

    value: float
    compression_at_equal_accuracy: float | None
    bound: Bound | None = None
    reason: str | None = None  # why there is no compression at equal accuracy
    ends: tuple[TradeoffPoint, ...] = ()  # the two measured points that it was interpolated between

    @property
    def is_wide(self) -> bool:
        """Whether these points are so far apart that a straight line between them says little."""
        return (
            len(self.ends) == 2 and self.ends[1].compression > WIDE_RATIO * self.ends[0].compression
        )


def find_compared_value(
    metric: Metric, accuracy: float, original: float | None, budget: float | None
) -> float:
    """The accuracy at which two networks are compared: the first one's, or the worst within the same budget."""
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
    """The gain of a network over the baseline's points: at its own accuracy, or within the same budget."""
    least = find_compared_value(metric, accuracy, original, budget)
    return gain_at(metric, compression, least, points, interpolate=budget is None)


def sort_points(metric: Metric, points: Sequence[TradeoffPoint]) -> list[TradeoffPoint]:
    """Points from the mildest to the sparsest; of several of one compression, the best last."""
    return sorted(points, key=lambda point: (point.compression, metric.oriented_value(point.value)))


def bracket_value(
    metric: Metric, points: Sequence[TradeoffPoint], least: float
) -> tuple[TradeoffPoint | None, TradeoffPoint | None]:
    """The sparsest point that is as good as this accuracy, and the next sparser one, which is not."""
    listed = sort_points(metric, points)
    reached = [i for i, point in enumerate(listed) if metric.is_no_worse(point.value, least)]
    if not reached:
        return None, listed[0] if listed else None
    inside = reached[-1]
    return listed[inside], listed[inside + 1] if inside + 1 < len(listed) else None


def gain_at(
    metric: Metric,
    compression: float,
    least: float,
    points: Sequence[TradeoffPoint],
    interpolate: bool,
) -> Gain:
    """The gain of a network of this compression over the baseline's points, at an accuracy of `least`.

    With `interpolate`, the baseline's compression is linear in its logarithm between the two points around `least`;
    without, it is that of the sparsest point that has `least`.
    """
    if not points:
        raise ValueError("there is no gain over a baseline without points")
    inside, outside = bracket_value(metric, points, least)
    if inside is None:
        mildest = min(point.compression for point in points)
        why = f"no measured point of the baseline is as good, down to {mildest:.3g}×"
        return Gain(compression / mildest, None, "at least", why)
    if outside is None:
        why = f"the sparsest measured point of the baseline, {inside.compression:.3g}×, is still as good"
        return Gain(compression / inside.compression, None, "at most", why)
    if not interpolate:
        return Gain(compression / inside.compression, inside.compression)
    equal = interpolate_compression(metric, inside, outside, least)
    return Gain(compression / equal, equal, ends=(inside, outside))


def interpolate_compression(
    metric: Metric, inside: TradeoffPoint, outside: TradeoffPoint, accuracy: float
) -> float:
    """The compression at an accuracy between those of two points, linear in log compression."""
    apart = metric.compute_drop(inside.value, outside.value)
    share = (
        min(max(metric.compute_drop(inside.value, accuracy) / apart, 0.0), 1.0)
        if apart > 0
        else 0.0
    )
    found = math.exp(
        (1 - share) * math.log(inside.compression) + share * math.log(outside.compression)
    )
    return min(max(found, inside.compression), outside.compression)
