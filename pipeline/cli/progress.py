"""Progress on standard error: a bar for each phase on a terminal, lines elsewhere, or nothing.

Both show the time left of the phase and of the run: the number of training steps that are left,
times the seconds of a step so far.
"""

import os
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ltp_pipeline.system.progress import Bar, Reporter, SilentReporter
from ltp_pipeline.system.text import round_duration

if TYPE_CHECKING:
    from rich.progress import Progress

PHASE_TITLES = {
    "import": "Import",
    "learn": "Learn thresholds",
    "finetune": "Fine-tune",
    "int8": "Fine-tune, int8",
    "baseline": "Baseline",
    "curve": "Baseline, curve",
    "single": "Baseline, unstructured",
    "gradual": "Baseline, gradual",
    "gradual-finetune": "Baseline, gradual, fine-tune",
    "validate": "Validate",
}
VALUE_FORMATS = {
    "compression": "{:.1f}×",
    "model_compression": "{:.1f}×",
    "macs_left": "{:.1%}",
    "loss": "{:.3f}",
    "kept": "{:.1%}",
}
VALUE_LABELS = {"model_compression": "full model", "macs_left": "multiply-adds"}


def make_reporter(quiet: bool = False) -> Reporter:
    """Return the reporter that fits the kind of standard error."""
    if quiet:
        return SilentReporter()
    is_terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    if is_terminal and not os.environ.get("CI"):
        return TerminalReporter()
    return LineReporter()


def format_values(values: Mapping[str, float | str]) -> str:
    """Return the values of a step as text, for example `loss 0.123  compression 4.2×`."""
    parts = []
    for name, value in values.items():
        if not isinstance(value, str):
            value = VALUE_FORMATS.get(name, "{:.4g}").format(value)
        parts.append(f"{VALUE_LABELS.get(name, name)} {value}")
    return "  ".join(parts)


def format_duration(seconds: float) -> str:
    """Return a duration to the second, for example `1 min 30 s`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


class PlannedReporter:
    """Base of the reporters that estimate the time left of the run.

    Attributes:
        steps_ahead: Steps of the phases that have not begun.
        open_ended: Phases after which more networks may have to be trained.
        phase: The phase that is running.
    """

    def __init__(self) -> None:
        self.steps_ahead: dict[str, int] = {}
        self.open_ended: Collection[str] = ()
        self.phase = ""

    def say(self, text: str) -> None:
        """Print a line."""
        print(text, file=sys.stderr, flush=True)

    def plan(self, steps: Mapping[str, int], open_ended: Collection[str] = ()) -> None:
        """Set the phases ahead and their steps."""
        self.steps_ahead = dict(steps)
        self.open_ended = open_ended

    def start_phase(self, phase: str) -> str:
        """Begin a phase, which may be repeated or not planned, and return its title."""
        self.phase = phase
        self.steps_ahead.pop(phase, None)
        return PHASE_TITLES.get(phase, phase)

    def format_remaining(self, seconds_per_step: float, steps_left: int) -> str:
        """Return the time left of the run as text.

        Args:
            seconds_per_step: Mean duration of a step of the running phase.
            steps_left: Number of steps left in the running phase.
        """
        seconds = seconds_per_step * (steps_left + sum(self.steps_ahead.values()))
        bound = "at least" if self.phase in self.open_ended else "about"
        return f"full run {bound} {round_duration(seconds)}"


class PhaseBar:
    """Number of steps of a phase, and their mean duration."""

    def __init__(self, reporter: PlannedReporter, steps: int) -> None:
        self.reporter = reporter
        self.steps_left = steps
        self.steps_done = 0
        self.start_time = time.monotonic()

    def count_step(self) -> None:
        """Count a step that was done."""
        self.steps_left -= 1
        self.steps_done += 1

    @property
    def seconds_per_step(self) -> float:
        """Mean duration of a step so far."""
        return (time.monotonic() - self.start_time) / self.steps_done

    @property
    def run_time_left(self) -> str:
        """Time left of the run as text."""
        return self.reporter.format_remaining(self.seconds_per_step, self.steps_left)


class LineReporter(PlannedReporter):
    """Reporter that prints a line for each epoch, for the logs of CI jobs."""

    @contextmanager
    def task(self, name: str, total: int, start: int = 0) -> Iterator[Bar]:
        """Begin a phase, which prints a line at the end of each epoch."""
        yield LineBar(self, self.start_phase(name), total - start)


class LineBar(PhaseBar):
    """Progress of a phase in lines."""

    def __init__(self, reporter: PlannedReporter, title: str, steps: int) -> None:
        super().__init__(reporter, steps)
        self.title = title

    def advance(self, *, epoch: int, epochs: int, end_of_epoch: bool, **shown: float | str) -> None:
        """Count a step; print a line if it was the last one of an epoch."""
        self.count_step()
        if end_of_epoch:
            time_left = format_duration(self.seconds_per_step * self.steps_left)
            self.reporter.say(
                f"{self.title} {epoch}/{epochs}  {format_values(shown)}"
                f"  {time_left} left, {self.run_time_left}"
            )


class TerminalReporter(PlannedReporter):
    """Reporter that shows a live bar."""

    @contextmanager
    def task(self, name: str, total: int, start: int = 0) -> Iterator[Bar]:
        """Begin a phase, which shows a bar with the time left of the phase and of the run."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            "{task.description:<17}",
            BarColumn(28),
            "{task.percentage:>4.0f}%",
            TimeRemainingColumn(),
            TextColumn("{task.fields[run_time_left]}"),
            TextColumn("{task.fields[values]}"),
        )
        title = self.start_phase(name)
        with Progress(*columns, console=Console(stderr=True)) as display:
            display.add_task(title, total=total, completed=start, values="", run_time_left="")
            yield LiveBar(self, display, total - start)


class LiveBar(PhaseBar):
    """Progress of a phase in a live bar, the only one of its display."""

    def __init__(self, reporter: PlannedReporter, display: "Progress", steps: int) -> None:
        super().__init__(reporter, steps)
        self.display = display
        self.values: dict[str, float | str] = {}

    def advance(self, *, epoch: int, epochs: int, end_of_epoch: bool, **shown: float | str) -> None:  # noqa: ARG002 - the signature of Bar.advance
        """Count a step and show its values; values that it does not have stay."""
        self.values |= shown
        self.count_step()
        self.display.update(
            self.display.task_ids[0],
            advance=1,
            run_time_left=self.run_time_left,
            values=f"epoch {epoch}/{epochs}  {format_values(self.values)}",
        )
