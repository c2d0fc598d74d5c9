"""Run ONNX files with onnxruntime in a child process.

A damaged graph can crash onnxruntime's native code or keep it busy for ever, so foreign files run
in a child process first. The child is started when it is first needed and serves all later calls
of this process; it keeps the last session. Inputs and outputs travel as .npz files in a folder.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ltp_pipeline.system import threads
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.system.child_process import CallFailed, ChildCrashed, ChildProcess

OptimizationLevel = Literal["NONE", "BASIC", "ALL"]
Output = Array | list[Array] | None  # None stands for an output that is not made of numbers

_MODULE = "ltp_pipeline.stages.import_model.onnxruntime_child"
_LEVELS = {"NONE": "ORT_DISABLE_ALL", "BASIC": "ORT_ENABLE_BASIC", "ALL": "ORT_ENABLE_ALL"}
_INPUTS = "inputs.npz"
_OUTPUTS = "outputs.npz"

_child: ChildProcess | None = None
_session: tuple[tuple[str, str], Any] | None = None  # in the child: path and level, session


class LoadFailed(Exception):
    """onnxruntime rejected the model."""


class RunFailed(Exception):
    """onnxruntime rejected the inputs, or failed while it computed."""


FAILURES = (ChildCrashed, LoadFailed, RunFailed)


def run_model(
    path: Path,
    feeds: Mapping[str, Array],
    level: OptimizationLevel = "BASIC",
    folder: Path | None = None,
) -> list[Output]:
    """Run an ONNX file in the child process.

    Args:
        path: The file.
        feeds: Inputs by name.
        level: How far onnxruntime optimizes the graph.
        folder: Folder through which inputs and outputs travel; by default that of the file.

    Returns:
        The outputs in the order of the graph.

    Raises:
        ChildCrashed: If onnxruntime crashed or did not finish.
        LoadFailed: If onnxruntime does not load the file.
        RunFailed: If onnxruntime loads the file but does not run it.
    """
    global _child
    if _child is None or not _child.is_usable:
        _child = ChildProcess()
    folder = folder or path.parent
    # By position, because the name of an input may be a parameter of np.savez.
    np.savez(folder / _INPUTS, *feeds.values())
    try:
        _child.call(f"{_MODULE}:load_session", str(path), level, threads.current_threads())
    except CallFailed as error:
        raise LoadFailed(str(error).replace(str(path), "the file")) from None
    try:
        counts = _child.call(f"{_MODULE}:run_session", list(feeds), str(folder))
    except CallFailed as error:
        raise RunFailed(str(error)) from None
    try:
        with np.load(folder / _OUTPUTS) as stored:
            arrays = iter(stored.values())
            return [_take_output(arrays, count) for count in counts]
    except (OSError, ValueError, StopIteration, EOFError, zipfile.BadZipFile) as error:
        reason = f"gave outputs that cannot be read ({type(error).__name__})"
        raise ChildCrashed(reason) from None


def load_session(path: str, level: OptimizationLevel, num_threads: int) -> None:
    """Load a file for the calls of `run_session` that follow; runs in the child process."""
    import onnxruntime

    global _session
    if _session is not None and _session[0] == (path, level):
        return
    _session = None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = num_threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, _LEVELS[level])
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    _session = (path, level), session


def run_session(names: Sequence[str], folder: str) -> list[int | None]:
    """Run the loaded session on the stored inputs and store the outputs; runs in the child process.

    Returns:
        For each output the number of arrays in it: -1 for a plain array, the length of a list,
        None for an output that is not made of numbers and not stored.
    """
    assert _session is not None  # noqa: S101 - `load_session` is called first
    with np.load(Path(folder, _INPUTS)) as stored:
        feeds = dict(zip(names, stored.values(), strict=True))
    arrays: list[Array] = []
    counts: list[int | None] = []
    for output in _session[1].run(None, feeds):
        parts = [output]
        count = -1
        if isinstance(output, list):
            parts = output
            count = len(parts)
        if not all(isinstance(part, np.ndarray) and part.dtype != object for part in parts):
            counts.append(None)
            continue
        counts.append(count)
        arrays += parts
    np.savez(Path(folder, _OUTPUTS), *arrays)
    return counts


def _take_output(arrays: Iterator[Array], count: int | None) -> Output:
    if count is None:
        return None
    if count < 0:
        return next(arrays)
    return [next(arrays) for _ in range(count)]
