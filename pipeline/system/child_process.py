"""Call functions in a child Python process with limits on memory and time.

Native code that reads a damaged file may crash, never return, or ask for all memory. In a child
process it can only end the child. The parent names a function as "module:function"; the child
imports the module, calls the function and sends the result back. Requests and results are lines
of JSON. Larger data, such as arrays, travel in files that both sides can read, never as pickles.
A child can serve several calls, so that a library is loaded once; it ends with its parent.

`setup.py` loads this module before anything is installed, so it needs only the standard library.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import threading
import time
from typing import Any

from ltp_pipeline.errors import summarize_error
from ltp_pipeline.system import memory
from ltp_pipeline.system.scratch import is_disk_full

MODULE = "ltp_pipeline.system.child_process"
MAX_SECONDS = 300
_EXIT_SECONDS = 5  # time for a child that has closed its output to end by itself


class ChildCrashed(Exception):
    """A child process crashed, ran out of time, or sent an answer that cannot be read."""


class CallFailed(Exception):
    """A function raised an error in the child process; the message is the error's first line."""


class ChildProcess:
    """A Python process that calls functions for this process, one after the other.

    Args:
        max_memory: Largest address space of the child in bytes. None allows each call a
            fraction of the memory that is free when the call starts.
    """

    def __init__(self, max_memory: int | None = None) -> None:
        command = [sys.executable, "-P", "-m", MODULE]
        if max_memory is not None:
            command.append(str(max_memory))
        self.owner = os.getpid()
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def call(self, function: str, *arguments: Any, seconds: float = MAX_SECONDS) -> Any:
        """Call a function in the child process and return its result.

        Args:
            function: Name of the function, as "module:function".
            arguments: Arguments of the function; JSON must be able to hold them.
            seconds: Time limit. The child is killed when it is over.

        Returns:
            The result of the function, as JSON gives it back.

        Raises:
            ChildCrashed: If the child crashed, ran out of time or gave no readable answer.
            CallFailed: If the function raised an error.
            OSError: If the function could not write a file because the disk is full.
        """
        deadline = time.monotonic() + seconds
        line = self._exchange(json.dumps([function, arguments]), seconds)
        try:
            answer = json.loads(line)
        except ValueError:  # the output ended before or within the line
            reason = self._stop()
            if time.monotonic() >= deadline:
                reason = f"did not finish in {seconds:g} s"
            raise ChildCrashed(reason) from None
        if "errno" in answer:
            raise OSError(answer["errno"], os.strerror(answer["errno"]))
        if "error" in answer:
            raise CallFailed(answer["error"])
        return answer["result"]

    @property
    def is_usable(self) -> bool:
        """True if the child is alive and was started by this process, not by one it forked from."""
        return self.owner == os.getpid() and self.process.poll() is None

    def close(self) -> None:
        """End the child process."""
        self.process.kill()
        self.process.communicate()

    def _exchange(self, request: str, seconds: float) -> bytes:
        """Send one line to the child and return the line that it sends back, empty if it died."""
        assert self.process.stdin is not None  # noqa: S101 - both are pipes
        assert self.process.stdout is not None  # noqa: S101
        timer = threading.Timer(seconds, self.process.kill)
        timer.start()
        try:
            self.process.stdin.write(request.encode() + b"\n")
            self.process.stdin.flush()
            return self.process.stdout.readline()
        except OSError:
            return b""
        finally:
            timer.cancel()

    def _stop(self) -> str:
        """End the child after a failed call and return how it ended."""
        try:
            code = self.process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            code = 0
        self.close()
        return f"crashed with signal {-code}" if code < 0 else "crashed"


def call_once(
    function: str, *arguments: Any, seconds: float = MAX_SECONDS, max_memory: int | None = None
) -> Any:
    """Call a function in a child process of its own, see `ChildProcess` and its method `call`."""
    child = ChildProcess(max_memory)
    try:
        return child.call(function, *arguments, seconds=seconds)
    finally:
        child.close()


def _answer_call(name: str, arguments: list[Any]) -> dict[str, Any]:
    """Call a function and return its result, or its error, as the content of an answer."""
    module, _, function = name.partition(":")
    try:
        return {"result": getattr(importlib.import_module(module), function)(*arguments)}
    except Exception as error:  # noqa: BLE001 - the parent decides which errors it expects
        if isinstance(error, OSError) and is_disk_full(error):
            return {"errno": error.errno}
        return {"error": summarize_error(error)}


def _serve_calls(max_memory: int | None) -> None:
    """Answer calls from standard input until it is closed."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # Native code prints where it likes, so that only the copy above is for answers.
    os.dup2(2, 1)
    for line in sys.stdin:
        with memory.limit_memory(max_memory):
            answer = _answer_call(*json.loads(line))
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    _serve_calls(int(sys.argv[1]) if len(sys.argv) > 1 else None)
