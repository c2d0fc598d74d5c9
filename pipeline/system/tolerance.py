"""When two computations of the same thing count as equal: by the largest value, and above a floor.

Relative difference alone condemns outputs that are nearly zero: onnxruntime's Sigmoid is off by 6e-8 whatever its
value, and what is left when large numbers cancel is rounding. Such a difference tells neither for nor against.
"""

import math
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

import numpy as np

from ltp_pipeline.system.arrays import Array

FLOOR = 1e-6  # the absolute difference that says nothing; a hundredth of the tolerance where that is more
MARGIN = 10  # times how far onnxruntime is from itself


class MaxDifference(NamedTuple):
    """The largest difference, and the largest value it is to be seen beside."""

    difference: float
    scale: float

    @property
    def relative(self) -> float:
        """The difference as a share of the largest value; all zeros count as of size one."""
        return self.difference / (self.scale or 1.0)


SAME, OTHER = MaxDifference(0.0, 1.0), MaxDifference(math.inf, 1.0)


class Agreement(Enum):
    """What a difference says."""

    EQUAL = "equal"
    INCONCLUSIVE = "too small to tell"
    DIFFERENT = "different"


def max_difference(actual: Array, expected: Array) -> MaxDifference:
    """How far two arrays are apart; of integers the share that differs. Infinities and NaN may be the same."""
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
    """Judge a difference; `noise`, asked only in doubt, is how far onnxruntime is from itself without optimisation."""
    if difference.difference <= tolerance * difference.scale:
        return Agreement.EQUAL if difference.scale else Agreement.INCONCLUSIVE
    if (
        difference.difference <= max(FLOOR, tolerance / 100)
        or difference.difference <= MARGIN * noise()
    ):
        return Agreement.INCONCLUSIVE
    return Agreement.DIFFERENT
