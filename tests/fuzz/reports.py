"""Fuzz reports: a gate that fails must not pass after edits of the report or the files.

    python -m tests.fuzz.reports --seed 1 --count 2000 --out results.json

The case NUMBER of a seed is always the same: `--only NUMBER` repeats it and keeps its files.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", CI="true")

from ltp_pipeline.cli import app
from ltp_pipeline.gates import recount  # noqa: F401 - children find it imported
from ltp_pipeline.results import read_write
from ltp_pipeline.stages.report import render  # noqa: F401 - as well
from ltp_pipeline.system.hashing import sha256_file, write_checksums
from tests.fuzz import program
from tests.fuzz.program import TriedCase
from tests.fuzz.report_mutants import MUTANTS, REPORT, SUMS, ReportCase
from tests.support import children
from tests.support.finished import lay_out

SECONDS = 120.0  # by the clock, on a machine that others use too
MEGABYTES = 512
LONGEST = 3000  # characters of a line


def make_run(folder: Path) -> None:
    """Make a finished run whose gates pass or fail by little."""
    lay_out(folder)
    hashes = read_write.read(folder / REPORT).hashes
    write_checksums(folder / SUMS, {**hashes, REPORT: sha256_file(folder / REPORT)})


def make_case(seed: int, number: int, folder: Path) -> ReportCase:
    """Change a copy of the run."""
    rng = random.Random(f"{seed}/{number}")  # noqa: S311 - nothing secret here
    return MUTANTS[number % len(MUTANTS)](folder, rng)


def try_cases(
    seed: int, numbers: range, source: Path, keep: Path | None = None
) -> Iterator[TriedCase]:
    """Make cases and check the results; files are removed unless `keep` is given."""
    for number in numbers:
        with tempfile.TemporaryDirectory(prefix="ltp-campaign-") as scratch:
            folder = shutil.copytree(source, (keep or Path(scratch)) / "run")
            case = make_case(seed, number, folder)
            report = str(folder / REPORT)
            given = {
                "gate": [report],
                "compare": [str(source / REPORT), report, "--allow-different-models"],
                "report": [str(folder)],
            }
            arguments = [case.verb, *given[case.verb], *case.options]
            ended = children.call_child(
                lambda arguments=arguments: _run_command(arguments), SECONDS, 4 * MEGABYTES
            )
            name = f"{case.name} {' '.join(case.options)[:200]}"
            yield TriedCase(number, name, case.verb, ended, _find_problem(case, ended))


def _run_command(arguments: list[str]) -> int:
    """Call the program in a child as a shell would."""
    sys.argv = ["ltp-pipeline", *arguments]
    sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115 - pytest had them
    try:
        app.main()
    except SystemExit as done:
        return int(done.code or 0)
    return 0


def _find_problem(case: ReportCase, ended: children.Ended) -> str | None:
    if ended.code is None:
        return f"not done after {SECONDS:g} s"
    if ended.code not in case.exits:
        return f"exit {ended.code}, not {' or '.join(map(str, case.exits))}"
    if "Traceback" in ended.said:
        return "a traceback"
    if ended.megabytes > MEGABYTES:
        return f"{ended.megabytes} MB"
    lines = ended.said.rstrip("\n").split("\n")
    if any(len(line) > LONGEST for line in lines) or not all(line.isprintable() for line in lines):
        return "a line that is no line of text"
    if ended.code == 3 and not (lines[-2:][0].startswith("error: ") and lines[-1].startswith("  ")):
        return "no two lines of what is wrong and what to do"
    return None


def main() -> None:
    """Try the mutants on one finished run."""
    program.run_program("reports", program.make_parser(__doc__, 2000), _try_cases)


def _try_cases(asked: program.FuzzRequest) -> Iterator[TriedCase]:
    source = asked.scratch / "base"
    make_run(source)
    return try_cases(asked.seed, asked.numbers, source, asked.keep)


if __name__ == "__main__":
    main()
