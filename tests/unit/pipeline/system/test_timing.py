"""Calls are timed in turns, as often as asked."""

import pytest

from ltp_pipeline.system import timing


def test_time_interleaved_alternates_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timing, "ROUNDS", 3)
    clock = [0.0]
    called = []

    def call(name: str, seconds: float) -> None:
        called.append(name)
        clock[0] += 100 if len(called) < 3 or called[-2] != name else seconds

    timings = timing.time_interleaved(
        [lambda: call("a", 1), lambda: call("b", 0.5)], clock=lambda: clock[0]
    )
    assert called == ["a", "b"] + ["a", "a", "b", "b"] * 3
    assert [t.ms for t in timings] == [1000, 500]
    assert timings[0].quartiles == (1000, 1000)


@pytest.mark.parametrize(
    ("each", "seconds", "rounds"), [(0.01, 0.5, 25), (1.0, 0.5, 6), (100.0, 0.0, 3)]
)
def test_time_interleaved_short_calls_have_more_rounds(
    monkeypatch: pytest.MonkeyPatch, each: float, seconds: float, rounds: int
) -> None:
    clock, calls = [0.0], []
    monkeypatch.setattr(timing.time, "perf_counter", lambda: clock[0])

    def call() -> None:
        calls.append(1)
        clock[0] += each

    timing.time_interleaved([call], seconds=seconds)
    assert len(calls) - 1 == pytest.approx(2 * rounds, abs=2)
