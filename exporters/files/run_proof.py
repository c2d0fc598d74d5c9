"""Verify exported files in onnxruntime: outputs are bit-identical and decoding is folded at load.

Every session that checks an export is opened here.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto

from ltp_pipeline.errors import ExportFailed, summarize_error
from ltp_pipeline.exporters.encodings import ENCODINGS
from ltp_pipeline.exporters.encodings.packed_graph import PREFIX
from ltp_pipeline.exporters.files.read_back import EXPORT_AGAIN
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.storage import write_model
from ltp_pipeline.system import tolerance
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.system.scratch import temporary_folder

Feeds = Mapping[str, Array]  # inputs by name

PROVIDER = "CPUExecutionProvider"
ALL_OPTIMIZATIONS = "ORT_ENABLE_ALL"
EXTENDED_OPTIMIZATIONS = "ORT_ENABLE_EXTENDED"
BASIC_OPTIMIZATIONS = "ORT_ENABLE_BASIC"
NO_OPTIMIZATIONS = "ORT_DISABLE_ALL"


def open_session(
    path: Path,
    library: Path | None = None,
    optimization: str = ALL_OPTIMIZATIONS,
    optimized_path: Path | None = None,
    threads: int = 1,
    hint: str = EXPORT_AGAIN,
) -> Any:
    """Open a file in onnxruntime.

    Args:
        path: The file.
        library: Library of custom operators to register; None for none.
        optimization: Name of a GraphOptimizationLevel.
        optimized_path: Where onnxruntime writes the optimized graph; None to not write it.
        threads: Number of threads. On several, sums have another order and other last bits.
        hint: Hint of the error.

    Returns:
        An InferenceSession.

    Raises:
        ExportFailed: If onnxruntime cannot load the file.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, optimization)
    if optimized_path is not None:
        options.optimized_model_filepath = str(optimized_path)
        # Weights go to a second file that is never read, because one file may not hold them.
        options.add_session_config_entry(
            "session.optimized_model_external_initializers_file_name", "weights.bin"
        )
    try:
        if library is not None:
            options.register_custom_ops_library(str(library))
        return onnxruntime.InferenceSession(str(path), options, providers=[PROVIDER])
    except Exception as error:  # noqa: BLE001 (onnxruntime's errors have no common root)
        raise ExportFailed(
            f"onnxruntime cannot load {path.name}: {summarize_error(error)}", hint
        ) from None


def run_file(
    path: Path,
    feeds: Feeds,
    library: Path | None = None,
    optimization: str = BASIC_OPTIMIZATIONS,
    optimized_path: Path | None = None,
) -> list[Array]:
    """Return every array of a file's outputs, computed in a session of `open_session`.

    Raises:
        ExportFailed: If onnxruntime cannot load or run the file.
    """
    session = open_session(path, library, optimization, optimized_path)
    try:
        outputs = session.run(None, dict(feeds))
    except Exception as error:  # noqa: BLE001 (onnxruntime's errors have no common root)
        raise ExportFailed(
            f"onnxruntime cannot run {path.name}: {summarize_error(error)}", EXPORT_AGAIN
        ) from None
    return [array for output in outputs for array in _iter_arrays(output)]


def optimize_model(model: OnnxModel, optimization: str, hint: str = EXPORT_AGAIN) -> GraphProto:
    """Return the graph that onnxruntime makes of a model at load, without its weights.

    Raises:
        ExportFailed: If onnxruntime cannot load the model.
    """
    with temporary_folder("proof") as folder:
        path = folder / "model.onnx"
        optimized_path = folder / "optimized.onnx"
        write_model(model, path)
        open_session(path, optimization=optimization, optimized_path=optimized_path, hint=hint)
        return onnx.load(optimized_path, load_external_data=False).graph


def _iter_arrays(value: Any) -> Iterator[Array]:
    """Yield the arrays of an output: an array, a sequence, a map, or nothing if it is optional."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, Mapping):
        yield np.array(list(value.keys()))
        yield np.array(list(value.values()))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _iter_arrays(part)


def run_dense_model(model: OnnxModel, weight_names: Collection[str], feeds: Feeds) -> list[Array]:
    """Return the outputs of a dense model, which files of every encoding must reproduce."""
    with temporary_folder("proof") as folder:
        path = folder / "dense.onnx"
        write_model(ENCODINGS["dense"].encode(model, weight_names), path)
        return run_file(path, feeds)


def find_difference(
    model: OnnxModel,
    reference: OnnxModel,
    weight_names: Collection[str],
    feeds: Feeds,
    limit: float,
) -> float | None:
    """Return the difference of the first output that differs by more than `limit`, or None.

    Differences are relative to an output's largest value.
    """
    actual_outputs = run_dense_model(model, weight_names, feeds)
    expected_outputs = run_dense_model(reference, weight_names, feeds)
    for actual, expected in zip(actual_outputs, expected_outputs, strict=True):
        difference = tolerance.max_difference(actual, expected)
        if is_different(difference, limit):
            return difference.relative
    return None


def is_different(
    difference: tolerance.MaxDifference, limit: float, noise: Callable[[], float] = lambda: 0.0
) -> bool:
    """Return true if a difference exceeds a relative limit and the noise of onnxruntime."""
    agreement = tolerance.check_tolerance(difference, limit, noise)
    return agreement is tolerance.Agreement.DIFFERENT


def verify_outputs(path: Path, feeds: Feeds, expected: Sequence[Array]) -> None:
    """Raise ExportFailed unless a file reproduces outputs and its decoding is folded at load."""
    with temporary_folder("proof") as folder:
        optimized_path = folder / "optimized.onnx"
        actual = run_file(path, feeds, optimized_path=optimized_path)
        graph = onnx.load(optimized_path, load_external_data=False).graph
    if len(actual) != len(expected) or not all(map(is_bit_identical, actual, expected)):
        raise ExportFailed(
            f"{path.name} has other outputs in onnxruntime than the dense model", EXPORT_AGAIN
        )
    # onnxruntime merges equal constants, so that a node of the model may read a constant of the
    # decoder. Only nodes of the decoder read values that its nodes compute.
    decoded_names = set[str]()
    for node in onnx.load(path, load_external_data=False).graph.node:
        decoded_names.update(name for name in node.output if name.startswith(PREFIX))
    left = [n for n in graph.node if decoded_names.intersection((*n.input, *n.output))]
    if left:
        raise ExportFailed(
            f"{path.name} would decode its weights at every run:"
            f" onnxruntime does not fold {len(left)} nodes at load",
            "export it as sparse or dense",
        )


def is_bit_identical(a: Array, b: Array) -> bool:
    """Return true if two outputs have the same type, shape and bits."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype == object:
        return bool((a == b).all())
    return a.tobytes() == b.tobytes()
