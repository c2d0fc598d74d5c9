"""Measure a list of plans in processes of one thread, and resume from a file of rows."""

import json
import multiprocessing
import platform
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch

from ltp_pipeline.stages.report.environment import find_processor
from ltp_pipeline.system.files import write_json

# Modules that only write the page of results, so that rows do not depend on them.
PAGE_MODULES = ("*_facts", "results_page", "plots", "drawing", "rows")

Plan = dict[str, Any]
Row = dict[str, Any]
Measure = Callable[[Plan], Mapping[str, Any]]


def run_plans(
    plans: Sequence[Plan],
    measure: Measure,
    out: Path | None,
    about: Mapping[str, Any],
    workers: int = 1,
) -> list[Row]:
    """Return the rows of all plans.

    A row is the plan, its measurements, the seconds they took, the commit of the code and the
    processor. Every row is written as soon as it is measured.

    Args:
        plans: Settings of each row.
        measure: Function that returns the measurements of a plan.
        out: Results file; plans whose rows it already has are not measured again.
        about: Further entries of the results file.
        workers: Number of processes.
    """
    old_rows = read_rows(out)
    rows = {
        _plan_key(plan): row for plan in plans for row in old_rows if plan.items() <= row.items()
    }
    missing = [plan for plan in plans if _plan_key(plan) not in rows]
    origin = {"commit": commit(), "processor": find_processor()}
    others = [row for row in old_rows if not any(row is reused for reused in rows.values())]
    for plan, measurements in _measure_plans(missing, measure, workers):
        rows[_plan_key(plan)] = {**plan, **measurements, **origin}
        print(json.dumps(rows[_plan_key(plan)]), flush=True)
        if out is not None:
            ordered = [rows[_plan_key(p)] for p in plans if _plan_key(p) in rows]
            write_json(out, {**about, **describe_machine(), "rows": [*others, *ordered]})
    return [rows[_plan_key(plan)] for plan in plans]


def read_rows(path: Path | None) -> list[Row]:
    """Return the rows of a results file; none if it does not exist."""
    if path is None or not path.is_file():
        return []
    return list(json.loads(path.read_text(encoding="utf-8"))["rows"])


def _measure_plans(
    plans: Sequence[Plan], measure: Measure, workers: int
) -> Iterator[tuple[Plan, dict[str, Any]]]:
    """Yield each plan with its measurements, in the order in which they finish."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        workers, mp_context=context, initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:
        running = {pool.submit(_time_measurement, measure, plan): plan for plan in plans}
        for future in as_completed(running):
            yield running[future], future.result()


def _time_measurement(measure: Measure, plan: Plan) -> dict[str, Any]:
    """Return the measurements of a plan and the seconds they took."""
    begin = time.monotonic()
    return {**measure(plan), "seconds": round(time.monotonic() - begin, 1)}


def _plan_key(plan: Plan) -> str:
    """Return a text that identifies a plan."""
    return json.dumps(plan, sort_keys=True)


def commit() -> str:
    """Return the last commit that changed the code on which rows depend.

    Modules that only write the page do not count. ", changed" follows if files differ from the
    commit.
    """
    excluded = [f":!benchmarks/{name}.py" for name in PAGE_MODULES]
    code = ("--", "pipeline", "stages", "exporters", "benchmarks/*.py", *excluded)
    last = _run_git("log", "-1", "--format=%h", "--abbrev=9", *code) or "unknown"
    is_changed = bool(_run_git("status", "--porcelain", "--untracked-files=no", *code))
    return f"{last}, changed" if is_changed else last


def _run_git(*arguments: str) -> str:
    """Return what git prints about this tree; nothing if git fails."""
    command = ["git", *arguments]
    root = Path(__file__).resolve().parents[1]
    return subprocess.run(
        command, cwd=root, capture_output=True, text=True, check=False
    ).stdout.strip()


def describe_machine() -> dict[str, Any]:
    """Return the processor and the versions of packages on which rows depend."""
    import onnxruntime

    versions = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "onnxruntime": onnxruntime.__version__,
    }
    return {"machine": f"{find_processor()}, one thread a process", "versions": versions}
