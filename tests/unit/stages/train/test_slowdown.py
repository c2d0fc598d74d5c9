"""A slowdown of training steps is reported once, with what helps."""

import re

import pytest

from ltp_pipeline.stages.train.slowdown import COMPARED_STEPS, SlowdownMonitor
from ltp_pipeline.system import threads

AT_FIRST = [9.0, 9.0] + [0.1] * (COMPARED_STEPS - 2)  # the very first take longer anyway


def record(*times: float, monitor: SlowdownMonitor | None = None) -> list[str]:
    """Return what is shown when steps take these times."""
    lines: list[str] = []
    monitor = monitor or SlowdownMonitor()
    for seconds in times:
        monitor.record_step(seconds, lines.append)
    return lines


def test_steady_steps_are_not_reported():
    assert record(*AT_FIRST, *[0.25] * 100) == []


def test_few_slow_steps_are_not_reported():
    assert record(*AT_FIRST, *([0.1] * 3 + [2.0]) * 20) == []


def test_slow_steps_are_reported_once_with_both_times():
    (line,) = record(*AT_FIRST, *[0.1] * 50, *[0.8] * 200)
    assert {"8 times", "800 ms", "100 ms"} <= set(re.findall(r"\d+ (?:times|ms)", line))


@pytest.mark.parametrize(("count", "is_advised"), [(4, True), (1, False)])
def test_advice_is_fewer_threads_only_if_there_are_several(count: int, is_advised: bool):
    with threads.use_threads(count, None, print):
        (line,) = record(*AT_FIRST, *[0.8] * 2 * COMPARED_STEPS)
    assert ("--threads 1" in line) is is_advised


def test_monitor_reports_once():
    monitor = SlowdownMonitor()
    assert len(record(*AT_FIRST, *[0.8] * 100, monitor=monitor)) == 1
    assert record(*[0.8] * 100, monitor=monitor) == []
