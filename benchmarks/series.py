"""A long series of measurements: one thread a process, every row written at once, going on where it stopped."""

import json
import multiprocessing
import platform
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch

from ltp_pipeline.stages.report.environment import find_processor
from ltp_pipeline.system.files import write_json

# Modules that make the page of results: rows do not depend on them.
WORDS = ("*_facts", "results_page", "plots", "drawing", "rows")

Plan = dict[str, Any]
Row = dict[str, Any]
Measure = Callable[[Plan], Mapping[str, Any]]


def run(
    plans: Sequence[Plan],
    measure: Measure,
    out: Path | None,
    about: Mapping[str, Any],
    workers: int = 1,
) -> list[Row]:
    """Rows of all plans; those that the file `out` has are not measured again.

    A row is its plan, what was measured, the seconds it took, the commit of the code and the
    processor.
    """
    known = read(out)
    rows = {_key(plan): row for plan in plans for row in known if plan.items() <= row.items()}
    left = [plan for plan in plans if _key(plan) not in rows]
    where = {"commit": commit(), "processor": find_processor()}
    others = [row for row in known if not any(row is had for had in rows.values())]
    for plan, found in _measured(left, measure, workers):
        rows[_key(plan)] = {**plan, **found, **where}
        print(json.dumps(rows[_key(plan)]), flush=True)
        if out is not None:
            ordered = [rows[_key(p)] for p in plans if _key(p) in rows]
            write_json(out, {**about, **versions(), "rows": [*others, *ordered]})
    return [rows[_key(plan)] for plan in plans]


def read(path: Path | None) -> list[Row]:
    """Rows that were measured before."""
    if path is None or not path.is_file():
        return []
    return list(json.loads(path.read_text(encoding="utf-8"))["rows"])


def _measured(plans: Sequence[Plan], measure: Measure, workers: int) -> Any:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        workers, mp_context=context, initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:
        at_work = {pool.submit(_timed, measure, plan): plan for plan in plans}
        for done in as_completed(at_work):
            yield at_work[done], done.result()


def _timed(measure: Measure, plan: Plan) -> dict[str, Any]:
    begun = time.monotonic()
    return {**measure(plan), "seconds": round(time.monotonic() - begun, 1)}


def _key(plan: Plan) -> str:
    return json.dumps(plan, sort_keys=True)


def commit() -> str:
    """The last commit that changed the code that measures, not its words; "changed" where files differ from it."""
    root = Path(__file__).resolve().parents[1]
    words = (f":!benchmarks/{name}.py" for name in WORDS)
    code = ("--", "pipeline", "stages", "exporters", "benchmarks/*.py", *words)
    changed = _git(root, "status", "--porcelain", "--untracked-files=no", *code)
    return (
        _git(root, "log", "-1", "--format=%h", "--abbrev=9", *code) or "unknown"
    ) + ", changed" * bool(changed)


def _git(root: Path, *words: str) -> str:
    found = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)  # noqa: S607
    return found.stdout.strip()


def versions() -> dict[str, Any]:
    """Of what the rows depend on."""
    import onnxruntime

    found = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "onnxruntime": onnxruntime.__version__,
    }
    return {"machine": f"{find_processor()}, one thread a process", "versions": found}
