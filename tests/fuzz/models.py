"""Fuzz models: `inspect`, import and `run` must accept or reject each within limits.

    python -m tests.fuzz.models --seed 1 --count 10000 --out results.json

Every tenth model is imported too, as `run` would, by torch, onnxsim and onnxruntime. With
`--run-every 100`, every hundredth is run. The case NUMBER of a seed is always the same:
`--only NUMBER` repeats it and keeps its files.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import tempfile
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

os.environ.update(OMP_NUM_THREADS="1", CI="true")

import numpy as np
from onnx import ModelProto

from ltp_pipeline.cli import app
from ltp_pipeline.errors import LtpError
from ltp_pipeline.exporters.encodings import ENCODINGS
from ltp_pipeline.graph.model import OnnxModel, copy_proto
from ltp_pipeline.stages.import_model import import_model
from tests.fuzz import program
from tests.fuzz.graph_mutants import GRAPH_MUTANTS
from tests.fuzz.model_mutants import MESSAGE_MUTANTS, corrupt_bytes
from tests.fuzz.program import TriedCase
from tests.support import children
from tests.support.models import prune
from tests.support.sequence_models import SEQUENCE_MODELS
from tests.support.victims import VICTIMS

LEVELS = ("bytes", "structure", "graph", "structure", "graph")
SECONDS = {"inspect": 10, "import": 60, "run": 120}  # of processor time
PATIENCE = 20  # times as much by the clock, on a machine that others use too
MEGABYTES = {
    "inspect": 200,
    "import": 8000,
    "run": 8000,
}  # importing and training may take what is free
EXITS = {
    "inspect": (0, 3, 4),
    "import": (0, 3, 4),
    "run": (0, 3, 4, 5),
}  # what runs need not be worth training
LONGEST = 3000  # characters of a line
EVERY = {
    "inspect": 1,
    "import": 10,
    "run": 0,
}  # how many models are there for one that is given to it
FILE = "model.onnx"


class ModelCase(NamedTuple):
    """A damaged model, and what was done to it."""

    number: int
    name: str
    content: bytes


@cache
def load_originals() -> dict[str, ModelProto]:
    """Return models of all kinds, two of them as exported by us."""
    pruned = OnnxModel.from_proto(prune(VICTIMS["conv"], 0.9))
    kernels = [t.name for t in pruned.graph.initializer if len(t.dims) > 1]
    encoded = {
        name: ENCODINGS[name].encode(pruned, kernels).to_proto() for name in ("sparse", "packed")
    }
    sequences = {
        name: SEQUENCE_MODELS[name]
        for name in ("LSTM-bidirectional", "language", "vision", "fused")
    }
    return {**VICTIMS, **sequences, **encoded}


def make_case(seed: int, number: int) -> ModelCase:
    """Damage one of the models on one of the levels."""
    rng = random.Random(f"{seed}/{number}")  # noqa: S311 - nothing secret here
    victim, level = rng.choice(sorted(load_originals())), rng.choice(LEVELS)
    model = load_originals()[victim]
    if level == "bytes":
        return ModelCase(number, f"{victim} bytes", corrupt_bytes(model.SerializeToString(), rng))
    copy, done = copy_proto(model), []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        mutant = rng.choice(MESSAGE_MUTANTS if level == "structure" else GRAPH_MUTANTS)
        try:
            mutant(copy, rng)
            done.append(mutant.__name__)
        except Exception as error:  # noqa: BLE001 - on what another mutant left of it, anything
            done.append(f"({mutant.__name__}: {type(error).__name__})")
    return ModelCase(number, f"{victim} {' '.join(done)}", copy.SerializeToString())


def write_case(case: ModelCase, folder: Path) -> Path:
    """Write a model, and next to it what external data may name."""
    folder.mkdir(exist_ok=True)
    path = folder / FILE
    path.write_bytes(case.content)
    (folder / "weights.bin").write_bytes(bytes(range(256)) * 16)
    (folder / "folder").mkdir()
    with contextlib.suppress(OSError):
        (folder / "link").symlink_to("/etc/passwd")
    return path


def try_cases(
    seed: int, numbers: range, verbs: dict[str, int], keep: Path | None = None
) -> Iterator[TriedCase]:
    """Make cases and try the commands whose turn it is; files are removed unless `keep` is given."""
    for number in numbers:
        case = make_case(seed, number)
        for verb, every in verbs.items():
            if every and number % every == every - 1:
                with tempfile.TemporaryDirectory(prefix="ltp-campaign-") as scratch:
                    path = write_case(case, (keep or Path(scratch)) / verb)
                    work = partial(_run_command, verb, path)
                    ended = children.call_child(
                        work, PATIENCE * SECONDS[verb], 4 * MEGABYTES[verb], SECONDS[verb]
                    )
                    yield TriedCase(
                        number,
                        case.name,
                        verb,
                        ended,
                        _find_problem(verb, ended, len(case.content)),
                    )


def _run_command(verb: str, path: Path) -> int:
    """Call the program as a shell would, or only import the model; runs in a child."""
    os.chdir(path.parent)
    sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115 - pytest had them
    if verb == "import":
        return _import_model(path)
    sys.argv = [
        "ltp-pipeline",
        verb,
        str(path),
        *(_list_run_options(path) if verb == "run" else ()),
    ]
    try:
        app.main()
    except SystemExit as done:
        return int(done.code or 0)
    return 0


def _import_model(path: Path) -> int:
    try:
        import_model(path)
    except LtpError as error:
        print(f"error: {error.message}\n  {error.hint}", file=sys.stderr)
        return error.exit_code
    return 0


def _list_run_options(path: Path) -> list[str]:
    """Write random data that fit the model and return the options of a short run."""
    rng = np.random.default_rng(0)
    shapes = {3: (40, 3, 8, 8), 6: (40, 6)}
    content = path.read_bytes()
    shape = shapes[3] if b"conv" in content else shapes[6]
    np.savez(
        path.with_name("data.npz"),
        x=rng.standard_normal(shape).astype(np.float32),
        y=rng.integers(0, 3, 40),
    )
    short = [
        "--epochs",
        "1",
        "--finetune-epochs",
        "0",
        "--no-baseline",
        "--skip-label-check",
        "--target-compression",
        "2",
    ]
    return ["--data", str(path.with_name("data.npz")), *short, "--out", str(path.with_name("run"))]


def _find_problem(verb: str, ended: children.Ended, size: int) -> str | None:
    if ended.code is None:
        return f"not done after {PATIENCE * SECONDS[verb]} s"
    if ended.code not in EXITS[verb]:
        return f"exit {ended.code}"
    if "Traceback" in ended.said:
        return "a traceback"
    if ended.megabytes > MEGABYTES[verb] + 3 * size / 2**20:
        return f"{ended.megabytes} MB"
    lines = ended.said.rstrip("\n").split("\n")
    if any(len(line) > LONGEST for line in lines):
        return "a line too long to read"
    error_lines = [line for line in lines if line.startswith("error: ")]
    if ended.code in (3, 4) and not (
        error_lines and lines[-1].startswith("  ") and len(lines[-1]) > 2
    ):
        return "no lines of what is wrong and what to do"
    return None


def main() -> None:
    """Try the models with the commands whose turn it is."""
    parser = program.make_parser(__doc__, 1000)
    for verb, every in EVERY.items():
        parser.add_argument(f"--{verb}-every", type=int, default=every)
    program.run_program("models", parser, _try_cases)


def _try_cases(asked: program.FuzzRequest) -> Iterator[TriedCase]:
    every = {verb: getattr(asked.options, f"{verb}_every") for verb in EVERY}
    if asked.keep is not None:
        every = {verb: 1 for verb, turn in every.items() if turn}
    return try_cases(asked.seed, asked.numbers, every, asked.keep)


if __name__ == "__main__":
    main()
