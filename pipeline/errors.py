"""Every error a user can meet, each with its exit code.

An error says in one line what is wrong and in one line what to do. Anything else that escapes is a bug.
"""

import copyreg
from collections.abc import Sequence
from typing import Any, ClassVar

from ltp_pipeline.system.text import one_line


def summarize_error(error: Exception) -> str:
    """What an error of another library says, in a line; its kind where it says nothing."""
    return one_line((str(error).strip().splitlines() or [type(error).__name__])[0], 300)


class LtpError(Exception):
    """The root: what is wrong, and what to do about it."""

    exit_code: ClassVar[int] = 1
    is_multiline: ClassVar[bool] = False  # says what is wrong in several lines

    def __init__(self, message: str, hint: str) -> None:
        self.message = (
            "\n".join(map(one_line, message.split("\n")))
            if self.is_multiline
            else one_line(message)
        )
        self.hint = hint
        super().__init__(self.message)

    def __reduce__(self) -> tuple[Any, ...]:
        """As it is, whatever its class takes: errors come back from worker processes."""
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]  # missing there


class UsageError(LtpError):
    """The command line contradicts itself."""

    exit_code = 2


class InputError(LtpError):
    """Bad settings or bad input: a missing file, not ONNX, wrong shapes, labels out of range, no data."""

    exit_code = 3


class TaskFailed(InputError):
    """The user's own code failed; `trace` is where, in their lines."""

    def __init__(self, message: str, hint: str, traceback_text: str = "") -> None:
        super().__init__(message, hint)
        self.traceback_text = traceback_text


class UnsupportedModel(LtpError):
    """The model cannot be handled; `reasons` lists everything that stands in the way, not only the first."""

    exit_code = 4

    def __init__(self, message: str, hint: str, reasons: Sequence[str] = ()) -> None:
        super().__init__(message, hint)
        self.reasons = tuple(map(one_line, reasons))


class TrainingFailed(LtpError):
    """Training diverged, became not finite, or nothing could be pruned."""

    exit_code = 5


class ExportFailed(LtpError):
    """The file could not be written, or does not say what the weights say."""

    exit_code = 6


class NotFaster(LtpError):
    """A file that was to be faster would not be, and is not written."""

    exit_code = 7


class GateFailed(LtpError):
    """The work is done and the report written, but the result is below the bar."""

    exit_code = 7
    is_multiline = True
