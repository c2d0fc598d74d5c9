"""A run that takes a second, also stopped at several places."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# What is heavy is imported here, so that children have it
import numpy as np
import onnx
import onnxruntime  # noqa: F401
import safetensors.torch  # noqa: F401
import torch._dynamo  # noqa: F401 - which torch's optimizers import

import ltp_pipeline.api
import ltp_pipeline.runner.run  # noqa: F401
from ltp_pipeline.cli import app
from ltp_pipeline.stages import export
from ltp_pipeline.stages.import_model import parity
from ltp_pipeline.stages.report import svg
from ltp_pipeline.stages.train import loop
from tests.support.models import mlp

SECONDS = 600.0  # by the clock, on a machine that others use too
MEGABYTES = 1500
STEPS = 3  # of an epoch
# After which step, or in which part; None: it has finished
STOPS = {
    "learning": STEPS + 1,
    "fine-tuning": 2 * STEPS + 2,
    "baseline": 3 * STEPS + 2,
    "export": export,
    "over": None,
}
TRAIN = (
    "--epochs",
    "2",
    "--finetune-epochs",
    "1",
    "--batch-size",
    "16",
    "--target-compression",
    "2",
    "--skip-label-check",
)
COMMAND = ("run", "model.onnx", "--data", "data.npz", "--out", "run", *TRAIN, "--export", "sparse")
COMMAND += ("--baseline", "quick")


def write_inputs(folder: Path, seed: int = 0) -> None:
    """Write model and data."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(mlp(seed=seed), folder / "model.onnx")
    samples = rng.normal(size=(64, 6)).astype(np.float32)
    np.savez(folder / "data.npz", x=samples, y=(samples.sum(1) > 0).astype(np.int64))


def run_command(folder: Path, *more: str) -> int:
    """Call the program in a folder as a shell would; runs in a child."""
    os.chdir(folder)
    # Both take longer than the rest: pictures, and onnxruntime in a process of its own
    svg.draw_svg = lambda name, *_: f'<svg id="{name}"></svg>'
    parity.check_parity = lambda *_: (0.0, None)
    sys.argv = ["ltp-pipeline", *COMMAND, *more]
    sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115 - pytest had them
    try:
        app.main()
    except SystemExit as done:
        return int(done.code or 0)
    return 0


def stop_run(folder: Path, where: str) -> int:
    """Call the program and interrupt it at one of `STOPS`."""
    at: Any = STOPS[where]
    if at is export:
        export.run = _interrupt
    elif at is not None:
        loop._train_step = _stop_after(at, loop._train_step)
    return run_command(folder)


def read_files(run: Path, *folders: str) -> dict[str, bytes]:
    """Return the files that must be bit-identical: every model, and all in these folders."""
    files = {
        *run.glob("*.onnx"),
        *run.glob("baseline/*.onnx"),
        *(f for name in folders for f in run.glob(f"{name}/*")),
    }
    return {
        path.relative_to(run).as_posix(): path.read_bytes()
        for path in sorted(files)
        if path.suffix != ".txt"
    }


def _interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def _stop_after(count: int, step: Callable[..., None]) -> Callable[..., None]:
    def counted(*arguments: Any) -> None:
        nonlocal count
        count -= 1
        if not count:
            raise KeyboardInterrupt
        step(*arguments)

    return counted
