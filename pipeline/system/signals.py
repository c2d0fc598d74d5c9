"""Stop on Ctrl-C, on a signal to terminate, and when the terminal is closed.

The first signal raises KeyboardInterrupt, so that the current work cleans up. Further signals do
not disturb that. If it takes too long, the process ends anyway: every file is written in one move,
so none is damaged. An interrupt that other code drops is raised again. This module is light,
because it is imported before everything else.
"""

import _thread
import os
import signal
import sys
import time
import weakref
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

EXIT_CODE = 130
GRACE_SECONDS = 10.0  # time for cleaning up, counted from a second signal
RESEND_SECONDS = 0.05  # until a signal that came at a bad moment is sent again
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")

_ours: list[int] = []  # signals handled here
# Interrupts that were raised, to notice when one is dropped.
_held: list["weakref.ref[Interrupt]"] = []
_asked = _raised = _put_off = _hurried = False


class Interrupt(KeyboardInterrupt):
    """The exception that a signal raises."""


def install_handlers() -> None:
    """Handle the signals of this process, except those that it was started to ignore."""
    sys.excepthook, sys.unraisablehook = _handle_uncaught, _handle_unraisable
    for name in SIGNALS:
        number = getattr(signal, name, None)  # not every system has all
        if number is not None and signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _handle_signal)
            _ours.append(number)


def stop_requested() -> bool:
    """Return whether this process was asked to stop."""
    return _asked


def ignore_signals() -> None:
    """Ignore all further signals. Called when the command has finished."""
    for number in _ours:
        signal.signal(number, signal.SIG_IGN)


def exit_interrupted(announce: bool = True) -> NoReturn:
    """Exit as an interrupted command does.

    Args:
        announce: Whether to print that the command was interrupted.
    """
    ignore_signals()
    if _ours:
        _thread.start_new_thread(_force_exit, ())  # in case a thread never ends
    if announce:
        _print_interrupted()
    sys.exit(EXIT_CODE)


def _print_interrupted() -> None:
    message = "\ninterrupted; the same command resumes"
    print(message, file=sys.stderr, flush=True)


def _handle_signal(number: int, frame: FrameType | None) -> None:
    global _asked, _raised, _put_off, _hurried
    _asked = True
    if _raised:
        if not _hurried:
            _hurried = True
            _thread.start_new_thread(_force_exit, ())
    elif _put_off:
        pass  # it comes again anyway
    elif _is_importing(frame):  # native code may make another error of it, or none
        _put_off = True
        _thread.start_new_thread(_resend_signal, (number,))
    else:
        _raised = True
        raise _make_interrupt()


def _make_interrupt() -> Interrupt:
    """Return an interrupt that notices when it is dropped.

    It is made here, because a frame on its way that names it would keep it alive.
    """
    interrupt = Interrupt()
    _held.append(weakref.ref(interrupt, _handle_dropped))
    return interrupt


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _resend_signal(number: int) -> None:
    global _put_off
    time.sleep(RESEND_SECONDS)
    _put_off = False
    if os.name == "posix":
        os.kill(os.getpid(), number)  # unlike raise_signal, it also ends a wait of the main thread
    else:
        signal.raise_signal(number)


def _force_exit() -> None:
    time.sleep(GRACE_SECONDS)
    os._exit(EXIT_CODE)


def _handle_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """End the process after an interrupt that nothing catches, as while a command is ending."""
    if not _asked:
        sys.__excepthook__(kind, error, trace)
        return
    ignore_signals()
    _print_interrupted()
    os._exit(EXIT_CODE)  # Python itself would end by the signal


def _handle_unraisable(lost: "UnraisableHookArgs") -> None:
    """Stay silent about an interrupt in a destructor: Python drops it, and it is sent again."""
    if not issubclass(lost.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(lost)


def _handle_dropped(_: "weakref.ref[Interrupt]") -> None:
    """Send the signal again, because the interrupt was dropped or the process is about to leave."""
    global _raised, _put_off
    _raised, _put_off = False, True
    _thread.start_new_thread(_resend_signal, (_ours[0],))
