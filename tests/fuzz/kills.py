"""Fuzz kills: a run that is killed at any moment must resume to bit-identical files.

    python -m tests.fuzz.kills --seed 1 --count 60 --out results.json

What a kill leaves depends only on the calls before it that opened files for writing, moved, removed
or made them. A moment is therefore a number of such calls in the run directory, and the case NUMBER
of a seed is always the same: `--only NUMBER` repeats it.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", CI="true")

import torch

from tests.fuzz import program, tiny_run
from tests.fuzz.program import TriedCase
from tests.support import children

KEPT = ("trail", "weights", "state")
EVENTS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
MOST_KILLS = 3  # kills of one run
TORN = b'{"stage": "learn", "ke'  # an incomplete line of the log


def try_cases(seed: int, numbers: range, folder: Path) -> Iterator[TriedCase]:
    """Kill a run a few times, resume it, and compare it with one that was never killed."""
    tiny_run.write_inputs(folder / "whole")
    counted = folder / "counted"
    ended = _run_child(lambda: _run_command(folder / "whole", None, counted))
    calls, whole = int(counted.read_text()), tiny_run.read_files(folder / "whole" / "run", *KEPT)
    if ended.code or not whole:
        raise RuntimeError(ended.said)
    for number in numbers:
        rng = random.Random(f"{seed}/{number}")  # noqa: S311 - nothing secret here
        place = folder / str(number)
        tiny_run.write_inputs(place)
        moments = []
        for _ in range(rng.randrange(1, MOST_KILLS + 1)):
            moments.append(rng.randrange(calls))
            _run_child(lambda place=place, moment=moments[-1]: _run_command(place, moment, counted))
            log = place / "run" / "log.jsonl"
            if log.is_file() and rng.random() < 0.3:
                log.write_bytes(log.read_bytes() + TORN)
        ended = _run_child(lambda place=place: tiny_run.run_command(place))
        name = f"killed before call {', then '.join(map(str, moments))} of {calls}"
        yield TriedCase(number, name, "run", ended, _find_problem(ended, place / "run", whole))


def _run_command(folder: Path, moment: int | None, counted: Path) -> int:
    """Run the command in a child that is killed before the call of this number."""
    inside, calls = str(folder / "run"), 0

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal calls
        if event not in EVENTS or not str(
            Path(os.fsdecode(str(arguments[0]))).absolute()
        ).startswith(inside):
            return
        if event == "open" and not int(str(arguments[2])) & WRITING:
            return
        if calls == moment:
            os.kill(os.getpid(), signal.SIGKILL)
        calls += 1

    sys.addaudithook(hook)
    code = tiny_run.run_command(folder)
    counted.write_text(str(calls))
    return code


def _run_child(work: object) -> children.Ended:
    return children.call_child(work, tiny_run.SECONDS, tiny_run.MEGABYTES)  # type: ignore[arg-type]


def _find_problem(ended: children.Ended, run: Path, whole: dict[str, bytes]) -> str | None:
    if ended.code != 0:
        return f"exit {ended.code}"
    if "Traceback" in ended.said:
        return "a traceback"
    if "is damaged" in ended.said:
        return "a file that was not spoiled counts as damaged"
    files = tiny_run.read_files(run, *KEPT)
    other = sorted(name for name in {*files, *whole} if files.get(name) != whole.get(name))
    if other:
        return f"{', '.join(other)}: other bytes"
    left = sorted(str(path.relative_to(run)) for path in run.rglob(".*") if path.name != ".lock")
    return f"{left[0]} was left behind" if left else None


def main() -> None:
    """Kill and resume runs."""
    torch.set_num_threads(1)
    program.run_program("kills", program.make_parser(__doc__, 60), _try_cases)


def _try_cases(asked: program.FuzzRequest) -> Iterator[TriedCase]:
    return try_cases(asked.seed, asked.numbers, asked.keep or asked.scratch)


if __name__ == "__main__":
    main()
