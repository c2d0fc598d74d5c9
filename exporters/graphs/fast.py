"""The fast graph: the deploy graph with sparse operators for layers that have many zeros.

Such a file also runs without the library of sparse operators, because each of them is a function of
standard operators.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from ltp_pipeline.errors import ExportFailed, InputError, NotFaster
from ltp_pipeline.exporters.encodings import ENCODINGS
from ltp_pipeline.exporters.files import run_proof
from ltp_pipeline.exporters.graphs import deploy
from ltp_pipeline.exporters.graphs.graph import BuiltGraph, ExportGraph, GraphContext
from ltp_pipeline.exporters.sparse_ops import library
from ltp_pipeline.exporters.sparse_ops.cost_model import select_layers
from ltp_pipeline.exporters.sparse_ops.functions import DOMAIN
from ltp_pipeline.exporters.sparse_ops.replace import convert_to_sparse_ops
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.nodes import iter_nodes
from ltp_pipeline.graph.rewrites.flatten import flatten_model
from ltp_pipeline.graph.storage import write_model
from ltp_pipeline.graph.tensors import Weights
from ltp_pipeline.results.schema_parts import SparseKernelInfo
from ltp_pipeline.settings.file_names import FAST
from ltp_pipeline.system import tolerance
from ltp_pipeline.system.hashing import sha256_file
from ltp_pipeline.system.scratch import temporary_folder
from ltp_pipeline.system.text import pluralize
from ltp_pipeline.system.timing import time_interleaved

# Largest difference of outputs, relative to an output's largest value, of sums in another order.
TOLERANCE = 1e-5
MAX_RATIO = 0.95  # largest latency ratio to the dense file; timing cannot tell 0.95 from 1
TIMING_SECONDS = 0.5
MAX_REASONS = 3  # reasons in a message
# The time of the one thread that computes leaves out other work of the machine. On Windows that
# clock ticks only every 16 ms.
TIMING_CLOCK = time.perf_counter if sys.platform == "win32" else time.thread_time
ROUNDING_HINT = (
    "name the layers before nodes that round (QuantizeLinear, Round) in prune.exclude,"
    " or leave this graph out"
)
MACHINE_HINT = (
    "to write the file for another machine, set export.accelerate_min_sparsity"
    " (`accelerate --accelerate-min-sparsity`)"
)


def build_graph(context: GraphContext) -> BuiltGraph:
    """Build the fast graph and verify it with the library of sparse operators.

    Raises:
        NotFaster: If the library is missing, or no layer gets faster on this machine.
        ExportFailed: If the graph computes something else.
    """
    try:
        library_path = library.sparse_ops_library()
        instruction_set = library.query_instruction_sets(library_path).chosen
    except InputError as error:
        raise NotFaster(error.message, error.hint) from None
    deployed = deploy.build_graph(context)
    flat, _ = flatten_model(deployed.model)  # layers in functions would not be found
    sample = select_first_sample(context.model, context.feeds)
    min_sparsity = context.settings.accelerate_min_sparsity
    selection = select_layers(flat, context.weight_names, sample, instruction_set, min_sparsity)
    if not selection.weight_names:
        reasons = _format_reasons(selection.skipped)
        raise NotFaster(f"no layer is worth converting: {reasons}", MACHINE_HINT)
    model, chains = convert_to_sparse_ops(flat, selection.weight_names)
    ratio = None
    with temporary_folder("fast") as folder:
        paths = []
        models = {"fast": model, "deploy": deployed.model, "original": context.model}
        for name, built_model in models.items():
            path = folder / f"{name}.onnx"
            write_model(ENCODINGS["dense"].encode(built_model, context.weight_names), path)
            paths.append(path)
        _verify_outputs(paths[0], paths[1], context.feeds, library_path)
        if min_sparsity is None:
            ratio = _measure_ratio(paths, sample, library_path, selection.skipped)
    info = SparseKernelInfo(
        instruction_set=instruction_set,
        library_sha256=sha256_file(library_path),
        converted_layers=tuple(dict.fromkeys(chain.weight_name for chain in chains)),
        dense_layers=dict(selection.skipped),
        latency_ratio=ratio,
    )
    return BuiltGraph(
        model,
        deployed.weights,
        (*deployed.notes, _format_note(info)),
        sparse_kernels=info,
        dense_model=deployed.model,
    )


def explain_missing_library() -> str | None:
    """Return why sparse operators cannot be used here and what to do, or None if they can."""
    try:
        library.query_instruction_sets(library.sparse_ops_library())
    except InputError as error:
        return f"{error.message}; {error.hint}"
    return None


def uses_sparse_ops(model: OnnxModel) -> bool:
    """Return true if a model has sparse operators."""
    return any(node.domain == DOMAIN for node in iter_nodes(model.graph))


def select_first_sample(model: OnnxModel, feeds: Weights) -> Weights:
    """Return the first sample of a batch, or the batch if the model takes no single sample."""
    batch_sizes = {array.shape[:1] for array in feeds.values()}
    if len(batch_sizes) != 1 or batch_sizes == {()}:
        return feeds
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        if value.name in feeds and dims and dims[0].dim_value > 0:
            return feeds
    return {name: array[:1] for name, array in feeds.items()}


def _verify_outputs(fast_path: Path, dense_path: Path, feeds: Weights, library_path: Path) -> None:
    """Compare the outputs of the fast file with those of the dense file.

    Raises:
        ExportFailed: If an output differs.
        NotFaster: If an output differs as much when onnxruntime optimizes the dense file.
    """
    expected_outputs = run_proof.run_file(dense_path, feeds)
    actual_outputs = run_proof.run_file(fast_path, feeds, library_path)
    for i, (actual, expected) in enumerate(zip(actual_outputs, expected_outputs, strict=True)):
        difference = tolerance.max_difference(actual, expected)
        if not run_proof.is_different(difference, TOLERANCE):
            continue
        finding = f"outputs differ by {difference.relative:.2g} of the largest"
        noise = partial(_measure_noise, dense_path, feeds, i)
        if run_proof.is_different(difference, TOLERANCE, noise):
            raise ExportFailed(
                f"the sparse operators compute something else: {finding}",
                "please report this as a bug; files of other graphs can be written",
            )
        raise NotFaster(
            f"the fast graph cannot be verified: {finding},"
            " and the dense graph's own differ as much when onnxruntime optimizes it",
            ROUNDING_HINT,
        )


def _measure_noise(path: Path, feeds: Weights, output: int) -> float:
    """Return how much an output of onnxruntime changes by its level of optimization.

    A graph that rounds turns a difference in the last bit of a sum into a whole step.
    """
    reference = run_proof.run_file(path, feeds, optimization=run_proof.NO_OPTIMIZATIONS)[output]
    noise = 0.0
    for level in (run_proof.BASIC_OPTIMIZATIONS, run_proof.ALL_OPTIMIZATIONS):
        optimized = run_proof.run_file(path, feeds, optimization=level)[output]
        noise = max(noise, tolerance.max_difference(optimized, reference).difference)
    return noise


def _measure_ratio(
    paths: Sequence[Path], sample: Weights, library_path: Path, skipped: Mapping[str, str]
) -> float:
    """Return the latency of the first file as a fraction of the fastest other file's.

    Raises:
        NotFaster: If the fraction is larger than MAX_RATIO.
    """
    sessions = [run_proof.open_session(paths[0], library_path)]
    sessions += [run_proof.open_session(path) for path in paths[1:]]
    calls = [partial(session.run, None, dict(sample)) for session in sessions]
    timings = time_interleaved(calls, seconds=TIMING_SECONDS, clock=TIMING_CLOCK)
    fast_ms = timings[0].ms
    dense_ms = min(timing.ms for timing in timings[1:])
    ratio = fast_ms / dense_ms
    if ratio > MAX_RATIO:
        message = (
            f"the fast file would take {ratio:.2f} of the dense file's time"
            f" ({fast_ms:.3f} ms against {dense_ms:.3f} ms for one sample on one thread)"
        )
        if skipped:
            message += f"; not converted: {_format_reasons(skipped)}"
        raise NotFaster(message, MACHINE_HINT)
    return ratio


def _format_reasons(skipped: Mapping[str, str]) -> str:
    """Format why layers are not converted, one of each reason's layers by name."""
    names_by_reason: dict[str, list[str]] = {}
    for name, reason in skipped.items():
        names_by_reason.setdefault(reason, []).append(name)
    parts = []
    for reason, names in names_by_reason.items():
        others = f" and {len(names) - 1} more" if len(names) > 1 else ""
        parts.append(f"{names[0]}{others}: {reason}")
    if len(parts) > MAX_REASONS:
        parts[MAX_REASONS:] = [f"and {len(parts) - MAX_REASONS} more reasons"]
    return "; ".join(parts)


def _format_note(info: SparseKernelInfo) -> str:
    """Format the note of the report on sparse operators."""
    num_layers = pluralize(len(info.converted_layers), "layer")
    note = f"fast graph: {num_layers} on sparse operators ({info.instruction_set})"
    if info.latency_ratio is not None:
        note += f", {info.latency_ratio:.2f} of the dense graph's time"
    if info.dense_layers:
        note += f"; not converted: {_format_reasons(info.dense_layers)}"
    return note


GRAPH = ExportGraph(
    name=FAST,
    description=(
        "norms folded; faster than dense if the library of sparse operators is registered,"
        " and runs without it"
    ),
    build=build_graph,
)
