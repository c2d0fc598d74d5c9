"""How a stage reports its progress: the protocol of a reporter, and one that shows nothing."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class Bar(Protocol):
    """What a stage calls as it goes on."""

    def advance(self, *, epoch: int, epochs: int, end_of_epoch: bool, **shown: float | str) -> None:
        """One step is done; what is shown is a number, or text where it has a unit of its own."""


class Reporter(Protocol):
    """Where progress goes."""

    def say(self, text: str) -> None:
        """One line for people."""

    def plan(self, steps: Mapping[str, int], open_ended: Collection[str] = ()) -> None:
        """The training phases of a run and their steps; in those that are open-ended, more may still come."""

    def task(self, name: str, total: int, start: int = 0) -> AbstractContextManager[Bar]:
        """A stretch of work with a known number of steps."""


class SilentReporter:
    """Says nothing."""

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
