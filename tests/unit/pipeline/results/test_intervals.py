"""Paired intervals: known values, and what must hold for all outcomes."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltp_pipeline.results.intervals import (
    bootstrap_interval,
    paired_interval,
    replicate_interval,
    wilson_interval,
)

Outcomes = list[tuple[bool, bool]]
outcomes = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=80)
confidences = st.floats(0.01, 0.999)


def columns(pairs: Outcomes) -> tuple[Any, Any]:
    table = np.array(pairs, dtype=bool)
    return table[:, 0], table[:, 1]


def counts(both: int, lost: int, gained: int, neither: int) -> tuple[Any, Any]:
    return columns(
        [(True, True)] * both
        + [(True, False)] * lost
        + [(False, True)] * gained
        + [(False, False)] * neither
    )


def test_paired_interval_known_values() -> None:
    """The example in the manual of R's statpsych: ci.prop.ps(.05, 12, 4, 26, 6)."""
    assert paired_interval(*counts(6, 26, 4, 12)) == pytest.approx((0.2548067, 0.6251933), abs=1e-6)


def test_paired_interval_of_equal_outcomes_has_width() -> None:
    low, high = paired_interval(*counts(150, 0, 0, 50))
    assert (low, high) == pytest.approx((-0.01372, 0.01372), abs=5e-5)


@given(outcomes, confidences)
def test_paired_interval_contains_the_estimate_in_range(pairs: Outcomes, confidence: float) -> None:
    before, after = columns(pairs)
    low, high = paired_interval(before, after, confidence)
    assert -1 <= low <= before.mean() - after.mean() + 1e-12
    assert before.mean() - after.mean() - 1e-12 <= high <= 1


@given(outcomes, confidences)
def test_paired_interval_swapped_sides_is_mirrored(pairs: Outcomes, confidence: float) -> None:
    before, after = columns(pairs)
    low, high = paired_interval(before, after, confidence)
    assert paired_interval(after, before, confidence) == pytest.approx((-high, -low))


@given(outcomes)
def test_paired_interval_more_samples_is_narrower(pairs: Outcomes) -> None:
    few, many = paired_interval(*columns(pairs)), paired_interval(*columns(pairs * 4))
    assert many[1] - many[0] < few[1] - few[0]


@given(outcomes)
def test_paired_interval_more_confidence_is_wider(pairs: Outcomes) -> None:
    narrow, wide = (paired_interval(*columns(pairs), confidence) for confidence in (0.8, 0.99))
    assert wide[0] <= narrow[0]
    assert wide[1] >= narrow[1]


def test_paired_interval_has_its_coverage() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(2000):
        kind = rng.choice(4, 300, p=[0.85, 0.06, 0.03, 0.06])
        low, high = paired_interval(np.isin(kind, (0, 1)), np.isin(kind, (0, 2)))
        hits += low <= 0.03 <= high
    assert 0.93 <= hits / 2000 <= 0.98


@pytest.mark.parametrize(
    ("before", "after"), [([], []), ([True], [True, False]), ([[True]], [[True]])]
)
def test_paired_interval_unpaired_outcomes_raise(before: list[Any], after: list[Any]) -> None:
    with pytest.raises(ValueError, match="length"):
        paired_interval(np.array(before, dtype=bool), np.array(after, dtype=bool))


def test_paired_interval_below_zero_contains_the_reported_value() -> None:
    """A share of variance explained is reported as 0 where it is negative."""
    before, after = np.ones(50), np.linspace(-9, -1, 50)
    assert paired_interval(before, after) == (1.0, 1.0)
    assert paired_interval(np.full(50, -2.0), after)[0] == 0.0


def test_wilson_known_value() -> None:
    assert wilson_interval(0.9, 100, 0.95) == pytest.approx((0.8256, 0.9448), abs=5e-5)


def share_of_positives(rows: Any) -> float:
    """Of column 1, where column 0 is set; undefined where it never is."""
    return float(rows[rows[:, 0] > 0, 1].mean()) if rows[:, 0].any() else float("nan")


def test_bootstrap_interval_skips_undefined_draws() -> None:
    before, after = np.zeros((100, 2)), np.zeros((100, 2))
    before[:2], after[:2] = [[1, 1], [1, 1]], [[1, 1], [1, 0]]  # one draw in seven has neither
    low, high = bootstrap_interval(before, after, share_of_positives) or (np.nan, np.nan)
    assert (low, high) == (0.0, 1.0)


def test_bootstrap_interval_mostly_undefined_gives_none() -> None:
    before = np.zeros((100, 2))
    assert bootstrap_interval(before, before, share_of_positives) is None


def test_replicate_interval_skips_undefined_replicates() -> None:
    before = np.array([0.9, 0.8, 1.0, 0.8, 1.0, np.nan])
    after = np.array([0.5, 0.5, 0.5, 0.5, np.nan, 0.5])
    interval = replicate_interval(before, after)
    assert interval == replicate_interval(before[:4], after[:4])
    before[3:] = np.nan
    assert replicate_interval(before, after) is None
