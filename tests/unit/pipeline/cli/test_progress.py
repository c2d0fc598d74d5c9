"""Time left, of the stage and of the whole run."""

import pytest

from ltp_pipeline.cli import progress
from ltp_pipeline.cli.progress import LineReporter, TerminalReporter
from ltp_pipeline.results.metric import Metric, on_validation

PLAN = {"learn": 120, "finetune": 60, "baseline": 180}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A time that tests set: every step takes a second."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def steps(reporter, clock: list[float], name: str, total: int, count: int, start: int = 0) -> None:
    with reporter.task(name, total, start) as bar:
        for i in range(start, start + count):
            clock[0] += 1
            bar.advance(epoch=i // 10 + 1, epochs=total // 10, end_of_epoch=i % 10 == 9, loss=0.5)


def last_line(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err.splitlines()[-1]


def test_a_line_tells_the_time_left_of_the_stage_and_of_the_run(clock: list[float], capsys):
    reporter = LineReporter()
    reporter.plan(PLAN)
    steps(reporter, clock, "learn", 120, 30)
    assert (
        last_line(capsys)
        == "Learn thresholds 3/12  loss 0.500  1 min 30 s left, whole run about 6 min"
    )  # 90+60+180
    steps(reporter, clock, "finetune", 60, 60)
    assert last_line(capsys).endswith("0 s left, whole run about 3 min")
    steps(reporter, clock, "baseline", 180, 150)
    assert last_line(capsys).endswith("30 s left, whole run about 30 s")


def test_a_run_that_goes_on_counts_what_is_left(clock: list[float], capsys):
    reporter = LineReporter()
    reporter.plan(PLAN)
    steps(reporter, clock, "learn", 120, 0, start=120)
    steps(reporter, clock, "finetune", 60, 10, start=40)
    assert last_line(capsys).endswith("10 s left, whole run about 3 min")


def test_a_search_takes_at_least_so_long(clock: list[float], capsys):
    reporter = LineReporter()
    reporter.plan(PLAN, ("learn", "finetune"))
    for name, total in (("learn", 120), ("finetune", 60), ("finetune", 60)):
        steps(reporter, clock, name, total, 10)
        assert ", whole run at least " in last_line(capsys)
    steps(reporter, clock, "baseline", 180, 10)
    assert ", whole run about " in last_line(capsys)


def test_the_measured_rate_is_what_counts(capsys, clock: list[float]):
    reporter = LineReporter()
    reporter.plan({"learn": 20, "baseline": 20})
    with reporter.task("learn", 20) as bar:
        for i in range(10):
            clock[0] += 120
            bar.advance(epoch=1, epochs=2, end_of_epoch=i == 9)
    assert last_line(capsys).endswith("20 min 00 s left, whole run about 1 h 00 min")


def test_a_terminal_shows_both_too(clock: list[float], capsys, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "200")
    reporter = TerminalReporter()
    reporter.plan(PLAN)
    steps(reporter, clock, "learn", 120, 30)
    assert "whole run about 6 min" in capsys.readouterr().err


def test_the_metric_is_shown_by_its_name_and_in_its_unit():
    error = Metric("MAE", "°C", higher_is_better=False, is_fraction=False)
    shown = {"loss": 0.5, on_validation(error): error.shown(2.3104)}
    assert progress.format_values(shown) == "loss 0.500  MAE (val) 2.31 °C"
    assert on_validation(Metric()) == "accuracy (val)"
