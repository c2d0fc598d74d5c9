"""Measure rows of the study, one after the other, until the plan is done.

    python -m benchmarks.study --out FILE [--cifar FOLDER] [--cache FOLDER] [--commit ID]
        [--methods NAME ...] [--quick]

Rows are appended to FILE. Several processes may work on one FILE: each takes a row that no living
process works on. PLAN.md has the plan.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock

from benchmarks import datasets
from benchmarks.series import commit as current_commit
from benchmarks.study import schedule
from benchmarks.study.measure import measure
from ltp_pipeline.stages.report.environment import find_processor


def main() -> None:
    """Measure until no row is left."""
    options = parse_options()
    torch.set_num_threads(1)
    folders = {
        "fashion": options.data,
        "cifar": options.cifar,
        "words": datasets.DICTIONARIES,
    }
    about = {
        "commit": options.commit or current_commit(),
        "processor": find_processor(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    methods = options.methods or schedule.METHODS
    while (plan := claim_plan(options.out, methods)) is not None:
        row = {**plan, **measure(plan, folders, options.cache), **about}
        append_row(options.out, row)
        print(json.dumps(row), flush=True)
        if options.quick:
            break


def parse_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cache = Path(tempfile.gettempdir()) / "ltp-study"
    parser.add_argument("--out", type=Path, default=cache / "study.jsonl", help="file of the rows")
    parser.add_argument("--data", type=Path, default=datasets.FASHION_MNIST, help="Fashion-MNIST")
    parser.add_argument("--cifar", type=Path, default=datasets.CIFAR, help="CIFAR-10's PNG sheets")
    parser.add_argument("--cache", type=Path, default=cache, help="dense networks and data")
    parser.add_argument("--commit", help="commit of the code, if it runs without a repository")
    parser.add_argument("--methods", nargs="+", help="only these", choices=schedule.METHODS)
    parser.add_argument("--quick", action="store_true", help="one row")
    return parser.parse_args()


def claim_plan(out: Path, methods: Collection[str]) -> dict[str, Any] | None:
    """Return the next plan of these methods that has no row and no living process, and claim it."""
    claims = out.parent / f"{out.stem}-claims"
    claims.mkdir(parents=True, exist_ok=True)
    with FileLock(claims / "lock"):
        rows = read_rows(out)
        measured = {schedule.plan_key(row) for row in rows}
        for plan in schedule.iter_plans(rows):
            key = schedule.plan_key(plan)
            claim = claims / f"{abs(hash_text(key)):x}"
            if plan["method"] not in methods or key in measured or is_alive(claim):
                continue
            claim.write_text(str(os.getpid()))
            return plan
    return None


def read_rows(out: Path) -> list[dict[str, Any]]:
    """Return the rows measured so far."""
    if not out.is_file():
        return []
    return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]


def append_row(out: Path, row: dict[str, Any]) -> None:
    """Add a row to the file."""
    with FileLock(f"{out}.lock"), out.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def hash_text(text: str) -> int:
    """Return a number that is the same in every process."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def is_alive(claim: Path) -> bool:
    """Return True if the process that wrote a claim still runs."""
    if not claim.is_file():
        return False
    try:
        os.kill(int(claim.read_text()), 0)
    except (OSError, ValueError):
        return False
    return True


if __name__ == "__main__":
    main()
