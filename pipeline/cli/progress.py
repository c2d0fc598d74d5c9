"""Telling people how far it is: one bar per stage on a terminal, plain lines elsewhere, nothing when quiet."""

import os
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ltp_pipeline.cli.time_estimate import TimeEstimate, format_duration
from ltp_pipeline.system.progress import Bar, Reporter, SilentReporter

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

TITLES = {
    "import": "Import",
    "learn": "Learn thresholds",
    "finetune": "Fine-tune",
    "int8": "Fine-tune in 8 bits",
    "baseline": "Baseline",
    "curve": "Baseline, curve",
    "single": "Baseline, single weights",
    "validate": "Validate",
}


def make_reporter(quiet: bool = False) -> Reporter:
    """Pick by where the output goes; standard error, so that standard output stays for results."""
    if quiet:
        return SilentReporter()
    if sys.stderr.isatty() and not os.environ.get("CI") and os.environ.get("TERM") != "dumb":
        return TerminalReporter()
    return LineReporter()


class _Planning:
    def __init__(self) -> None:
        self.outlook = TimeEstimate()

    def say(self, text: str) -> None:
        """Print a line."""
        print(text, file=sys.stderr, flush=True)

    def plan(self, steps: Mapping[str, int], open_ended: Collection[str] = ()) -> None:
        """Take note of what is ahead."""
        self.outlook = TimeEstimate(steps, open_ended)


class LineReporter(_Planning):
    """A line per epoch: for logs of CI jobs."""

    @contextmanager
    def task(self, name: str, total: int, start: int = 0) -> Iterator[Bar]:
        """Print a line at the end of each epoch."""
        self.outlook.start_phase(name)
        yield _LineBar(self, TITLES.get(name, name), total, start)


class _LineBar:
    def __init__(self, reporter: LineReporter, title: str, total: int, start: int) -> None:
        self.reporter, self.title, self.total, self.done = reporter, title, total, start
        self.begun, self.first = time.monotonic(), start

    def advance(self, *, epoch: int, epochs: int, end_of_epoch: bool, **shown: float | str) -> None:
        self.done += 1
        if not end_of_epoch:
            return
        per_step = (time.monotonic() - self.begun) / (self.done - self.first)
        left = self.total - self.done
        times = f"{format_duration(per_step * left)} left, {self.reporter.outlook.format_remaining(per_step, left)}"
        self.reporter.say(f"{self.title} {epoch}/{epochs}  {format_values(shown)}  {times}")


class TerminalReporter(_Planning):
    """A live bar."""

    @contextmanager
    def task(self, name: str, total: int, start: int = 0) -> Iterator[Bar]:
        """Show a bar with the time left, of the stage and of the whole run."""
        self.outlook.start_phase(name)
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            "{task.description:<17}",
            BarColumn(28),
            "{task.percentage:>4.0f}%",
            TimeRemainingColumn(),
        )
        texts = (TextColumn("{task.fields[whole]}"), TextColumn("{task.fields[shown]}"))
        with Progress(*columns, *texts, console=Console(stderr=True)) as live:
            task = live.add_task(
                TITLES.get(name, name), total=total, completed=start, shown="", whole=""
            )
            yield _LiveBar(live, task, self.outlook, total - start)


class _LiveBar:
    def __init__(self, live: "Progress", task: "TaskID", outlook: TimeEstimate, left: int) -> None:
        self.live, self.task, self.outlook = live, task, outlook
        self.kept: dict[str, float | str] = {}
        self.left, self.done, self.begun = left, 0, time.monotonic()

    def advance(self, *, epoch: int, epochs: int, end_of_epoch: bool, **shown: float | str) -> None:  # noqa: ARG002
        self.kept |= shown
        self.left, self.done = self.left - 1, self.done + 1
        whole = self.outlook.format_remaining(
            (time.monotonic() - self.begun) / self.done, self.left
        )
        self.live.update(
            self.task,
            advance=1,
            whole=whole,
            shown=f"epoch {epoch}/{epochs}  {format_values(self.kept)}",
        )


_FORMATS = {
    "compression": "{:.1f}×",
    "model_compression": "{:.1f}×",
    "loss": "{:.3f}",
    "kept": "{:.1%}",
}
_WORDS = {"model_compression": "whole model"}


def format_values(shown: Mapping[str, float | str]) -> str:
    """Render `loss 0.123  compression 4.2×`."""
    return "  ".join(f"{_WORDS.get(k, k)} {_format(k, v)}" for k, v in shown.items())


def _format(name: str, value: float | str) -> str:
    return value if isinstance(value, str) else _FORMATS.get(name, "{:.4g}").format(value)
