"""onnxsim for graphs that cannot be walked as they are: native code, so in a process of its own with limits.

Run as a module it simplifies one file into another.
"""

import errno
import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from onnx import GraphProto, helper

from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.edit import drop_inputs, set_initializers, set_nodes
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.storage import read, write
from ltp_pipeline.graph.tensors import FLOAT_TYPES, LARGEST, byte_size, elements, iter_tensors
from ltp_pipeline.system.scratch import is_full, scratch_folder

SECONDS = 120
MEMORY = 4 << 30  # bytes, and ten times the model on top
_MARGIN = 1 << 24  # bytes left for the graph in a file of the largest size
# They merge or fuse tensors, after which a weight cannot be found again under the name it has in the file.
SKIPPED = ("eliminate_duplicate_initializer", "eliminate_common_subexpression", "fuse_qkv")
_FULL = 75  # exit code of the process where the file could not be written for want of space
_MODULE = "ltp_pipeline.graph.rewrites.simplify"
NOTES = {
    "auto": "the graph was simplified by onnxsim, because it could not be walked as it is",
    "always": "the graph was simplified by onnxsim, as asked",
}


class SimplifyFailed(Exception):
    """onnxsim failed, crashed, took too long or too much memory."""


def simplified(model: OnnxModel, seconds: float = SECONDS, memory: int = MEMORY) -> OnnxModel:
    """A simpler model that computes the same."""
    with scratch_folder("simplify") as folder:
        source, target = folder / "model.onnx", folder / "simple.onnx"
        write(model, source)
        size = sum(p.stat().st_size for p in folder.iterdir())
        command = [
            sys.executable,
            "-P",
            "-m",
            _MODULE,
            str(source),
            str(target),
            str(memory + 10 * size),
        ]
        try:
            done = subprocess.run(command, capture_output=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            raise SimplifyFailed(f"onnxsim took longer than {seconds:g} s") from None
        if done.returncode == _FULL:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        if done.returncode or not target.is_file():
            lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise SimplifyFailed(
                f"onnxsim failed: {lines[-1][:200] if lines else f'exit {done.returncode}'}"
            )
        try:
            return read(target)
        except InputError as error:
            raise SimplifyFailed(
                f"onnxsim wrote a file that cannot be read: {error.message}"
            ) from None


def _limit_memory(size: int) -> None:
    with suppress(ImportError, ValueError, OSError):  # not every system has limits
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (size, size))


def _options(function: Callable[..., Any]) -> dict[str, Any]:
    """What this version of onnxsim understands of what we want."""
    wanted = {
        "skip_fuse_bn": True,
        "skipped_optimizers": list(SKIPPED),
        "initializers_as_constants": False,  # weights stay weights, under their own names
        "certify": False,
    }
    known = inspect.signature(function).parameters
    return {name: value for name, value in wanted.items() if name in known}


def _child(source: str, target: str, memory: str) -> None:
    _limit_memory(int(memory))
    import onnx
    import onnxsim

    model = onnx.load(source)
    _lower_settings(model.graph)
    model, _ = onnxsim.simplify(model, **_options(onnxsim.simplify))
    large = sum(map(byte_size, iter_tensors(model))) > LARGEST - _MARGIN
    onnx.save(model, target, save_as_external_data=large, location=f"{Path(target).name}.data")


def _lower_settings(graph: GraphProto) -> None:
    """Turn initializers that are no weights into Constant nodes, the only ones that fold while weights do not."""
    settings = [t for t in graph.initializer if t.data_type not in FLOAT_TYPES or elements(t) == 1]
    names = {t.name for t in settings}
    set_nodes(
        graph,
        [*(helper.make_node("Constant", [], [t.name], value=t) for t in settings), *graph.node],
    )
    set_initializers(graph, [t for t in graph.initializer if t.name not in names])
    drop_inputs(graph, names)


if __name__ == "__main__":
    try:
        _child(*sys.argv[1:])
    except OSError as failure:
        sys.exit(_FULL if is_full(failure) else str(failure))
