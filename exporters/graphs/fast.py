"""The fast graph: the deploy graph with layers that have many zeros turned over to the library of sparse kernels.

The same file runs without the library as any other: each of its operators is a function of standard ones, too.
"""

import sys
import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

from ltp_pipeline.errors import ExportFailed, InputError, NotFaster
from ltp_pipeline.exporters.encodings import ENCODINGS
from ltp_pipeline.exporters.files.run_proof import open_session, run_file
from ltp_pipeline.exporters.graphs import deploy
from ltp_pipeline.exporters.graphs.graph import BuiltGraph, ExportGraph
from ltp_pipeline.exporters.int8.calibration import Calibration
from ltp_pipeline.exporters.sparse_ops import library
from ltp_pipeline.exporters.sparse_ops.cost_model import select_layers
from ltp_pipeline.exporters.sparse_ops.functions import DOMAIN
from ltp_pipeline.exporters.sparse_ops.replace import convert_to_sparse_ops
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.nodes import iter_nodes
from ltp_pipeline.graph.rewrites.flatten import flatten_model
from ltp_pipeline.graph.storage import write_model
from ltp_pipeline.graph.tensors import Weights
from ltp_pipeline.results.records import SparseKernelInfo
from ltp_pipeline.settings.file_names import FAST
from ltp_pipeline.settings.schema import ExportSettings
from ltp_pipeline.system import tolerance
from ltp_pipeline.system.hashing import sha256_file
from ltp_pipeline.system.scratch import temporary_folder
from ltp_pipeline.system.text import pluralize
from ltp_pipeline.system.timing import time_interleaved

TOLERANCE = 1e-5  # of an output's largest value: what sums in another order may change
MAX_RATIO = 0.95  # of the dense time; what is between that and 1 is within what timing can tell
TIMING_SECONDS = 0.5  # of timing at least
NAMED = 3  # of many reasons
# One thread computes: by its own time, what else the machine does counts little. On Windows that ticks every 16 ms.
TIMING_CLOCK = time.perf_counter if sys.platform == "win32" else time.thread_time
STEPS = "name the layers before nodes that round (QuantizeLinear, Round) in prune.exclude, or leave this graph out"
LEAVE = "for another machine, set export.accelerate_min_sparsity (`accelerate --accelerate-min-sparsity`) to a sparsity"


def build_graph(
    model: OnnxModel,
    weights: Weights,
    weight_names: Collection[str],
    feeds: Weights,
    calibration: Calibration | None = None,
    settings: ExportSettings | None = None,
) -> BuiltGraph:
    """The fast graph, proven on the kernels of this machine; NotFaster where they are not there, or gain nothing."""
    del calibration
    try:
        kernels_at = library.sparse_ops_library()
        path = library.query_instruction_sets(kernels_at).chosen
    except InputError as error:
        raise NotFaster(error.message, error.hint) from None
    smaller = deploy.build_graph(model, weights, weight_names, feeds)
    flat, _ = flatten_model(smaller.model)  # functions would hide layers
    sample = select_first_sample(model, feeds)
    accelerate_min_sparsity = settings.accelerate_min_sparsity if settings else None
    choice = select_layers(flat, weight_names, sample, path, accelerate_min_sparsity)
    if not choice.weight_names:
        raise NotFaster(f"no layer is worth turning over: {_format_reasons(choice.skipped)}", LEAVE)
    new, turned = convert_to_sparse_ops(flat, choice.weight_names)
    with temporary_folder("fast") as folder:
        fast, dense, given = (folder / name for name in ("fast.onnx", "deploy.onnx", "given.onnx"))
        for one, at in ((new, fast), (smaller.model, dense), (model, given)):
            write_model(ENCODINGS["dense"].encode(one, weight_names), at)
        _verify_outputs(fast, dense, feeds, kernels_at)
        ratio = (
            None
            if accelerate_min_sparsity is not None
            else _measure_ratio([fast, dense, given], sample, kernels_at, choice.skipped)
        )
    names = tuple(dict.fromkeys(one.weight_name for one in turned))
    how = SparseKernelInfo(path, sha256_file(kernels_at), names, choice.skipped, ratio)
    return BuiltGraph(
        new,
        smaller.weights,
        (*smaller.notes, _format_note(how)),
        sparse_kernels=how,
        dense_model=smaller.model,
    )


