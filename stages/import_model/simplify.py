"""onnxsim for graphs that cannot be walked as they are: native code, so in a process of its own with limits.

Run as a module it simplifies one file into another.
"""

import inspect
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from ltp_pipeline import exporters
from ltp_pipeline.errors import InputError
from ltp_pipeline.exporters.tensors import drop_inputs
from ltp_pipeline.stages.import_model.graphs import FLOAT_TYPES

SECONDS = 120
MEMORY = 4 << 30  # bytes, and ten times the model on top
# They merge or fuse tensors, after which a weight cannot be found again under the name it has in the file.
SKIPPED = ("eliminate_duplicate_initializer", "eliminate_common_subexpression", "fuse_qkv")
_MODULE = "ltp_pipeline.stages.import_model.simplify"
NOTES = {
    "auto": "the graph was simplified by onnxsim, because it could not be walked as it is",
    "always": "the graph was simplified by onnxsim, as asked",
}


class SimplifyFailed(Exception):
    """onnxsim failed, crashed, took too long or too much memory."""


def simplified(model: ModelProto, seconds: float = SECONDS, memory: int = MEMORY) -> ModelProto:
    """A simpler model that computes the same."""
    with tempfile.TemporaryDirectory(prefix="ltp-simplify-") as folder:
        source, target = Path(folder, "model.onnx"), Path(folder, "simple.onnx")
        exporters.save(model, source)
        size = sum(p.stat().st_size for p in Path(folder).iterdir())
        command = [sys.executable, "-P", "-m", _MODULE, str(source), str(target), str(memory + 10 * size)]
        try:
            done = subprocess.run(command, capture_output=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            raise SimplifyFailed(f"onnxsim took longer than {seconds:g} s") from None
        if done.returncode or not target.is_file():
            lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise SimplifyFailed(f"onnxsim failed: {lines[-1][:200] if lines else f'exit {done.returncode}'}")
        try:
            return exporters.load(target)
        except InputError as error:
            raise SimplifyFailed(f"onnxsim wrote a file that cannot be read: {error.what}") from None


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
    exporters.save(model, Path(target))


def _lower_settings(graph: GraphProto) -> None:
    """Turn initializers that are no weights into Constant nodes, the only ones that fold while weights do not."""
    settings = [t for t in graph.initializer if t.data_type not in FLOAT_TYPES or math.prod(t.dims) == 1]
    names = {t.name for t in settings}
    nodes = [helper.make_node("Constant", [], [t.name], value=t) for t in settings]
    nodes += [NodeProto.FromString(n.SerializeToString()) for n in graph.node]
    kept = [t for t in graph.initializer if t.name not in names]
    kept = [TensorProto.FromString(t.SerializeToString()) for t in kept]
    drop_inputs(graph, names)
    del graph.node[:]
    del graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend(kept)


if __name__ == "__main__":
    _child(*sys.argv[1:])
