"""Confidence intervals of a fraction, and of differences measured on the same samples."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Outcomes = np.ndarray[Any, np.dtype[Any]]

CONFIDENCE = 0.95  # of the intervals that stand in a report
DRAWS, FEWEST_DRAWS = 1000, 200  # of a bootstrap
MOST_DRAWN = 100_000_000  # numbers in all its draws
DEFINED = 0.5  # share of draws on which a metric must be defined for an interval
UNDEFINED = "the metric is undefined for most bootstrap samples"  # why there is none
Interval = tuple[float, float]


def wilson_interval(fraction: float, samples: float, confidence: float = CONFIDENCE) -> Interval:
    """Return Wilson's score interval of a fraction of samples."""
    z2 = _normal_quantile(confidence) ** 2
    middle = (fraction + z2 / (2 * samples)) / (1 + z2 / samples)
    half = math.sqrt(z2 * (fraction * (1 - fraction) / samples + z2 / (4 * samples**2)))
    half /= 1 + z2 / samples
    return max(0.0, middle - half), min(1.0, middle + half)


def change_confidence(stated: Interval, confidence: float) -> Interval:
    """Return an interval stretched from its own confidence to another."""
    low, high = stated
    stretch = _normal_quantile(confidence) / _normal_quantile(CONFIDENCE)
    middle = (low + high) / 2
    half = stretch * (high - low) / 2
    return middle - half, middle + half


def paired_interval(
    before_correct: Outcomes, after_correct: Outcomes, confidence: float = CONFIDENCE
) -> Interval:
    """Return the interval of mean(before) - mean(after), paired by sample.

    The method is that of Bonett and Price (2012), doi:10.3102/1076998611411915. Only samples on
    which the two disagree tell them apart. One is added to both kinds of disagreement. That keeps
    the interval honest for small sets, also if the two never disagree; a bootstrap would claim
    certainty. For samples that are correct in part (numbers up to 1), the interval is that of a
    mean of differences. A mean below 0 counts as 0.
    """
    import numpy as np

    n = before_correct.size
    if before_correct.shape != after_correct.shape or before_correct.ndim != 1 or not n:
        raise ValueError("paired outcomes must be two vectors of the same length, at least 1")
    if before_correct.dtype != np.bool_ or after_correct.dtype != np.bool_:
        low, high = mean_interval(before_correct, after_correct, confidence)
        if n == 1:  # of one difference, the deviation is not known
            low, high = low - 1.0, high + 1.0
        point = max(float(before_correct.mean()), 0.0) - max(float(after_correct.mean()), 0.0)
        return max(-1.0, min(low, point)), min(1.0, max(high, point))
    lost = int(np.count_nonzero(before_correct & ~after_correct))
    gained = int(np.count_nonzero(~before_correct & after_correct))
    return counted_interval(n, lost, gained, confidence)


def counted_interval(
    samples: int, lost: int, gained: int, confidence: float = CONFIDENCE
) -> Interval:
    """Return the paired interval from counts of samples that only one network has correct."""
    p_lost, p_gained = (lost + 1) / (samples + 2), (gained + 1) / (samples + 2)
    middle = p_lost - p_gained
    half = _normal_quantile(confidence) * math.sqrt((p_lost + p_gained - middle**2) / (samples + 2))
    point = (lost - gained) / samples
    return max(-1.0, min(middle - half, point)), min(1.0, max(middle + half, point))


def bootstrap_interval(
    before: Outcomes,
    after: Outcomes,
    value: Callable[[Outcomes], float],
    confidence: float = CONFIDENCE,
) -> Interval | None:
    """Return the interval of value(before) - value(after) by a paired bootstrap.

    The same samples are drawn for both. The interval lies between percentiles of the differences
    (Efron, 1981). The seed is fixed, so that a report can be repeated. Draws on which the metric is
    undefined (NaN) are skipped.

    Returns:
        The interval; None if the metric is undefined on most draws.
    """
    import numpy as np

    if before.shape != after.shape or not len(before):
        raise ValueError(
            "paired outcomes must be two arrays of the same shape, with a row at least"
        )
    rng = np.random.default_rng(0)
    draws = min(max(MOST_DRAWN // before.size, FEWEST_DRAWS), DRAWS)
    drawn = []
    for _ in range(draws):
        rows = rng.integers(0, len(before), len(before))
        drawn.append(value(before[rows]) - value(after[rows]))
    differences = _select_defined(np.array(drawn))
    if differences is None:
        return None
    low, high = np.quantile(differences, [(1 - confidence) / 2, (1 + confidence) / 2]).tolist()
    point = value(before) - value(after)
    return min(low, point), max(high, point)


def replicate_interval(
    before: Outcomes, after: Outcomes, confidence: float = CONFIDENCE
) -> Interval | None:
    """Return the interval of before[0] - after[0] from replicates.

    The other values were measured on resampled samples, the same for both. Undefined ones (NaN) are
    skipped.

    Returns:
        The interval; None if most replicates are undefined.
    """
    import numpy as np

    differences = np.subtract(before, after, dtype=np.float64)
    replicates = _select_defined(differences[1:])
    if replicates is None:
        return None
    half = _normal_quantile(confidence) * _standard_deviation(replicates)
    return float(differences[0]) - half, float(differences[0]) + half


def mean_interval(before: Outcomes, after: Outcomes, confidence: float = CONFIDENCE) -> Interval:
    """Return the interval of mean(before) - mean(after) for any numbers, paired by sample."""
    import numpy as np

    differences = np.subtract(before, after, dtype=np.float64)
    middle = float(differences.mean())
    error = _standard_deviation(differences) / math.sqrt(differences.size)
    half = _normal_quantile(confidence) * error
    return middle - half, middle + half


def _select_defined(differences: Outcomes) -> Outcomes | None:
    """Return the differences that are numbers; None if most are not."""
    import numpy as np

    defined: Outcomes = differences[np.isfinite(differences)]
    return defined if defined.size >= DEFINED * differences.size else None


def _standard_deviation(values: Outcomes) -> float:
    return float(values.std(ddof=1)) if values.size > 1 else 0.0


def _normal_quantile(confidence: float) -> float:
    """Return the number of standard deviations that hold a fraction of a normal distribution."""
    return NormalDist().inv_cdf((1 + confidence) / 2)
