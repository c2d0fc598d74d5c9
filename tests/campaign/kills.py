"""Kills at any moment: the same command goes on, and every file is the same to the byte.

    python -m tests.campaign.kills --seed 1 --count 60 --out results.json

What a kill leaves depends only on the calls before it that opened files for writing, moved, removed or made them. So a
moment is a number of such calls in the run directory, and the case NUMBER of a seed is always the same: `--only NUMBER`
repeats it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

os.environ.update(OMP_NUM_THREADS="1", CI="true")

import torch

from tests.campaign import tiny_run
from tests.support import children

KEPT = ("trail", "weights", "state")
EVENTS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
MOST_KILLS = 3  # of one run
TORN = b'{"stage": "learn", "ke'  # of a line of the log


class Tried(NamedTuple):
    """A run that was killed before these calls, how it ended when it was let, and what is wrong with that."""

    number: int
    name: str
    ended: children.Ended
    problem: str | None


def tried(seed: int, numbers: range, folder: Path) -> Iterator[Tried]:
    """Kill a run a few times, let it go on, and compare it with one that was never killed."""
    tiny_run.lay_out(folder / "whole")
    counted = folder / "counted"
    ended = _call(lambda: _run(folder / "whole", None, counted))
    calls, whole = int(counted.read_text()), tiny_run.made(folder / "whole" / "run", *KEPT)
    if ended.code or not whole:
        raise RuntimeError(ended.said)
    for number in numbers:
        rng = random.Random(f"{seed}/{number}")  # noqa: S311 - nothing secret here
        place = folder / str(number)
        tiny_run.lay_out(place)
        moments = []
        for _ in range(rng.randrange(1, MOST_KILLS + 1)):
            moments.append(rng.randrange(calls))
            _call(lambda place=place, moment=moments[-1]: _run(place, moment, counted))
            log = place / "run" / "log.jsonl"
            if log.is_file() and rng.random() < 0.3:
                log.write_bytes(log.read_bytes() + TORN)
        ended = _call(lambda place=place: tiny_run.command(place))
        name = f"killed before call {', then '.join(map(str, moments))} of {calls}"
        yield Tried(number, name, ended, _problem(ended, place / "run", whole))


def _run(folder: Path, moment: int | None, counted: Path) -> int:
    """In a child: run the command, and end by a kill before the call of this number."""
    inside, calls = str(folder / "run"), 0

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal calls
        if event not in EVENTS or not str(Path(os.fsdecode(str(arguments[0]))).absolute()).startswith(inside):
            return
        if event == "open" and not int(str(arguments[2])) & WRITING:
            return
        if calls == moment:
            os.kill(os.getpid(), signal.SIGKILL)
        calls += 1

    sys.addaudithook(hook)
    code = tiny_run.command(folder)
    counted.write_text(str(calls))
    return code


def _call(work: object) -> children.Ended:
    return children.call(work, tiny_run.SECONDS, tiny_run.MEGABYTES)  # type: ignore[arg-type]


def _problem(ended: children.Ended, run: Path, whole: dict[str, bytes]) -> str | None:
    if ended.code != 0:
        return f"exit {ended.code}"
    if "Traceback" in ended.said:
        return "a traceback"
    if "is damaged" in ended.said:
        return "a file that was not spoiled counts as damaged"
    found = tiny_run.made(run, *KEPT)
    other = sorted(name for name in {*found, *whole} if found.get(name) != whole.get(name))
    if other:
        return f"{', '.join(other)}: other bytes"
    left = sorted(str(path.relative_to(run)) for path in run.rglob(".*") if path.name != ".lock")
    return f"{left[0]} was left behind" if left else None


def main() -> None:
    """Print findings as they are met, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--only", type=int, help="repeat one case, and show what it says")
    parser.add_argument("--out", type=Path, help="where to write the results")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    exits: Counter[str] = Counter()
    findings, slowest, largest = [], 0.0, 0
    numbers = range(asked.count) if asked.only is None else range(asked.only, asked.only + 1)
    with tempfile.TemporaryDirectory(prefix="ltp-campaign-") as scratch:
        for number, name, ended, problem in tried(asked.seed, numbers, Path(scratch)):
            exits[str(ended.code)] += 1
            slowest, largest = max(slowest, ended.seconds), max(largest, ended.megabytes)
            if asked.only is not None:
                print(f"{name}\n{ended.said}{ended.code} after {ended.seconds:.1f} s")
            if problem is not None:
                findings.append(f"{number}: {name}: {problem}")
                print(f"{findings[-1]}\n{ended.said[-1500:]}", flush=True)
    results = {
        "class": "kills",
        "seed": asked.seed,
        "cases": len(numbers),
        "exits": dict(sorted(exits.items())),
        "seconds_at_most": round(slowest, 1),
        "megabytes_at_most": largest,
        "findings": findings,
    }
    print(json.dumps(results, indent=2))
    if asked.out is not None:
        asked.out.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    sys.exit(bool(findings))


if __name__ == "__main__":
    main()
