"""Processes that decode images, started when the first is asked for and gone with whoever asked."""

import contextlib
import json
import os
import struct
import subprocess
import sys
import tempfile
import uuid
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

from ltp_pipeline.data.images import decode as decoding
from ltp_pipeline.data.images.decode import BROKEN, LENGTH, PLACES, Form, ImageSource, Problem
from ltp_pipeline.errors import InputError
from ltp_pipeline.system.arrays import Array

KEPT_BLOCKS = "4"  # of Pillow's memory: giving it back after each image costs a sixth of the time
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")  # every process has a core of its own


class DecodeWorker:
    """One process; it ends when its pipe closes, so none outlives this one however it ends."""

    def __init__(self, form: Form) -> None:
        try:
            with _memory(PLACES * form.bytes) as (memory, descriptors):
                self._places = memoryview(decoding.places(memory, form))
                self._process = subprocess.Popen(
                    [
                        sys.executable,
                        "-P",
                        "-W",
                        "ignore",
                        decoding.__file__,
                        memory,
                        json.dumps(form),
                    ],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env={
                        "PILLOW_BLOCKS_MAX": KEPT_BLOCKS,
                        **os.environ,
                        **dict.fromkeys(THREADS, "1"),
                    },
                    pass_fds=descriptors,
                    process_group=0
                    if os.name == "posix"
                    else None,  # Ctrl-C is for the process that asks
                )
        except OSError as error:
            raise InputError(
                f"cannot start a process for images: {error}", "set num_workers = 0 in [data]"
            ) from None
        self._next = 0
        self._stop = weakref.finalize(self, _stop, self._process)

    def ask(self, request: bytes) -> None:
        """Ask for one more image."""
        assert self._process.stdin  # noqa: S101 - for mypy
        self._process.stdin.write(request)
        self._process.stdin.flush()

    def answer(self, into: memoryview) -> Problem | None:
        """Wait for the oldest one asked for."""
        assert self._process.stdout  # noqa: S101 - for mypy
        answers = self._process.stdout
        status, place = answers.read(1), self._next
        self._next = (place + len(into)) % len(self._places)
        if status == BROKEN:
            return Problem(*json.loads(answers.read(LENGTH.unpack(answers.read(LENGTH.size))[0])))
        if not status:
            raise EOFError
        into[:] = self._places[place : place + len(into)]
        return None

    def stop(self) -> None:
        """End it and wait until it has ended."""
        self._stop()


class Workers:
    """As many processes as were asked for; calls from several threads share them."""

    def __init__(self, count: int, form: Form) -> None:
        self.count = count
        self._form = form
        self._idle: SimpleQueue[DecodeWorker | None] = SimpleQueue()
        for _ in range(count):
            self._idle.put(None)  # to be started by the first who takes it

    def decode(
        self, sources: Sequence[ImageSource], seeds: Sequence[str | None], out: Array
    ) -> dict[int, Problem]:
        """Fill `out`, one image per row; what could not be decoded is returned by row."""
        problems: dict[int, Problem] = {}
        todo = deque(range(len(sources)))
        count = min(self.count, len(sources))
        if not count:
            return problems
        with ThreadPoolExecutor(count, thread_name_prefix="images") as lanes:
            try:
                for lane in [
                    lanes.submit(self._lane, todo, sources, seeds, out) for _ in range(count)
                ]:
                    problems.update(lane.result())
            finally:
                todo.clear()  # on Ctrl-C, the lanes end with what they have asked for
        return problems

    def _lane(
        self,
        todo: deque[int],
        sources: Sequence[ImageSource],
        seeds: Sequence[str | None],
        out: Array,
    ) -> dict[int, Problem]:
        """Have one process decode whatever is next until nothing is left."""
        problems: dict[int, Problem] = {}
        asked: deque[int] = deque()
        worker = self._idle.get()
        try:
            worker = worker or DecodeWorker(self._form)
            while True:
                while len(asked) < PLACES and (row := _next(todo)) is not None:
                    asked.append(row)
                    worker.ask(decoding.request(sources[row], seeds[row]))
                if not asked:
                    return problems
                problem = worker.answer(memoryview(out[asked[0]]).cast("B"))
                row = asked.popleft()
                if problem is not None:
                    problems[row] = problem
        except (OSError, EOFError, ValueError, struct.error):
            raise InputError(
                f"the process that decodes images ended while reading image {sources[asked[0]].name}",
                "look at that image; if memory ran out, lower num_workers in [data]",
            ) from None
        finally:
            if asked and worker:  # its answers would be taken for those of the next call
                todo.clear()
                worker.stop()
                worker = None
            self._idle.put(worker)


@contextlib.contextmanager
def _memory(size: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Make memory that a child process can map too: its name, and the descriptors to hand down."""
    if sys.platform == "win32":
        yield f"ltp-pipeline-{uuid.uuid4()}", ()
    else:
        # Not every Python on Linux has it, as conda's; a file without a name serves as well.
        there = hasattr(os, "memfd_create")
        with (
            os.fdopen(os.memfd_create("images"), "wb")
            if there
            else tempfile.TemporaryFile() as file
        ):
            file.truncate(size)
            yield str(file.fileno()), (file.fileno(),)


def _next(todo: deque[int]) -> int | None:
    try:
        return todo.popleft()
    except IndexError:
        return None


def _stop(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        try:
            if pipe is not None:
                pipe.close()
        except OSError:
            continue  # it has ended already
    try:
        process.wait(2)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
