"""How sure a measurement is: intervals of a share, of a difference on the same samples, and of other confidence."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Outcomes = np.ndarray[Any, np.dtype[Any]]

CONFIDENCE = 0.95  # of the intervals that stand in a report
Interval = tuple[float, float]


def wilson(share: float, samples: float, confidence: float = CONFIDENCE) -> Interval:
    """Wilson's score interval of a share of samples."""
    z2 = _quantile(confidence) ** 2
    middle = (share + z2 / (2 * samples)) / (1 + z2 / samples)
    half = math.sqrt(z2 * (share * (1 - share) / samples + z2 / (4 * samples**2))) / (1 + z2 / samples)
    return max(0.0, middle - half), min(1.0, middle + half)


def with_confidence(stated: Interval, confidence: float) -> Interval:
    """The interval of a report, stretched from its own confidence to another."""
    low, high = stated
    stretch = _quantile(confidence) / _quantile(CONFIDENCE)
    middle, half = (low + high) / 2, stretch * (high - low) / 2
    return middle - half, middle + half


def paired_interval(before_correct: Outcomes, after_correct: Outcomes, confidence: float = CONFIDENCE) -> Interval:
    """Interval of mean(before) - mean(after), after Bonett and Price (2012), doi:10.3102/1076998611411915.

    Only samples on which the two disagree tell them apart. Adding one to both kinds of disagreement keeps the interval
    honest for small sets, also when the two never disagree; a bootstrap would answer "no doubt at all" there.
    Where a sample is right in parts (numbers up to 1), the interval is that of a mean of differences; a mean below 0
    is reported as 0.
    """
    import numpy as np

    if before_correct.shape != after_correct.shape or before_correct.ndim != 1 or not before_correct.size:
        raise ValueError("paired outcomes must be two vectors of the same length, at least 1")
    n = before_correct.size
    z = _quantile(confidence)
    if before_correct.dtype != np.bool_ or after_correct.dtype != np.bool_:
        apart = np.subtract(before_correct, after_correct, dtype=np.float64)
        half = z * float(apart.std(ddof=1) / np.sqrt(n)) if n > 1 else 1.0
        point = max(float(before_correct.mean()), 0.0) - max(float(after_correct.mean()), 0.0)
        low, high = float(apart.mean()) - half, float(apart.mean()) + half
        return max(-1.0, min(low, point)), min(1.0, max(high, point))
    lost = int(np.count_nonzero(before_correct & ~after_correct))
    gained = int(np.count_nonzero(~before_correct & after_correct))
    p_lost, p_gained = (lost + 1) / (n + 2), (gained + 1) / (n + 2)
    middle = p_lost - p_gained
    half = z * float(np.sqrt((p_lost + p_gained - middle**2) / (n + 2)))
    point = (lost - gained) / n
    return max(-1.0, min(middle - half, point)), min(1.0, max(middle + half, point))


def _quantile(confidence: float) -> float:
    """How many standard deviations to either side hold that share of a normal distribution."""
    return NormalDist().inv_cdf((1 + confidence) / 2)
