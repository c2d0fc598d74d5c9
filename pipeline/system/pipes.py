"""Let output go into a pipe whose reader has gone, as with `| head -1`.

The output is dropped, and the command ends with its own exit code.
"""

import io
import os
import stat
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def tolerate_closed_pipes() -> None:
    """Let standard output and standard error tolerate a reader that has gone."""
    sys.stdout = _wrap_stream(sys.stdout)
    sys.stderr = _wrap_stream(sys.stderr)


class _TolerantPipe(io.FileIO):
    def write(self, content: "ReadableBuffer", /) -> int:
        try:
            return super().write(content)
        except BrokenPipeError:
            return memoryview(content).nbytes


def _wrap_stream(stream: TextIO) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    try:
        mode = os.fstat(stream.fileno()).st_mode
    except OSError:  # closed, or not a file
        return stream
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return stream
    return io.TextIOWrapper(
        io.BufferedWriter(_TolerantPipe(stream.fileno(), "w", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        newline="\n" if os.name == "posix" else None,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
