"""When two computations of the same values count as equal: relative to the largest value.

A relative difference of single values would reject outputs that are nearly zero: the Sigmoid of
onnxruntime is off by 6e-8 whatever its value, and what remains when large numbers cancel is
rounding. Such a difference is inconclusive.
"""

import math
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

import numpy as np

from ltp_pipeline.system.arrays import Array

# Absolute difference that is inconclusive; or a hundredth of the tolerance if that is more
FLOOR = 1e-6
MARGIN = 10  # multiple of the noise of onnxruntime that is inconclusive


class MaxDifference(NamedTuple):
    """The largest difference of two arrays.

    Attributes:
        difference: The largest absolute difference.
        scale: The largest absolute value.
    """

    difference: float
    scale: float

    @property
    def relative(self) -> float:
        """The difference as a fraction of the scale; a scale of zero counts as one."""
        return self.difference / (self.scale or 1.0)


SAME, OTHER = MaxDifference(0.0, 1.0), MaxDifference(math.inf, 1.0)


class Agreement(Enum):
    """What a difference says about two computations."""

    EQUAL = "equal"
    INCONCLUSIVE = "too small to compare"
    DIFFERENT = "different"


def max_difference(actual: Array, expected: Array) -> MaxDifference:
    """Return the largest difference of two arrays; of integers, the fraction that differs.

    Infinities and NaN in the same places count as equal.
    """
    if actual.shape != expected.shape:
        return OTHER
    if actual.size == 0:
        return SAME
    if not np.issubdtype(actual.dtype, np.floating):
        return MaxDifference(float(np.mean(actual != expected)), 1.0)
    a, b = actual.astype(np.float64), expected.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0.0, np.nan_to_num(np.abs(a - b), nan=np.inf))
    return MaxDifference(float(apart.max()), float(np.max(np.abs(b[np.isfinite(b)]), initial=0.0)))


def check_tolerance(
    difference: MaxDifference, tolerance: float, noise: Callable[[], float]
) -> Agreement:
    """Return whether two computations agree.

    Args:
        difference: Their largest difference.
        tolerance: Relative difference up to which they are equal.
        noise: Returns the difference between onnxruntime with and without optimization. It is
            called only in doubt.
    """
    if difference.difference <= tolerance * difference.scale:
        return Agreement.EQUAL if difference.scale else Agreement.INCONCLUSIVE
    is_tiny = difference.difference <= max(FLOOR, tolerance / 100)
    if is_tiny or difference.difference <= MARGIN * noise():
        return Agreement.INCONCLUSIVE
    return Agreement.DIFFERENT
