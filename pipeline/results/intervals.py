"""Confidence intervals of a fraction, and of the difference of two networks on the same samples."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Scores = np.ndarray[Any, np.dtype[Any]]

CONFIDENCE = 0.95  # confidence of the intervals in a report
MAX_RESAMPLES = 1000  # of a bootstrap
MIN_RESAMPLES = 200
MAX_RESAMPLED_VALUES = 100_000_000  # numbers in all resamples together
MIN_DEFINED_FRACTION = 0.5  # of resamples on which a metric must be defined
UNDEFINED = "the metric is undefined on most resampled test splits"  # why there is no interval
Interval = tuple[float, float]


def wilson_interval(fraction: float, samples: float, confidence: float = CONFIDENCE) -> Interval:
    """Return Wilson's score interval of a fraction.

    Args:
        fraction: The measured fraction.
        samples: Number of samples.
        confidence: Confidence level.
    """
    z2 = _quantile(confidence) ** 2
    scale = 1 + z2 / samples
    middle = (fraction + z2 / (2 * samples)) / scale
    variance = fraction * (1 - fraction) / samples + z2 / (4 * samples**2)
    half = math.sqrt(z2 * variance) / scale
    return max(0.0, middle - half), min(1.0, middle + half)


def change_confidence(interval: Interval, confidence: float) -> Interval:
    """Return an interval of confidence CONFIDENCE, stretched to another confidence."""
    low, high = interval
    stretch = _quantile(confidence) / _quantile(CONFIDENCE)
    middle = (low + high) / 2
    half = stretch * (high - low) / 2
    return middle - half, middle + half


def paired_interval(before: Scores, after: Scores, confidence: float = CONFIDENCE) -> Interval:
    """Return the interval of mean(before) - mean(after).

    For samples that are correct or incorrect, see `counted_interval`. For scores up to 1, the
    interval is that of a mean of differences, and a mean below 0 counts as 0.

    Args:
        before: Scores of the first network, one for each sample.
        after: Scores of the second network for the same samples.
        confidence: Confidence level.

    Raises:
        ValueError: The scores are not two vectors of one length.
    """
    import numpy as np

    if before.shape != after.shape or before.ndim != 1 or not before.size:
        raise ValueError("paired scores must be two vectors of the same length, at least 1")
    n = before.size
    if before.dtype == np.bool_ and after.dtype == np.bool_:
        lost = int(np.count_nonzero(before & ~after))
        gained = int(np.count_nonzero(~before & after))
        return counted_interval(n, lost, gained, confidence)
    differences = np.subtract(before, after, dtype=np.float64)
    half = 1.0
    if n > 1:
        half = _quantile(confidence) * float(differences.std(ddof=1) / np.sqrt(n))
    point = max(float(before.mean()), 0.0) - max(float(after.mean()), 0.0)
    middle = float(differences.mean())
    return max(-1.0, min(middle - half, point)), min(1.0, max(middle + half, point))


def counted_interval(
    samples: int, lost: int, gained: int, confidence: float = CONFIDENCE
) -> Interval:
    """Return the interval of a difference of two fractions of correct samples.

    The method is that of Bonett and Price (2012), doi:10.3102/1076998611411915. Only samples on
    which the two networks disagree show a difference. Adding one to both kinds of disagreement
    keeps the interval honest for small sets, also if the networks never disagree: a bootstrap would
    have no doubt at all.

    Args:
        samples: Number of samples.
        lost: Number of samples that only the first network has correct.
        gained: Number of samples that only the second network has correct.
        confidence: Confidence level.
    """
    p_lost = (lost + 1) / (samples + 2)
    p_gained = (gained + 1) / (samples + 2)
    middle = p_lost - p_gained
    half = _normal_quantile(confidence) * math.sqrt((p_lost + p_gained - middle**2) / (samples + 2))
    point = (lost - gained) / samples
    return max(-1.0, min(middle - half, point)), min(1.0, max(middle + half, point))


def bootstrap_interval(
    before: Scores,
    after: Scores,
    compute_value: Callable[[Scores], float],
    confidence: float = CONFIDENCE,
) -> Interval | None:
    """Return the interval of the difference of a metric by a paired bootstrap.

    Both networks are resampled together. The interval lies between percentiles of the differences
    (Efron, 1981). The seed is fixed, so that a report can be repeated. Resamples on which the
    metric is undefined (NaN) are left out.

    Args:
        before: Scores of the first network, one row for each sample.
        after: Scores of the second network for the same samples.
        compute_value: Computes the metric from scores.
        confidence: Confidence level.

    Returns:
        The interval; None if the metric is undefined on most resamples.

    Raises:
        ValueError: The scores do not have the same shape.
    """
    import numpy as np

    if before.shape != after.shape or not len(before):
        raise ValueError("paired scores must be two arrays of the same shape, with at least a row")
    rng = np.random.default_rng(0)
    count = min(max(MAX_RESAMPLED_VALUES // before.size, MIN_RESAMPLES), MAX_RESAMPLES)
    differences = []
    for _ in range(count):
        rows = rng.integers(0, len(before), len(before))
        differences.append(compute_value(before[rows]) - compute_value(after[rows]))
    defined = _select_defined(np.array(differences))
    if defined is None:
        return None
    levels = [(1 - confidence) / 2, (1 + confidence) / 2]
    low, high = np.quantile(defined, levels).tolist()
    point = compute_value(before) - compute_value(after)
    return min(low, point), max(high, point)


def replicate_interval(
    before: Scores, after: Scores, confidence: float = CONFIDENCE
) -> Interval | None:
    """Return the interval of before[0] - after[0] by values that were measured on resamples.

    Args:
        before: The value of the first network, then its values on resampled sets.
        after: The same for the second network, on the same sets.
        confidence: Confidence level.

    Returns:
        The interval; None if most values are undefined (NaN).
    """
    import numpy as np

    differences = np.subtract(before, after, dtype=np.float64)
    middle = float(differences[0])
    defined = _select_defined(differences[1:])
    if defined is None:
        return None
    half = 0.0
    if defined.size > 1:
        half = _quantile(confidence) * float(defined.std(ddof=1))
    return middle - half, middle + half


def mean_interval(before: Scores, after: Scores, confidence: float = CONFIDENCE) -> Interval:
    """Return the interval of mean(before) - mean(after) for numbers of any size.

    Args:
        before: Numbers of the first network, one for each sample.
        after: Numbers of the second network for the same samples.
        confidence: Confidence level.
    """
    import numpy as np

    differences = np.subtract(before, after, dtype=np.float64)
    middle = float(differences.mean())
    half = 0.0
    if differences.size > 1:
        deviation = float(differences.std(ddof=1) / np.sqrt(differences.size))
        half = _quantile(confidence) * deviation
    return middle - half, middle + half


def _select_defined(differences: Scores) -> Scores | None:
    """Return the differences that are numbers; None if too few are."""
    import numpy as np

    defined: Scores = differences[np.isfinite(differences)]
    return defined if defined.size >= MIN_DEFINED_FRACTION * differences.size else None


def _quantile(confidence: float) -> float:
    """Return the standard deviations to each side that hold this part of a normal distribution."""
    return NormalDist().inv_cdf((1 + confidence) / 2)
