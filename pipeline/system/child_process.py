"""onnxruntime in a process of its own: on a damaged graph its native code may stop the whole process, or never end.

The process is started when first needed, answers one request after the other, and ends with its parent. Run as a module
it is that process: requests and answers are lines of JSON, arrays travel in .npz files.
"""

import json
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ltp_pipeline.errors import first_line
from ltp_pipeline.system import memory, threads
from ltp_pipeline.system.arrays import Array

MODULE = "ltp_pipeline.system.child_process"
SECONDS = 300
LEVELS = {"NONE": "ORT_DISABLE_ALL", "BASIC": "ORT_ENABLE_BASIC", "ALL": "ORT_ENABLE_ALL"}

Level = Literal["NONE", "BASIC", "ALL"]


class WorkerDied(Exception):
    """onnxruntime crashed or did not finish."""


class LoadFailed(Exception):
    """onnxruntime refused the model."""


class RunFailed(Exception):
    """onnxruntime refused the inputs."""


FAILURES = (WorkerDied, LoadFailed, RunFailed)


class OrtProcess:
    """The other side of the pipe."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        command = [sys.executable, "-P", "-m", MODULE]
        pipes: dict[str, Any] = {
            "stdin": subprocess.PIPE,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.DEVNULL,
        }
        self.process = subprocess.Popen(command, **pipes)

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        assert self.process.stdin is not None  # noqa: S101 - both are pipes
        assert self.process.stdout is not None  # noqa: S101
        late = threading.Event()

        def stop() -> None:
            late.set()
            self.process.kill()

        timer = threading.Timer(seconds, stop)
        timer.start()
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except OSError:
            line = b""
        finally:
            timer.cancel()
        if not line:
            self.process.kill()
            self.process.wait()
            raise WorkerDied(f"did not finish in {seconds:g} s" if late.is_set() else "crashed")
        try:
            answer: dict[str, Any] = json.loads(line)
        except ValueError:  # ended in the middle of a line
            self.process.kill()
            self.process.wait()
            raise WorkerDied("crashed") from None
        return answer

    @property
    def usable(self) -> bool:
        """Whether it lives and belongs to this process rather than to one we were forked from."""
        return self.owner == os.getpid() and self.process.poll() is None


_worker: OrtProcess | None = None


def run(
    model: Path, feeds: Mapping[str, Array], level: Level = "BASIC", folder: Path | None = None
) -> list[Array | list[Array] | None]:
    """Outputs of a model for these inputs: arrays, lists of them, or None for what is not made of numbers.

    `level` is that of onnxruntime's optimisation. Arrays travel through `folder`, by default that of the model.
    """
    global _worker
    if _worker is None or not _worker.usable:
        _worker = OrtProcess()
    folder = folder or model.parent
    _save(folder / "inputs.npz", {f"input_{i}": feed for i, feed in enumerate(feeds.values())})
    request = {"model": str(model), "names": list(feeds), "level": level, "folder": str(folder)}
    answer = _worker.ask({**request, "threads": threads.current()}, SECONDS)
    if "write" in answer:
        raise OSError(answer["write"], os.strerror(answer["write"]))
    if "load" in answer:
        raise LoadFailed(answer["load"])
    if "run" in answer:
        raise RunFailed(answer["run"])
    try:
        with np.load(folder / "outputs.npz") as stored:
            return [_unpacked(stored, i, count) for i, count in enumerate(answer["outputs"])]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise WorkerDied(f"gave outputs that cannot be read ({type(error).__name__})") from None


def _save(path: Path, arrays: dict[str, Array]) -> None:
    """Write arrays under names of our own: a tensor's name may be anything, also a parameter of savez."""
    np.savez(path, allow_pickle=False, **arrays)


def _unpacked(stored: Any, index: int, count: int | None) -> Array | list[Array] | None:
    if count is None:
        return None
    if count < 0:
        array: Array = stored[f"{index}"]
        return array
    return [stored[f"{index}_{j}"] for j in range(count)]


def _answer(request: dict[str, Any], sessions: dict[tuple[str, str], Any]) -> dict[str, Any]:
    import onnxruntime

    path, level = request["model"], request["level"]
    try:
        if (path, level) not in sessions:
            sessions.clear()
            options = onnxruntime.SessionOptions()
            options.log_severity_level = 4
            options.intra_op_num_threads = request["threads"]
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
            options.graph_optimization_level = getattr(
                onnxruntime.GraphOptimizationLevel, LEVELS[level]
            )
            made = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
            sessions[path, level] = made
    except Exception as error:  # noqa: BLE001 - onnxruntime's errors have no common root
        return {"load": first_line(error).replace(path, "the file")}
    folder = Path(request["folder"])
    try:
        with np.load(folder / "inputs.npz") as stored:
            feeds = {name: stored[f"input_{i}"] for i, name in enumerate(request["names"])}
        outputs = sessions[path, level].run(None, feeds)
    except Exception as error:  # noqa: BLE001
        return {"run": first_line(error)}
    arrays: dict[str, Array] = {}
    counts: list[int | None] = []
    for i, output in enumerate(outputs):
        parts = output if isinstance(output, list) else [output]
        if not all(isinstance(p, np.ndarray) and p.dtype != object for p in parts):
            counts.append(None)
        else:
            counts.append(len(parts) if isinstance(output, list) else -1)
            arrays.update(
                (f"{i}_{j}" if isinstance(output, list) else f"{i}", p) for j, p in enumerate(parts)
            )
    try:
        _save(folder / "outputs.npz", arrays)
    except OSError as error:
        return {"write": error.errno}
    return {"outputs": counts}


def _serve() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # native code prints where it likes; that is no answer
    sessions: dict[tuple[str, str], Any] = {}
    for line in sys.stdin:
        with memory.limited():
            answer = _answer(json.loads(line), sessions)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    _serve()
