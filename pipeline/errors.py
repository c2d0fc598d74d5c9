"""Errors that a user can meet, each with its exit code.

An error has a message, which says what is wrong, and a hint, which says what to do. Any other
exception that ends a command is a bug.
"""

import copyreg
from collections.abc import Sequence
from typing import Any, ClassVar

from ltp_pipeline.system.text import one_line

MAX_SUMMARY_LENGTH = 300  # characters of a message of another library


def summarize_error(error: Exception) -> str:
    """Return the first line of an error of another library, or its class if it has no message."""
    lines = str(error).strip().splitlines()
    return one_line(lines[0] if lines else type(error).__name__, MAX_SUMMARY_LENGTH)


class LtpError(Exception):
    """Base class of all errors that a user can meet.

    Attributes:
        message: What is wrong: the thing, what was expected and what was found, on one line.
        hint: What the user can do, as a command with the option or the value.
        exit_code: Exit code of the command line.
        is_multiline: The message may have several lines.
    """

    exit_code: ClassVar[int] = 1
    is_multiline: ClassVar[bool] = False

    def __init__(self, message: str, hint: str) -> None:
        lines = message.split("\n") if self.is_multiline else [message]
        self.message = "\n".join(map(one_line, lines))
        self.hint = hint
        super().__init__(self.message)

    def __reduce__(self) -> tuple[Any, ...]:
        """Restore the error without calling `__init__`, which differs between the classes.

        Errors are pickled when they come back from worker processes.
        """
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]  # missing in typeshed


class UsageError(LtpError):
    """Options of the command line contradict each other."""

    exit_code = 2


class InputError(LtpError):
    """A setting or an input is invalid: a missing file, wrong shapes, or labels out of range."""

    exit_code = 3


class TaskFailed(InputError):
    """The user's own task raised an exception.

    Attributes:
        traceback_text: Traceback of the exception, in the lines of the user.
    """

    def __init__(self, message: str, hint: str, traceback_text: str = "") -> None:
        super().__init__(message, hint)
        self.traceback_text = traceback_text


class UnsupportedModel(LtpError):
    """The model cannot be handled.

    Attributes:
        reasons: Every reason why, not only the first one.
    """

    exit_code = 4

    def __init__(self, message: str, hint: str, reasons: Sequence[str] = ()) -> None:
        super().__init__(message, hint)
        self.reasons = tuple(map(one_line, reasons))


class TrainingFailed(LtpError):
    """Training diverged, became not finite, or nothing could be pruned."""

    exit_code = 5


class ExportFailed(LtpError):
    """A file could not be written, or does not hold the weights of the network."""

    exit_code = 6


class NotFaster(LtpError):
    """A file that should be faster would not be; it was not written."""

    exit_code = 7


class GateFailed(LtpError):
    """The report was written, but a gate failed. The message has a line for each failed gate."""

    exit_code = 7
    is_multiline = True
