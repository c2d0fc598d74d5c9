"""Fuzz data sets: each must be accepted or rejected, in seconds and in little memory.

    python -m tests.fuzz.data --seed 1 --count 1000 --out results.json

The case NUMBER of a seed is always the same: `--only NUMBER` repeats it and keeps its files.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

os.environ.update(OMP_NUM_THREADS="1", CI="true")

import onnx
import onnxruntime  # noqa: F401 - what is heavy is imported once, before there are children
from PIL import Image
from pyarrow import ipc, parquet  # noqa: F401 - as above

import ltp_pipeline.runner.run  # noqa: F401 - as above
from ltp_pipeline.cli import app
from tests.fuzz import program
from tests.fuzz.array_mutants import IDX, NPY, NPZ, TABLES
from tests.fuzz.file_mutants import ANY, Mutant, make_sparse_file
from tests.fuzz.image_mutants import CLASS_FOLDERS, IMAGES, SHARDS
from tests.fuzz.program import TriedCase
from tests.support import children, data_sets, models

SECONDS = 600.0  # by the clock, on a machine that others use too
PROCESSOR_SECONDS = 30
MEGABYTES = 1024
LONGEST = 3000  # characters of a message
EXITS = {"validate": (0, 3), "run": (0, 3, 5)}  # data may be whole and yet nothing to learn from
TRAIN = "--epochs=1 --finetune-epochs=0 --no-baseline --skip-label-check --export=dense --target-compression=2"

MUTANTS: dict[str, tuple[Mutant, ...]] = {
    "npz": NPZ,
    "npy": NPY,
    "idx": IDX,
    "idx-gz": IDX,
    "class-folders": CLASS_FOLDERS,
    "images": IMAGES,
    "shards": SHARDS,
    "parquet": TABLES,
    "arrow": TABLES,
}


class DataCase(NamedTuple):
    """A damaged data set and the command that reads it."""

    name: str  # in a line of the results
    verb: str
    path: Path


def make_case(seed: int, number: int, runs: int, folder: Path) -> DataCase:
    """Write a data set and damage it."""
    rng = random.Random(f"{seed}/{number}")  # noqa: S311 - nothing secret here
    kind = sorted(data_sets.FORMATS)[number % len(data_sets.FORMATS)]
    place = folder / "data"
    place.mkdir()
    path = data_sets.FORMATS[kind](place)
    done = []
    for _ in range(rng.choice((1, 1, 1, 2))):
        mutant = rng.choice(MUTANTS[kind] if rng.random() < 0.5 else ANY)
        try:
            mutant(path, rng)
        except Exception as error:  # noqa: BLE001 - on what another mutant left of it, anything
            done.append(f"({mutant.__name__}: {type(error).__name__})")
            continue
        done.append(mutant.__name__)
        if mutant is make_sparse_file:  # others would read it
            break
    return DataCase(f"{kind} {' '.join(done)}", _choose_verb(number, runs), path)


def _choose_verb(number: int, runs: int) -> str:
    return "run" if number % runs == runs - 1 else "validate"


def run_command(case: DataCase, model: Path, folder: Path) -> int:
    """Call the program as a shell would."""
    print(case.name, flush=True)
    options = [*TRAIN.split(), "--out", str(folder / "run")] if case.verb == "run" else []
    sys.argv = ["ltp-pipeline", case.verb, str(model), "--data", str(case.path), *options]
    try:
        app.main()
    except SystemExit as done:
        return int(done.code or 0)
    return 0


def find_problem(verb: str, ended: children.Ended) -> str | None:
    """Return what is wrong with how a case ended, or None."""
    output = ended.said.partition("\n")[2]  # behind its name
    if ended.code is None:
        return f"not done after {SECONDS:g} s"
    if ended.code not in EXITS[verb]:
        return f"exit {ended.code}"
    if "Traceback" in ended.said:
        return "a traceback"
    if ended.megabytes > MEGABYTES:
        return f"{ended.megabytes} MB"
    lines = output.rstrip("\n").split("\n")
    if any(len(line) > LONGEST for line in lines) or not all(line.isprintable() for line in lines):
        return "a line that is no line of text"
    if ended.code == 3 and not (lines[-2:][0].startswith("error: ") and lines[-1].startswith("  ")):
        return "no two lines of what is wrong and what to do"
    return None


def try_cases(
    seed: int, numbers: range, runs: int, model: Path, keep: Path | None = None
) -> Iterator[TriedCase]:
    """Make and try cases; files are removed unless `keep` is given."""
    for number in numbers:
        with contextlib.ExitStack() as stack:
            folder = keep or Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="ltp-campaign-"))
            )

            def work(number: int = number, folder: Path = folder) -> int:
                return run_command(make_case(seed, number, runs, folder), model, folder)

            ended = children.call_child(work, SECONDS, 4 * MEGABYTES, PROCESSOR_SECONDS)
            name = ended.said.partition("\n")[0]
            yield TriedCase(
                number,
                name,
                _choose_verb(number, runs),
                ended,
                find_problem(_choose_verb(number, runs), ended),
            )


def main() -> None:
    """Try the data sets on one model."""
    parser = program.make_parser(__doc__, 80)
    parser.add_argument(
        "--runs",
        type=int,
        default=10,
        help="every n-th case is trained on, the others only measured",
    )
    Image.init()
    program.run_program("data", parser, _try_cases)


def _try_cases(asked: program.FuzzRequest) -> Iterator[TriedCase]:
    model = asked.scratch / "model.onnx"
    onnx.save(models.conv_bn_classifier(classes=data_sets.CLASSES), model)
    return try_cases(asked.seed, asked.numbers, asked.options.runs, model, asked.keep)


if __name__ == "__main__":
    main()