def explain_missing_library() -> str | None:
    """Why the sparse kernels cannot be used here, and what to do; None where they can."""
    try:
        library.query_instruction_sets(library.sparse_ops_library())
    except InputError as error:
        return f"{error.message}; {error.hint}"
    return None


def uses_sparse_ops(model: OnnxModel) -> bool:
    """Whether a model uses the sparse kernels."""
    return any(node.domain == DOMAIN for node in iter_nodes(model.graph))


def select_first_sample(model: OnnxModel, feeds: Weights) -> Weights:
    """The first of several samples, where the model takes one alone."""
    lengths = {array.shape[:1] for array in feeds.values()}
    if len(lengths) != 1 or lengths == {()}:
        return feeds
    fixed = {
        value.name
        for value in model.graph.input
        if value.type.tensor_type.shape.dim and value.type.tensor_type.shape.dim[0].dim_value > 0
    }
    return feeds if fixed & feeds.keys() else {name: array[:1] for name, array in feeds.items()}


def _verify_outputs(fast: Path, dense: Path, feeds: Weights, kernels_at: Path) -> None:
    """Hold what the sparse kernels compute against the dense model."""
    expected = run_file(dense, feeds)
    for nth, (ours, theirs) in enumerate(
        zip(run_file(fast, feeds, library=kernels_at), expected, strict=True)
    ):
        gap = tolerance.max_difference(ours, theirs)
        if (
            tolerance.check_tolerance(gap, TOLERANCE, lambda: 0.0)
            is not tolerance.Agreement.DIFFERENT
        ):
            continue
        apart = f"outputs differ by {gap.relative:.2g} of the largest"
        if (
            tolerance.check_tolerance(gap, TOLERANCE, partial(_measure_noise, dense, feeds, nth))
            is tolerance.Agreement.DIFFERENT
        ):
            what = f"the sparse kernels compute something else: {apart}"
            raise ExportFailed(
                what, "please report this as a bug; files of other graphs can be written"
            )
        raise NotFaster(
            f"it cannot be proven: {apart}, as onnxruntime's own do by its optimisation", STEPS
        )


def _measure_noise(dense: Path, feeds: Weights, nth: int) -> float:
    """How far onnxruntime's output is from itself: rounding on the way turns the last bit of a sum into a step."""
    levels = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_ALL")
    first, *others = (run_file(dense, feeds, optimization=level)[nth] for level in levels)
    return max(tolerance.max_difference(other, first).difference for other in others)


def _measure_ratio(
    paths: Sequence[Path], sample: Weights, kernels_at: Path, left: Mapping[str, str]
) -> float:
    """The share of the time that the first of these files takes, on the sparse kernels, of the fastest other one."""
    sessions = [open_session(path, None if nth else kernels_at) for nth, path in enumerate(paths)]
    calls = [partial(session.run, None, dict(sample)) for session in sessions]
    ours, *others = (
        timing.ms for timing in time_interleaved(calls, seconds=TIMING_SECONDS, clock=TIMING_CLOCK)
    )
    ratio = ours / min(others)
    if ratio > MAX_RATIO:
        times = f"{ours:.3f} ms against {min(others):.3f} for one sample on one thread"
        still = f"; left dense: {_format_reasons(left)}" if left else ""
        raise NotFaster(
            f"it would take {ratio:.2f} of the dense file's time ({times}){still}", LEAVE
        )
    return ratio


def _format_reasons(left: Mapping[str, str]) -> str:
    """Reasons, each with the first of the kernels that it holds for."""
    found: dict[str, list[str]] = {}
    for name, reason in left.items():
        found.setdefault(reason, []).append(name)
    said = [
        f"{names[0]}{f' and {len(names) - 1} more' * (len(names) > 1)}: {why}"
        for why, names in found.items()
    ]
    return "; ".join(
        [*said[:NAMED], *([f"and {len(said) - NAMED} more reasons"] if len(said) > NAMED else [])]
    )


def _format_note(how: SparseKernelInfo) -> str:
    said = f"fast graph: {pluralize(len(how.converted_layers), 'kernel')} on sparse kernels ({how.instruction_set})"
    if how.latency_ratio is not None:
        said += f", {how.latency_ratio:.2f} of the dense graph's time"
    return f"{said}; left dense: {_format_reasons(how.dense_layers)}" if how.dense_layers else said


GRAPH = ExportGraph(
    name=FAST,
    description="norms folded; faster than dense where our library of sparse kernels is registered, and runs without it",
    build=build_graph,
)
