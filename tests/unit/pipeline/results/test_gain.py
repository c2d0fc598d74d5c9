"""The gain: from points of the baseline to how many times fewer weights LTP has."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltp_pipeline.results.gain import TradeoffPoint, bracket_value, compute_gain
from ltp_pipeline.results.metric import Metric

METRIC = Metric()
CURVE = [TradeoffPoint(16.0, 0.90), TradeoffPoint(4.0, 0.98), TradeoffPoint(8.0, 0.96)]
COMPRESSIONS = st.floats(1.0, 1000.0)
ACCURACIES = st.floats(0.0, 1.0)
POINTS = st.lists(
    st.builds(TradeoffPoint, COMPRESSIONS, ACCURACIES),
    min_size=1,
    max_size=4,
    unique_by=lambda p: p.compression,
)


def test_gain_between_points_is_linear_in_log_compression() -> None:
    gain = compute_gain(METRIC, 16.0, 0.97, CURVE, interpolate=True)
    assert gain.compression_at_equal_accuracy == pytest.approx(math.sqrt(4 * 8))
    assert gain.value == pytest.approx(16 / math.sqrt(32))
    assert (gain.bound, gain.reason) == (None, None)


def test_gain_within_a_budget_uses_the_sparsest_point() -> None:
    gain = compute_gain(METRIC, 16.0, 0.95, CURVE, interpolate=False)
    assert (gain.value, gain.compression_at_equal_accuracy, gain.bound) == (2.0, 8.0, None)


def test_gain_without_accurate_point_has_a_lower_bound() -> None:
    gain = compute_gain(METRIC, 16.0, 0.99, CURVE, interpolate=True)
    assert (gain.value, gain.compression_at_equal_accuracy, gain.bound) == (
        4.0,
        None,
        "at least",
    )
    assert "down to 4×" in str(gain.reason)


def test_gain_with_accurate_points_only_has_an_upper_bound() -> None:
    gain = compute_gain(METRIC, 8.0, 0.85, CURVE, interpolate=True)
    assert (gain.value, gain.compression_at_equal_accuracy, gain.bound) == (0.5, None, "at most")
    assert "16×" in str(gain.reason)


def test_gain_equal_accuracy_counts_as_reached() -> None:
    assert bracket_value(METRIC, CURVE, 0.96) == (CURVE[2], CURVE[0])
    assert bracket_value(METRIC, CURVE, 0.96 + 1e-12) == (CURVE[2], CURVE[0])
    assert (
        compute_gain(METRIC, 16.0, 0.96, CURVE, interpolate=True).compression_at_equal_accuracy
        == 8.0
    )


def test_gain_of_rising_curve_uses_the_sparsest_point() -> None:
    points = [TradeoffPoint(4.0, 0.9), TradeoffPoint(8.0, 0.95), TradeoffPoint(16.0, 0.8)]
    assert bracket_value(METRIC, points, 0.93) == (points[1], points[2])


@given(POINTS, ACCURACIES, COMPRESSIONS)
def test_gain_lies_between_those_of_its_two_points(points, least, compression) -> None:
    gain = compute_gain(METRIC, compression, least, points, interpolate=True)
    inside, outside = bracket_value(METRIC, points, least)
    if gain.bound is None:
        assert compression / outside.compression <= gain.value * (1 + 1e-12)
        assert gain.value <= compression / inside.compression * (1 + 1e-12)
        assert gain.value == compression / gain.compression_at_equal_accuracy
        assert outside.value < least <= inside.value + 1e-9
    else:
        assert gain.compression_at_equal_accuracy is None
        assert (inside is None) == (gain.bound == "at least")
        assert (outside is None) == (gain.bound == "at most")


@given(POINTS, ACCURACIES, COMPRESSIONS)
def test_gain_bound_holds_for_further_points(points, least, compression) -> None:
    """Only where no measured point tells otherwise: a milder point that is accurate, a sparser one that is not."""
    gain = compute_gain(METRIC, compression, least, points, interpolate=True)
    if gain.bound == "at least":
        milder = TradeoffPoint(min(points).compression / 1.5, 1.0)
        assert compute_gain(
            METRIC, compression, least, [*points, milder], interpolate=True
        ).value >= gain.value * (1 - 1e-12)
    if gain.bound == "at most":
        sparser = TradeoffPoint(max(points).compression * 1.5, -1.0)
        assert compute_gain(
            METRIC, compression, least, [*points, sparser], interpolate=True
        ).value <= gain.value * (1 + 1e-12)


@given(POINTS, ACCURACIES, COMPRESSIONS)
def test_gain_within_a_budget_is_at_least_the_interpolated(points, least, compression) -> None:
    of_point, interpolated = (
        compute_gain(METRIC, compression, least, points, interpolate=i) for i in (False, True)
    )
    assert of_point.value >= interpolated.value * (1 - 1e-12)
    assert of_point.bound == interpolated.bound


@given(POINTS, ACCURACIES, COMPRESSIONS)
def test_gain_does_not_depend_on_the_order_of_points(points, least, compression) -> None:
    assert compute_gain(METRIC, compression, least, points, True) == compute_gain(
        METRIC, compression, least, points[::-1], True
    )


def test_gain_without_points_raises() -> None:
    with pytest.raises(ValueError, match="points"):
        compute_gain(METRIC, 8.0, 0.9, [], interpolate=True)
