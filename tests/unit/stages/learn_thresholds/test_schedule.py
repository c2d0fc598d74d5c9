"""(R5): counts and width of the gate follow from the compression that is asked for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltp_pipeline.stages.learn_thresholds.schedule import (
    PruningSchedule,
    aggressiveness_of_compression,
    aggressiveness_of_retention,
    gate_width,
)

TOTAL = 100_000


def towards(compression: float, m: float, present: int = TOTAL) -> PruningSchedule:
    return PruningSchedule.to_target(TOTAL, present, round(TOTAL / compression), m)


@pytest.mark.parametrize(
    ("kept", "expected"), [(1.1, 0.0), (0.9, 0.0), (0.65, 0.5), (0.4, 1.0), (-0.1, 1.0)]
)
def test_budget_is_strong_if_little_accuracy_remains(kept: float, expected: float):
    assert aggressiveness_of_retention(kept) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("compression", "expected"), [(1.1, 0.0), (4.0, 0.0), (60**0.5, 0.5), (15.0, 1.0), (99, 1.0)]
)
def test_strength_on_the_way_is_linear_in_log_compression(compression: float, expected: float):
    assert aggressiveness_of_compression(compression) == pytest.approx(expected)


def test_schedule_low_compression_starts_at_the_target():
    schedule = towards(3, 0.0)
    assert schedule.count_at(0.0) == schedule.count_at(1.0) == round(TOTAL / 3)
    assert schedule.gate_width_at(0.0) == schedule.gate_width_at(1.0) == 0.01


def test_schedule_high_compression_starts_at_its_root():
    schedule = towards(25, 1.0)
    assert (schedule.count_at(0.0), schedule.count_at(1.0)) == (TOTAL // 5, TOTAL // 25)
    assert schedule.gate_width_at(0.0) == schedule.gate_width_at(1.0) == 1.0


def test_schedule_without_norm_narrows_wide_gates():
    shares = (0.0, 0.5, 1.0)
    assert [
        towards(25, 1.0).gate_width_at(share, is_normalized=False) for share in shares
    ] == pytest.approx([1.0, 0.1**0.5, 0.1])
    assert [
        towards(3, 0.0).gate_width_at(share, is_normalized=False) for share in shares
    ] == pytest.approx([0.01] * 3)


def test_schedule_count_falls_as_a_cubic():
    schedule = PruningSchedule(1000, 1000, 200, 1.0)
    assert schedule.count_at(0.5) == 200 + round(800 * 0.5**3)


def test_schedule_count_stays_after_the_end():
    assert PruningSchedule(1000, 1000, 200, 1.0).count_at(1.5) == 200


def test_schedule_of_search_starts_with_all_weights():
    schedule = PruningSchedule(TOTAL, TOTAL, TOTAL // 100)
    assert schedule.count_at(0.0) == TOTAL
    for share in (0.0, 0.3, 0.6, 1.0):
        assert schedule.gate_width_at(share) == gate_width(
            aggressiveness_of_compression(TOTAL / schedule.count_at(share))
        )


def test_schedule_count_is_at_most_the_weights():
    assert towards(25, 1.0, present=9_000).count_at(0.0) == 9_000


@given(st.floats(1.01, 1000), *[st.floats(0, 1)] * 3, st.booleans())
def test_neither_count_nor_width_ever_grows(
    compression: float, m: float, one: float, other: float, norm: bool
):
    schedule = towards(compression, m)
    early, late = sorted((one, other))
    assert schedule.count_at(early) >= schedule.count_at(late) >= schedule.count_at(1.0)
    assert (
        schedule.gate_width_at(early, norm) * (1 + 1e-9)
        >= schedule.gate_width_at(late, norm)
        >= 0.0099
    )
