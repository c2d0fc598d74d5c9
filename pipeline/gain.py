"""The gain: how many times fewer weights LTP has than the baseline needs for the same accuracy."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

ROUNDING = 1e-9  # accuracies that differ by less are the same
WIDE = 1.5  # ratio of compressions up to which two points are near each other
Bound = Literal["at least", "at most"]


class Point(NamedTuple):
    """A network of the baseline: its compression, and its accuracy on one split."""

    compression: float
    accuracy: float


@dataclass(frozen=True)
class Gain:
    """Compression / the one of the baseline at equal accuracy; where that is not measured, the bound that is known."""

    value: float
    compression_at_equal_accuracy: float | None
    bound: Bound | None = None
    reason: str | None = None  # why there is no compression at equal accuracy
    ends: tuple[Point, ...] = ()  # the two measured points that it was interpolated between

    @property
    def is_wide(self) -> bool:
        """Whether these points are so far apart that a straight line between them says little."""
        return len(self.ends) == 2 and self.ends[1].compression > WIDE * self.ends[0].compression


def compared_at(accuracy: float, original: float | None, budget: float | None) -> float:
    """The accuracy at which two networks are compared: the first one's, or the least within the same budget."""
    return accuracy if budget is None or original is None else min(accuracy, original - budget)


def compare(
    compression: float, accuracy: float, original: float | None, budget: float | None, points: Sequence[Point]
) -> Gain:
    """The gain of a network over the baseline's points: at its own accuracy, or within the same accuracy budget."""
    return gain(compression, compared_at(accuracy, original, budget), points, interpolate=budget is None)


def bracket(points: Sequence[Point], least: float) -> tuple[Point | None, Point | None]:
    """The sparsest point that has at least this accuracy, and the next sparser one, which has less."""
    listed = sorted(points)
    reached = [i for i, point in enumerate(listed) if point.accuracy >= least - ROUNDING]
    if not reached:
        return None, listed[0] if listed else None
    inside = reached[-1]
    return listed[inside], listed[inside + 1] if inside + 1 < len(listed) else None


def gain(compression: float, least: float, points: Sequence[Point], interpolate: bool) -> Gain:
    """The gain of a network of this compression over the baseline's points, at an accuracy of `least`.

    With `interpolate`, the baseline's compression is linear in its logarithm between the two points around `least`;
    without, it is that of the sparsest point that has `least`.
    """
    if not points:
        raise ValueError("there is no gain over a baseline without points")
    inside, outside = bracket(points, least)
    if inside is None:
        mildest = min(points).compression
        why = f"no measured point of the baseline is as good, down to {mildest:.3g}×"
        return Gain(compression / mildest, None, "at least", why)
    if outside is None:
        why = f"the sparsest measured point of the baseline, {inside.compression:.3g}×, is still as good"
        return Gain(compression / inside.compression, None, "at most", why)
    if not interpolate:
        return Gain(compression / inside.compression, inside.compression)
    equal = between(inside, outside, least)
    return Gain(compression / equal, equal, ends=(inside, outside))


def between(inside: Point, outside: Point, accuracy: float) -> float:
    """The compression at an accuracy between those of two points, linear in log compression."""
    apart = inside.accuracy - outside.accuracy
    share = min(max((inside.accuracy - accuracy) / apart, 0.0), 1.0) if apart > 0 else 0.0
    found = math.exp((1 - share) * math.log(inside.compression) + share * math.log(outside.compression))
    return min(max(found, inside.compression), outside.compression)
