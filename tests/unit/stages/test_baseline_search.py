"""Which point of the baseline's curve is measured next."""

from collections.abc import Callable
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltp_pipeline.results.gain import WIDE_RATIO, TradeoffPoint, bracket_value
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.stages.baseline_search import MAX_POINTS, NARROW, NEAR, next_compression

METRIC = Metric()
ORIGINAL = TradeoffPoint(1.0, 0.99)
MOST = 1000.0


def walk(
    accuracy: Callable[[float], float], first: float, target: float, near: float = WIDE_RATIO
) -> list[TradeoffPoint]:
    """Every point that is measured of a baseline of which the accuracy at a compression is known."""
    points = [TradeoffPoint(first, accuracy(first))]
    while (
        compression := next_compression(METRIC, points, ORIGINAL, target, MOST, near)
    ) is not None:
        points.append(TradeoffPoint(compression, accuracy(compression)))
    return points


def cliff(at: float) -> Callable[[float], float]:
    """Accuracy that stays and then falls, as that of networks does."""
    return lambda c: 0.99 - 0.2 * max(0.0, c / at - 1) ** 2 if c < 2 * at else 0.5


@pytest.mark.parametrize("at", [4.0, 8.0, 12.0, 20.0, 40.0, 60.0])
def test_search_finds_a_cliff_from_both_sides(at: float) -> None:
    inside, outside = bracket_value(METRIC, walk(cliff(at), 30.0, 0.985), 0.985)
    assert inside is not None
    assert outside is not None
    assert outside.compression / inside.compression < 2.3


def test_search_equal_accuracy_prunes_further() -> None:
    compression = next_compression(METRIC, [TradeoffPoint(10.0, 0.95)], ORIGINAL, 0.95, MOST)
    assert compression == pytest.approx(12.0)


def test_search_constant_accuracy_has_a_fixed_step() -> None:
    assert next_compression(
        METRIC, [TradeoffPoint(10.0, 0.995)], ORIGINAL, 0.95, MOST
    ) == pytest.approx(20.0)


def test_search_secant_upwards_is_bounded() -> None:
    assert next_compression(
        METRIC, [TradeoffPoint(10.0, 0.989)], ORIGINAL, 0.5, MOST
    ) == pytest.approx(30.0)
    assert next_compression(
        METRIC, [TradeoffPoint(10.0, 0.989)], ORIGINAL, 0.5, 14.0
    ) == pytest.approx(14.0)
    assert next_compression(METRIC, [TradeoffPoint(10.0, 0.989)], ORIGINAL, 0.5, 10.2) is None


def test_search_step_downwards_is_at_most_half_in_log() -> None:
    assert next_compression(
        METRIC, [TradeoffPoint(16.0, 0.5)], ORIGINAL, 0.985, MOST
    ) == pytest.approx(4.0)


def test_search_secant_downwards_if_shorter() -> None:
    compression = next_compression(METRIC, [TradeoffPoint(16.0, 0.95)], ORIGINAL, 0.96, MOST)
    assert compression == pytest.approx(16 ** (3 / 4))


def test_search_target_above_the_original_goes_half_way() -> None:
    assert next_compression(
        METRIC, [TradeoffPoint(16.0, 0.98)], ORIGINAL, 0.995, MOST
    ) == pytest.approx(4.0)
    assert next_compression(
        METRIC, [TradeoffPoint(16.0, 0.992)], ORIGINAL, 0.995, MOST
    ) == pytest.approx(4.0)


def test_search_near_the_original_ends() -> None:
    assert next_compression(METRIC, [TradeoffPoint(1.08, 0.5)], ORIGINAL, 0.98, MOST) is None


def test_search_ends_at_the_initial_sparsity() -> None:
    compression = next_compression(
        METRIC, [TradeoffPoint(9.0, 0.5)], TradeoffPoint(4.0, 0.99), 0.98, MOST
    )
    assert compression == pytest.approx(6.0)


def test_search_ends_between_near_points() -> None:
    points = [TradeoffPoint(10.0, 0.97), TradeoffPoint(14.0, 0.93)]
    assert next_compression(METRIC, points, ORIGINAL, 0.95, MOST) is None
    assert 10 < next_compression(METRIC, points, ORIGINAL, 0.95, MOST, NARROW) < 14


def test_search_between_points_uses_the_middle_third() -> None:
    points = [TradeoffPoint(2.0, 0.98), TradeoffPoint(16.0, 0.5)]
    assert next_compression(METRIC, points, ORIGINAL, 0.979, MOST) == pytest.approx(4.0)
    assert next_compression(METRIC, points, ORIGINAL, 0.51, MOST) == pytest.approx(8.0)


@given(
    st.lists(st.floats(0.1, 1.0), min_size=12, max_size=12),
    st.floats(1.05, 200.0),
    st.floats(0.1, 1.0),
    st.sampled_from([WIDE_RATIO, NARROW]),
)
def test_search_points_are_few_distinct_and_possible(values, first, target, near) -> None:
    given_out = iter(values)
    points = walk(lambda _: next(given_out), first, target, near)
    assert len(points) <= MAX_POINTS
    assert all(1.0 < p.compression <= max(MOST, first) for p in points)
    for one, other in combinations(sorted(p.compression for p in points), 2):
        assert other / one >= NEAR * (1 - 1e-9)
