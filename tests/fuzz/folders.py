"""Fuzz run directories: the command must restore the same files or reject the directory.

    python -m tests.fuzz.folders --seed 1 --count 150 --out results.json

The case NUMBER of a seed is always the same: `--only NUMBER` repeats it and keeps its files.
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
from tests.fuzz.folder_mutants import MUTANTS, FolderCase
from tests.fuzz.program import TriedCase
from tests.support import children

LONGEST = 3000  # characters of a line
FOREIGN = ("notes.txt", "state/notes.txt")  # files that nothing may remove


def make_runs(folder: Path) -> None:
    """Make stopped runs, one in each folder, and a run of another model."""
    for where in tiny_run.STOPS:
        tiny_run.write_inputs(folder / where)
        _run_child(lambda where=where: tiny_run.stop_run(folder / where, where))
        (folder / where / "run" / "state").mkdir(exist_ok=True)
        for name in FOREIGN:
            (folder / where / "run" / name).write_text("mine")
    tiny_run.write_inputs(folder / "another", seed=1)
    _run_child(lambda: tiny_run.run_command(folder / "another"))


def try_cases(
    seed: int, numbers: range, source: Path, keep: Path | None = None
) -> Iterator[TriedCase]:
    """Change copies of a run, repeat the command, and check the result."""
    whole = tiny_run.read_files(source / "over" / "run", "trail")
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
            ended = _run_child(lambda folder=folder: tiny_run.run_command(folder))
            problem = (
                _find_problem(case, ended)
                or _find_lost_file(before, folder)
                or _find_changed_file(case, ended, folder, whole)
            )
            if problem is None and ended.code and case.fresh:
                again = _run_child(lambda folder=folder: tiny_run.run_command(folder, "--fresh"))
                problem = _find_problem(case._replace(exits=(0,)), again) or _find_lost_file(
                    before, folder
                )
                problem = problem or _find_changed_file(
                    case._replace(same=True), again, folder, whole
                )
                problem = problem and f"--fresh: {problem}\n{again.said[-1500:]}"
            yield TriedCase(number, case.name, "run", ended, problem)


def _run_child(work: object) -> children.Ended:
    return children.call_child(work, tiny_run.SECONDS, tiny_run.MEGABYTES)  # type: ignore[arg-type]


def _find_problem(case: FolderCase, ended: children.Ended) -> str | None:
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


def _find_lost_file(before: set[str], folder: Path) -> str | None:
    gone = [name for name in before if not (folder / "run" / name).is_file()]
    return f"{gone[0]} was removed" if gone else None


def _find_changed_file(
    case: FolderCase, ended: children.Ended, folder: Path, whole: dict[str, bytes]
) -> str | None:
    if ended.code or not case.same:
        return None
    files = tiny_run.read_files(folder / "run", "trail")
    other = sorted(name for name in {*files, *whole} if files.get(name) != whole.get(name))
    return f"{', '.join(other)}: other bytes" if other else None


def main() -> None:
    """Try the mutants on copies of stopped runs."""
    torch.set_num_threads(1)
    program.run_program("folders", program.make_parser(__doc__, 150), _try_cases)


def _try_cases(asked: program.FuzzRequest) -> Iterator[TriedCase]:
    make_runs(asked.scratch)
    return try_cases(asked.seed, asked.numbers, asked.scratch, asked.keep)


if __name__ == "__main__":
    main()
