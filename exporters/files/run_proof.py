"""What onnxruntime computes from a file: proof that an encoding changes no output and is gone after loading."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from ltp_pipeline.errors import ExportFailed, summarize_error
from ltp_pipeline.exporters.encodings import ENCODINGS
from ltp_pipeline.exporters.encodings.packed_graph import PREFIX
from ltp_pipeline.exporters.files.read_back import EXPORT_AGAIN
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.storage import write_model
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.system.scratch import scratch_folder

PROVIDER = "CPUExecutionProvider"
_OPTIMISED = "optimised.onnx"


def run_file(
    path: Path,
    feeds: Mapping[str, Array],
    optimized_path: Path | None = None,
    library: Path | None = None,
    optimization: str = "ORT_ENABLE_BASIC",
) -> list[Array]:
    """Every array of the outputs, computed on one thread, with basic optimisation unless said.

    `optimised` is where to write the graph that is left; custom operators are those of a `library`.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, optimization)
    if optimized_path is not None:
        options.optimized_model_filepath = str(optimized_path)
        # Weights go to a second file that nobody reads, also those that one file could not hold.
        options.add_session_config_entry(
            "session.optimized_model_external_initializers_file_name", "weights.bin"
        )
    session = open_session(path, library, options)
    try:
        found = [array for value in session.run(None, dict(feeds)) for array in _iter_arrays(value)]
    except Exception as error:  # noqa: BLE001 (onnxruntime's errors have no common root)
        raise ExportFailed(
            f"onnxruntime cannot run {path.name}: {summarize_error(error)}", EXPORT_AGAIN
        ) from None
    return found


def open_session(path: Path, library: Path | None = None, options: Any = None) -> Any:
    """A session on one thread, fully optimised unless the options say otherwise."""
    import onnxruntime

    options = options or onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1  # sums in another order would have other last bits
    try:
        if library is not None:
            options.register_custom_ops_library(str(library))
        return onnxruntime.InferenceSession(str(path), options, providers=[PROVIDER])
    except Exception as error:  # noqa: BLE001 (onnxruntime's errors have no common root)
        raise ExportFailed(
            f"onnxruntime cannot load {path.name}: {summarize_error(error)}", EXPORT_AGAIN
        ) from None


def _iter_arrays(value: Any) -> Iterator[Array]:
    """The arrays of an output, which may be a sequence or a map; an optional output may have none."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, Mapping):
        yield from (np.array(list(part)) for part in (value.keys(), value.values()))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _iter_arrays(part)


def run_dense_model(
    model: OnnxModel, weight_names: Collection[str], feeds: Mapping[str, Array]
) -> list[Array]:
    """What a dense model computes from its file: what files of any encoding must compute too."""
    with scratch_folder("proof") as folder:
        path = folder / "dense.onnx"
        write_model(ENCODINGS["dense"].encode(model, weight_names), path)
        return run_file(path, feeds)


def verify_outputs(path: Path, feeds: Mapping[str, Array], expected: Sequence[Array]) -> None:
    """Raise ExportFailed unless a file gives these outputs bit for bit and no decoding node outlives loading."""
    with scratch_folder("proof") as folder:
        optimised = folder / _OPTIMISED
        found = run_file(path, feeds, optimised)
        graph = onnx.load(optimised, load_external_data=False).graph
    if len(found) != len(expected) or not all(map(is_bit_identical, found, expected)):
        raise ExportFailed(
            f"{path.name} gives other outputs in onnxruntime than the dense model", EXPORT_AGAIN
        )
    # onnxruntime keeps equal constants once, so a node of the model itself may come to read one of the decoder's;
    # what a decoder's node computed is read by nodes of the decoder alone.
    computed = {
        name for n in onnx.load(path, load_external_data=False).graph.node for name in n.output
    }
    decoding = {name for name in computed if name.startswith(PREFIX)}
    left = [n for n in graph.node if decoding.intersection((*n.input, *n.output))]
    if left:
        what = f"{path.name} would decode its weights at every run: {len(left)} nodes are not folded at load"
        raise ExportFailed(what, "export it as sparse or dense")


def is_bit_identical(a: Array, b: Array) -> bool:
    """Whether two outputs are the same, bit for bit."""
    alike = a.dtype == b.dtype and a.shape == b.shape
    return alike and (bool((a == b).all()) if a.dtype == object else a.tobytes() == b.tobytes())
