"""How sure a difference between two networks is, told from the same samples."""

from statistics import NormalDist
from typing import Any

import numpy as np


def paired_interval(
    before_correct: np.ndarray[Any, np.dtype[Any]],
    after_correct: np.ndarray[Any, np.dtype[Any]],
    confidence: float = 0.95,
) -> tuple[float, float]:
    """Interval of mean(before) - mean(after), after Bonett and Price (2012), doi:10.3102/1076998611411915.

    Only samples on which the two disagree tell them apart. Adding one to both kinds of disagreement keeps the interval
    honest for small sets, also when the two never disagree; a bootstrap would answer "no doubt at all" there.
    Where a sample is right in parts (numbers up to 1), the interval is that of a mean of differences; a mean below 0
    is reported as 0.
    """
    if before_correct.shape != after_correct.shape or before_correct.ndim != 1 or not before_correct.size:
        raise ValueError("paired outcomes must be two vectors of the same length, at least 1")
    n = before_correct.size
    z = NormalDist().inv_cdf((1 + confidence) / 2)
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
