"""Call a function in a forked child with limits: how it ended, what it printed, what it took.

For a program with one thread that has imported all that children need, and started nothing.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

POLL = 0.005  # seconds


@dataclass(frozen=True)
class Ended:
    """Exit code of a child process, negative for a signal, None after a timeout; with its output and use of time and memory."""

    code: int | None
    said: str
    seconds: float
    megabytes: int  # at most, beside what it began with


def call_child(
    work: Callable[[], int], seconds: float, megabytes: int, processor_seconds: int = 60
) -> Ended:
    """Run a function in a forked child with limits; its return value is the exit code.

    Time on the processor tells who is slow; time by the clock, who waits for something that never
    comes.
    """
    sys.stdout.flush()
    begun = time.monotonic()
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if not child:
            _work(work, output.fileno(), megabytes, processor_seconds)
        before = _resident(child)
        code, most = _wait(child, begun + seconds)
        output.seek(0)
        said = output.read().decode(errors="replace")
    return Ended(code, said, time.monotonic() - begun, max(0, most - before) // 2**10)


def _work(work: Callable[[], int], output: int, megabytes: int, processor_seconds: int) -> None:
    """Run the function in the child process, which exits at the end."""
    code = 1
    try:
        os.setsid()
        for stream in (1, 2):
            os.dup2(output, stream)
        used = int(Path("/proc/self/statm").read_text().split()[5]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_DATA, (used + megabytes * 2**20,) * 2)
        resource.setrlimit(resource.RLIMIT_CPU, (processor_seconds,) * 2)
        code = work()
    except BaseException:  # noqa: BLE001 - the parent reads what it was
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _wait(child: int, until: float) -> tuple[int | None, int]:
    while True:
        done, status, usage = os.wait4(child, os.WNOHANG)
        if done:
            _end_group(child)
            return os.waitstatus_to_exitcode(status), usage.ru_maxrss
        if time.monotonic() > until:
            _end_group(child)
            return None, os.wait4(child, 0)[2].ru_maxrss
        time.sleep(POLL)


def _end_group(child: int) -> None:
    """Kill a child and all processes that it started."""
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        return


def _resident(process: int) -> int:
    """Return the memory of a process in kilobytes."""
    return (
        int(Path(f"/proc/{process}/statm").read_text().split()[1])
        * os.sysconf("SC_PAGE_SIZE")
        // 2**10
    )
