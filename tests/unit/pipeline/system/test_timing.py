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


def test_ratio_quartiles_compare_calls_round_by_round() -> None:
    """A machine that gets slower leaves the ratio of calls of the same round as it is."""
    slower = timing.Timing(2.0, (1.0, 3.0), (1.0, 2.0, 3.0, 4.0, 5.0))
    faster = timing.Timing(1.0, (0.5, 1.5), (0.5, 1.0, 1.5, 2.0, 2.5))
    assert slower.compute_ratio_quartiles(faster) == (2.0, 2.0)
    assert faster.compute_ratio_quartiles(slower) == (0.5, 0.5)


def test_time_interleaved_returns_the_rounds_of_each_call() -> None:
    (result,) = timing.time_interleaved([lambda: None])
    assert len(result.rounds) >= timing.ROUNDS
