"""Simplify graphs with onnxsim, in a child process with limits.

onnxsim folds constants and removes what the outputs do not need, so that some graphs that cannot
be executed as they are become executable. It is native code that has crashed and hung on damaged
files, so it runs in a child process; the model goes there and back as files. Weights must keep
the names that they have in the file, so rewrites that merge or fuse tensors are switched off.
"""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from onnx import GraphProto, helper

from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.edit import drop_initializers, drop_inputs, set_nodes
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.storage import read_model, write_model
from ltp_pipeline.graph.tensors import (
    FLOAT_TYPES,
    MAX_BYTES,
    count_elements,
    get_byte_size,
    iter_tensors,
)
from ltp_pipeline.system.child_process import CallFailed, ChildCrashed, call_once
from ltp_pipeline.system.files import external_data_path
from ltp_pipeline.system.scratch import temporary_folder

MAX_SECONDS = 120
MAX_MEMORY = 4 << 30  # bytes, in addition to ten times the size of the model
NOTES = {
    "auto": "the graph was simplified by onnxsim, because the original graph could not be executed",
    "always": "the graph was simplified by onnxsim, as requested",
}
# Rewrites that merge or fuse tensors, which are then not in the graph under their names any more.
SKIPPED_REWRITES = (
    "eliminate_duplicate_initializer",
    "eliminate_common_subexpression",
    "fuse_qkv",
)
_GRAPH_MARGIN = 1 << 24  # bytes left for the graph in a file of the largest size
_FUNCTION = "ltp_pipeline.graph.rewrites.simplify:simplify_file"


class SimplifyFailed(Exception):
    """onnxsim failed, crashed, or took too much time or memory."""


def simplify_model(
    model: OnnxModel, max_seconds: float = MAX_SECONDS, max_memory: int = MAX_MEMORY
) -> OnnxModel:
    """Return a simpler model that computes the same outputs.

    Args:
        model: The model; it is not changed.
        max_seconds: Time limit of the child process.
        max_memory: Memory limit of the child process in bytes, in addition to ten times the
            size of the model.

    Raises:
        SimplifyFailed: If onnxsim fails, crashes, exceeds a limit or writes an unreadable file.
    """
    with temporary_folder("simplify") as folder:
        source = folder / "model.onnx"
        target = folder / "simple.onnx"
        write_model(model, source)
        size = sum(path.stat().st_size for path in folder.iterdir())
        try:
            call_once(
                _FUNCTION,
                str(source),
                str(target),
                seconds=max_seconds,
                max_memory=max_memory + 10 * size,
            )
            return read_model(target)
        except ChildCrashed as error:
            raise SimplifyFailed(f"onnxsim {error}") from None
        except CallFailed as error:
            raise SimplifyFailed(f"onnxsim failed: {error}") from None
        except InputError as error:
            message = f"onnxsim wrote a file that cannot be read: {error.message}"
            raise SimplifyFailed(message) from None


def simplify_file(source: str, target: str) -> None:
    """Simplify one ONNX file into another; runs in the child process."""
    import onnx
    import onnxsim

    model = onnx.load(source)
    _move_settings_to_nodes(model.graph)
    model, _ = onnxsim.simplify(model, **_supported_options(onnxsim.simplify))
    is_large = sum(map(get_byte_size, iter_tensors(model))) > MAX_BYTES - _GRAPH_MARGIN
    data = external_data_path(Path(target)).name
    onnx.save(model, target, save_as_external_data=is_large, location=data)


def _supported_options(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the options for onnxsim that its installed version has."""
    options = {
        "skip_fuse_bn": True,
        "skipped_optimizers": list(SKIPPED_REWRITES),
        "initializers_as_constants": False,  # weights stay weights, under their own names
        "certify": False,
    }
    parameters = inspect.signature(function).parameters
    return {name: value for name, value in options.items() if name in parameters}


def _move_settings_to_nodes(graph: GraphProto) -> None:
    """Turn initializers that are not weights into Constant nodes.

    Only Constant nodes are folded when onnxsim is told to leave initializers alone.
    """
    names = set()
    constants = []
    for tensor in graph.initializer:
        if tensor.data_type not in FLOAT_TYPES or count_elements(tensor) == 1:
            names.add(tensor.name)
            constants.append(helper.make_node("Constant", [], [tensor.name], value=tensor))
    set_nodes(graph, [*constants, *graph.node])
    drop_initializers(graph, names)
    drop_inputs(graph, names)
