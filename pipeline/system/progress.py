"""How a stage reports its progress: the protocol of a reporter, and one that shows nothing."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class Bar(Protocol):
    """Progress of one stretch of work."""

    def advance(self, *, epoch: int, epochs: int, end_of_epoch: bool, **shown: float | str) -> None:
        """Advance by one step.

        Args:
            epoch: Current epoch, counted from one.
            epochs: Number of epochs.
            end_of_epoch: Whether the step completes the epoch.
            shown: Values to show; a text has its unit.
        """


class Reporter(Protocol):
    """Where progress goes."""

    def say(self, text: str) -> None:
        """Show a line to the user."""

    def plan(self, steps: Mapping[str, int], open_ended: Collection[str] = ()) -> None:
        """Announce the training phases of a run.

        Args:
            steps: Steps of each phase.
            open_ended: Phases that may be followed by more trainings of their kind.
        """

    def task(self, name: str, total: int, start: int = 0) -> AbstractContextManager[Bar]:
        """Begin a stretch of work with a known number of steps."""


class SilentReporter:
    """A reporter that shows nothing."""

    def say(self, text: str) -> None:
        """Say nothing."""

    def plan(self, steps: Mapping[str, int], open_ended: Collection[str] = ()) -> None:
        """Plan nothing."""

    @contextmanager
    def task(self, name: str, total: int, start: int = 0) -> Iterator[Bar]:  # noqa: ARG002 - the shape of a Reporter
        """Show nothing."""
        yield _NoBar()


class _NoBar:
    def advance(self, *, epoch: int, epochs: int, end_of_epoch: bool, **shown: float | str) -> None:
        pass
