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


def test_between_two_points_it_is_linear_in_log_compression() -> None:
    found = compute_gain(METRIC, 16.0, 0.97, CURVE, interpolate=True)
    assert found.compression_at_equal_accuracy == pytest.approx(math.sqrt(4 * 8))
    assert found.value == pytest.approx(16 / math.sqrt(32))
    assert (found.bound, found.reason) == (None, None)


def test_within_a_budget_it_is_the_sparsest_point_itself() -> None:
    found = compute_gain(METRIC, 16.0, 0.95, CURVE, interpolate=False)
    assert (found.value, found.compression_at_equal_accuracy, found.bound) == (2.0, 8.0, None)


def test_where_no_point_is_as_accurate_it_is_at_least_that_over_the_mildest() -> None:
    found = compute_gain(METRIC, 16.0, 0.99, CURVE, interpolate=True)
    assert (found.value, found.compression_at_equal_accuracy, found.bound) == (
        4.0,
        None,
        "at least",
    )
    assert "down to 4×" in str(found.reason)


def test_where_every_point_is_as_accurate_it_is_at_most_that_over_the_sparsest() -> None:
    found = compute_gain(METRIC, 8.0, 0.85, CURVE, interpolate=True)
    assert (found.value, found.compression_at_equal_accuracy, found.bound) == (0.5, None, "at most")
    assert "16×" in str(found.reason)


def test_equal_accuracy_counts_as_reached() -> None:
    assert bracket_value(METRIC, CURVE, 0.96) == (CURVE[2], CURVE[0])
    assert bracket_value(METRIC, CURVE, 0.96 + 1e-12) == (CURVE[2], CURVE[0])
    assert (
        compute_gain(METRIC, 16.0, 0.96, CURVE, interpolate=True).compression_at_equal_accuracy
        == 8.0
    )


def test_of_a_curve_that_rises_again_the_sparsest_point_counts() -> None:
    points = [TradeoffPoint(4.0, 0.9), TradeoffPoint(8.0, 0.95), TradeoffPoint(16.0, 0.8)]
    assert bracket_value(METRIC, points, 0.93) == (points[1], points[2])


@given(POINTS, ACCURACIES, COMPRESSIONS)
def test_a_measured_gain_lies_between_those_over_the_two_points_around_it(
    points, least, compression
) -> None:
    found = compute_gain(METRIC, compression, least, points, interpolate=True)
    inside, outside = bracket_value(METRIC, points, least)
    if found.bound is None:
        assert compression / outside.compression <= found.value * (1 + 1e-12)
        assert found.value <= compression / inside.compression * (1 + 1e-12)
        assert found.value == compression / found.compression_at_equal_accuracy
        assert outside.value < least <= inside.value + 1e-9
    else:
        assert found.compression_at_equal_accuracy is None
        assert (inside is None) == (found.bound == "at least")
        assert (outside is None) == (found.bound == "at most")


@given(POINTS, ACCURACIES, COMPRESSIONS)
def test_a_bound_holds_whatever_else_would_have_been_measured_beyond(
    points, least, compression
) -> None:
    """Only where no measured point tells otherwise: a milder point that is accurate, a sparser one that is not."""
    found = compute_gain(METRIC, compression, least, points, interpolate=True)
    if found.bound == "at least":
        milder = TradeoffPoint(min(points).compression / 1.5, 1.0)
        assert compute_gain(
            METRIC, compression, least, [*points, milder], interpolate=True
        ).value >= found.value * (1 - 1e-12)
    if found.bound == "at most":
        sparser = TradeoffPoint(max(points).compression * 1.5, -1.0)
        assert compute_gain(
            METRIC, compression, least, [*points, sparser], interpolate=True
        ).value <= found.value * (1 + 1e-12)


@given(POINTS, ACCURACIES, COMPRESSIONS)
def test_within_a_budget_the_gain_is_never_smaller_than_the_interpolated_one(
    points, least, compression
) -> None:
    of_point, interpolated = (
        compute_gain(METRIC, compression, least, points, interpolate=i) for i in (False, True)
    )
    assert of_point.value >= interpolated.value * (1 - 1e-12)
    assert of_point.bound == interpolated.bound


@given(POINTS, ACCURACIES, COMPRESSIONS)
def test_the_order_of_points_does_not_matter(points, least, compression) -> None:
    assert compute_gain(METRIC, compression, least, points, True) == compute_gain(
        METRIC, compression, least, points[::-1], True
    )


def test_without_points_there_is_none() -> None:
    with pytest.raises(ValueError, match="points"):
        compute_gain(METRIC, 8.0, 0.9, [], interpolate=True)
