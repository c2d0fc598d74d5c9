"""Estimates of the time left."""

import pytest

from ltp_pipeline.cli.time_estimate import TimeEstimate, format_duration
from ltp_pipeline.system.text import round_duration


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "5 s"),
        (17, "15 s"),
        (59, "60 s"),
        (61, "1 min"),
        (3540, "59 min"),
        (3599, "1 h 00 min"),
        (9000, "2 h 30 min"),
    ],
)
def test_estimates_are_rough(seconds: float, shown: str):
    assert round_duration(seconds) == shown


def test_durations_of_a_stage_are_exact():
    assert [format_duration(s) for s in (0, 59, 61)] == ["0 s", "59 s", "1 min 01 s"]


def test_a_phase_that_nobody_planned_is_shown_all_the_same():
    outlook = TimeEstimate()
    outlook.start_phase("trial")
    assert outlook.format_remaining(1.0, 30) == "whole run about 30 s"
