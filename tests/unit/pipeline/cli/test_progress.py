"""Progress: the time left of a phase and of the run, and the values of a step."""

from collections.abc import Iterator

import pytest

from ltp_pipeline.cli import progress
from ltp_pipeline.cli.progress import (
    LineReporter,
    PlannedReporter,
    TerminalReporter,
    format_duration,
    format_values,
    make_reporter,
)
from ltp_pipeline.results.metric import Metric, name_validation_metric
from ltp_pipeline.system.progress import SilentReporter

PLAN = {"learn": 120, "finetune": 60, "baseline": 180}


class Clock:
    """Stand-in for time.monotonic, in seconds."""

    now = 0.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    clock = Clock()
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock.now)
    return clock


def advance(
    reporter: PlannedReporter, clock: Clock, name: str, total: int, count: int, start: int = 0
) -> None:
    """Advance a phase by steps that take a second each; an epoch has ten of them."""
    with reporter.task(name, total, start) as bar:
        for step in range(start, start + count):
            clock.now += 1
            bar.advance(
                epoch=step // 10 + 1, epochs=total // 10, end_of_epoch=step % 10 == 9, loss=0.5
            )


def read_last_line(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err.splitlines()[-1]


def test_line_has_the_time_left_of_phase_and_run(clock: Clock, capsys):
    reporter = LineReporter()
    reporter.plan(PLAN)
    advance(reporter, clock, "learn", 120, 30)
    line = read_last_line(capsys)
    assert line.startswith("Learn thresholds 3/12  loss 0.500  1 min 30 s left")
    assert line.endswith("about 6 min")  # 90 + 60 + 180 s
    advance(reporter, clock, "finetune", 60, 60)
    assert read_last_line(capsys).endswith("about 3 min")
    advance(reporter, clock, "baseline", 180, 150)
    assert read_last_line(capsys).endswith("about 30 s")


def test_line_of_a_resumed_run_counts_the_steps_left(clock: Clock, capsys):
    reporter = LineReporter()
    reporter.plan(PLAN)
    advance(reporter, clock, "learn", 120, 0, start=120)
    advance(reporter, clock, "finetune", 60, 10, start=40)
    line = read_last_line(capsys)
    assert "10 s left" in line
    assert line.endswith("about 3 min")


def test_line_of_an_open_ended_phase_has_a_lower_bound(clock: Clock, capsys):
    reporter = LineReporter()
    reporter.plan(PLAN, ("learn", "finetune"))
    for name, total in (("learn", 120), ("finetune", 60), ("finetune", 60)):
        advance(reporter, clock, name, total, 10)
        assert " at least " in read_last_line(capsys)
    advance(reporter, clock, "baseline", 180, 10)
    assert " about " in read_last_line(capsys)


def test_line_uses_the_measured_rate(clock: Clock, capsys):
    reporter = LineReporter()
    reporter.plan({"learn": 20, "baseline": 20})
    with reporter.task("learn", 20) as bar:
        for step in range(10):
            clock.now += 120
            bar.advance(epoch=1, epochs=2, end_of_epoch=step == 9)
    line = read_last_line(capsys)
    assert "20 min 00 s left" in line
    assert line.endswith("about 1 h 00 min")


def test_terminal_bar_has_the_time_left_of_the_run(
    clock: Clock, capsys, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "200")
    reporter = TerminalReporter()
    reporter.plan(PLAN)
    advance(reporter, clock, "learn", 120, 30)
    assert "about 6 min" in capsys.readouterr().err


def test_make_reporter_fits_standard_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("CI", raising=False)
    assert isinstance(make_reporter(quiet=True), SilentReporter)
    assert isinstance(make_reporter(), LineReporter)
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True)
    assert isinstance(make_reporter(), TerminalReporter)
    monkeypatch.setenv("CI", "true")
    assert isinstance(make_reporter(), LineReporter)


def test_format_values_has_labels_and_units():
    error = Metric("MAE", "°C", higher_is_better=False, is_fraction=False)
    values = {
        "loss": 0.5,
        "model_compression": 3.14,
        "macs_left": 0.1234,
        name_validation_metric(error): error.format_value(2.3104),
    }
    assert (
        format_values(values)
        == "loss 0.500  full model 3.1×  multiply-adds 12.3%  MAE (val) 2.31 °C"
    )


def test_format_duration_is_exact():
    assert [format_duration(seconds) for seconds in (0, 59, 61)] == ["0 s", "59 s", "1 min 01 s"]


def test_format_remaining_of_an_unplanned_phase_counts_its_own_steps():
    reporter = PlannedReporter()
    reporter.start_phase("trial")
    assert reporter.format_remaining(1.0, 30).endswith("about 30 s")


@pytest.mark.parametrize(
    ("seconds", "text"),
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
def test_format_remaining_is_rounded(seconds: int, text: str):
    assert PlannedReporter().format_remaining(1.0, seconds).endswith(f"about {text}")
