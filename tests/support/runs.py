"""The finished run that tests share: the embedded example, pruned once, copied by each test that needs it."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

import ltp_pipeline
from ltp_pipeline.demo import copy_example
from ltp_pipeline.graph.rewrites import simplify
from ltp_pipeline.run_directory.manifest import add_hash
from ltp_pipeline.run_directory.names import MANIFEST
from ltp_pipeline.stages.report import svg
from ltp_pipeline.system.child_process import CallFailed

TRAIN = {"epochs": 2, "finetune_epochs": 1}
FORMATS = ("sparse", "packed", "dense")
MAX_DROP = 0.5
# Those of the shared run but for --export
OPTIONS = ("--epochs", 2, "--finetune-epochs", 1, "--max-drop", MAX_DROP, "--baseline", "quick")


def prune_example(folder: Path, **sections: dict[str, Any]) -> ltp_pipeline.RunResult:
    """Prune the example in a folder into `run`; a copy of the shared run is not trained again."""
    settings = {
        "train": TRAIN,
        "export": {"formats": FORMATS},
        "baseline": {"mode": "quick"},
        "gates": {"max_drop": MAX_DROP},
        **sections,
    }
    return ltp_pipeline.run(folder / "model.onnx", out=folder / "run", **settings)


def shared_run(root: Path) -> Path:
    """Return the folder of the example with its run, which the first worker makes; read-only."""
    folder = root / "shared"
    with FileLock(root / "shared.lock"):
        if not (root / "shared.done").exists():
            shutil.rmtree(folder, ignore_errors=True)
            copy_example(folder)
            prune_example(folder)
            (root / "shared.done").touch()
    return folder


def copy_unwritten_run(shared: Path, folder: Path) -> Path:
    """Copy the shared run and mark its files and report as unwritten, so that nothing is left to train."""
    shutil.copytree(shared, folder)
    with changed_manifest(folder / "run") as content:
        content["proof"] = None
    return folder


@contextmanager
def changed_manifest(run: Path) -> Iterator[dict[str, Any]]:
    """Yield the manifest of a run for changes; write it with its new hash."""
    content = json.loads((run / MANIFEST).read_text())
    yield content
    (run / MANIFEST).write_text(json.dumps(add_hash(content)))


def copy_rewritten_run(shared: Path, folder: Path, **sections: dict[str, Any]) -> Path:
    """Copy the shared run and finish it with other files, baseline or gates."""
    with skip_slow_parts():
        prune_example(copy_unwritten_run(shared, folder), **sections)
    return folder


def common_root(factory: pytest.TempPathFactory) -> Path:
    """Return the temporary folder that all workers of pytest-xdist share."""
    own = factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


def list_files(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the size and time of change of every file by name."""
    return {
        str(path.relative_to(folder)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


@contextmanager
def skip_slow_parts() -> Iterator[None]:
    """Skip plots in reports, and run onnxsim in this process; both have their own tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(svg, "draw_svg", lambda name, *_: f'<svg id="{name}"></svg>')
        patch.setattr(simplify, "call_once", _call_here)
        yield


def _call_here(_: str, *arguments: str, **limits: float) -> None:
    """Simplify a file in this process."""
    try:
        simplify.simplify_file(*arguments)
    except Exception as error:  # noqa: BLE001 - a child process fails then, whatever it is
        raise CallFailed(str(error)) from None
