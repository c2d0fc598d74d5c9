"""Spoiled run directories: the same command ends with the same files, or refuses, and `--fresh` is a way out.

    python -m tests.fuzz.folders --seed 1 --count 150 --out results.json

The case NUMBER of a seed is always the same: `--only NUMBER` repeats it and keeps what it was made of.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", CI="true")

import torch

from tests.fuzz import program, tiny_run
from tests.fuzz.folder_mutants import MUTANTS, Case
from tests.fuzz.program import Tried
from tests.support import children

LONGEST = 3000  # characters of a line
FOREIGN = ("notes.txt", "state/notes.txt")  # which nobody may remove


def lay_out(folder: Path) -> None:
    """Runs that were stopped, one in each folder, and one of another model and other data."""
    for where in tiny_run.STOPS:
        tiny_run.lay_out(folder / where)
        _call(lambda where=where: tiny_run.stopped(folder / where, where))
        (folder / where / "run" / "state").mkdir(exist_ok=True)
        for name in FOREIGN:
            (folder / where / "run" / name).write_text("mine")
    tiny_run.lay_out(folder / "another", seed=1)
    _call(lambda: tiny_run.command(folder / "another"))


def tried(seed: int, numbers: range, source: Path, keep: Path | None = None) -> Iterator[Tried]:
    """Spoil a copy of a run, give the same command again, and judge."""
    whole = tiny_run.made(source / "over" / "run", "trail")
    for number in numbers:
        rng = random.Random(f"{seed}/{number}")  # noqa: S311 - nothing secret here
        where = rng.choice(list(tiny_run.STOPS))
        with tempfile.TemporaryDirectory(prefix="ltp-campaign-") as scratch:
            folder = shutil.copytree(
                source / where, (keep or Path(scratch)) / "case", symlinks=True
            )
            case = MUTANTS[number % len(MUTANTS)](folder / "run", rng, source / "another" / "run")
            case = case._replace(name=f"{where}: {case.name}")
            before = {name for name in FOREIGN if (folder / "run" / name).is_file()}
            ended = _call(lambda folder=folder: tiny_run.command(folder))
            problem = (
                _problem(case, ended) or _lost(before, folder) or _other(case, ended, folder, whole)
            )
            if problem is None and ended.code and case.fresh:
                again = _call(lambda folder=folder: tiny_run.command(folder, "--fresh"))
                problem = _problem(case._replace(exits=(0,)), again) or _lost(before, folder)
                problem = problem or _other(case._replace(same=True), again, folder, whole)
                problem = problem and f"--fresh: {problem}\n{again.said[-1500:]}"
            yield Tried(number, case.name, "run", ended, problem)


def _call(work: object) -> children.Ended:
    return children.call(work, tiny_run.SECONDS, tiny_run.MEGABYTES)  # type: ignore[arg-type]


def _problem(case: Case, ended: children.Ended) -> str | None:
    if ended.code is None:
        return f"not done after {tiny_run.SECONDS:g} s"
    if "Traceback" in ended.said:
        return "a traceback"
    if ended.code not in case.exits:
        return f"exit {ended.code}, not {' or '.join(map(str, case.exits))}"
    lines = ended.said.rstrip("\n").split("\n")
    if any(len(line) > LONGEST for line in lines) or not all(line.isprintable() for line in lines):
        return "a line that is no line of text"
    if ended.code == 3 and not (lines[-2:][0].startswith("error: ") and lines[-1].startswith("  ")):
        return "no two lines of what is wrong and what to do"
    return None


def _lost(before: set[str], folder: Path) -> str | None:
    gone = [name for name in before if not (folder / "run" / name).is_file()]
    return f"{gone[0]} was removed" if gone else None


def _other(case: Case, ended: children.Ended, folder: Path, whole: dict[str, bytes]) -> str | None:
    if ended.code or not case.same:
        return None
    found = tiny_run.made(folder / "run", "trail")
    other = sorted(name for name in {*found, *whole} if found.get(name) != whole.get(name))
    return f"{', '.join(other)}: other bytes" if other else None


def main() -> None:
    """Try them on copies of runs that were stopped."""
    torch.set_num_threads(1)
    program.main("folders", program.options(__doc__, 150), _tried)


def _tried(asked: program.Asked) -> Iterator[Tried]:
    lay_out(asked.scratch)
    return tried(asked.seed, asked.numbers, asked.scratch, asked.keep)


if __name__ == "__main__":
    main()
