"""Steps that become much slower are told, once, with what helps."""

import pytest

from ltp_pipeline.stages.train.pace import FIRST, RECENT, SlowdownMonitor
from ltp_pipeline.system import threads

AT_FIRST = [9.0, 9.0] + [0.1] * (FIRST - 2)  # the very first take longer anyway


def told(*times: float, pace: SlowdownMonitor | None = None) -> list[str]:
    said: list[str] = []
    pace = pace or SlowdownMonitor()
    for seconds in times:
        pace.record_step(seconds, said.append)
    return said


def test_steps_that_stay_as_they_were_are_no_reason_to_speak():
    assert told(*AT_FIRST, *[0.25] * 100) == []


def test_a_few_slow_steps_are_no_reason_to_speak():
    assert told(*AT_FIRST, *([0.1] * 3 + [2.0]) * 20) == []


def test_much_slower_steps_are_told_once():
    said = told(*AT_FIRST, *[0.1] * 50, *[0.8] * 200)
    assert len(said) == 1
    assert "a step takes 8 times as long as at first (800 ms, 100 ms at first)" in said[0]


@pytest.mark.parametrize(
    ("count", "remedy"), [(4, "start the same command with --threads 1"), (1, "go on later")]
)
def test_the_remedy_is_one_that_is_left(count: int, remedy: str):
    with threads.used(count, None, print):
        (said,) = told(*AT_FIRST, *[0.8] * 2 * RECENT)
    assert said.endswith(remedy)


def test_it_is_said_once():
    pace = SlowdownMonitor()
    assert len(told(*AT_FIRST, *[0.8] * 100, pace=pace)) == 1
    assert told(*[0.8] * 100, pace=pace) == []
