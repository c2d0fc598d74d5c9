"""Convert any file to sparse operators if that makes it faster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ltp_pipeline.errors import InputError, UnsupportedModel
from ltp_pipeline.exporters.files import run_proof
from ltp_pipeline.exporters.graphs import fast
from ltp_pipeline.exporters.graphs.graph import GraphContext
from ltp_pipeline.exporters.sparse_ops.library import query_instruction_sets, sparse_ops_library
from ltp_pipeline.graph.layer_weights import find_layer_weights
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.graph.rewrites.flatten import flatten_model
from ltp_pipeline.results.schema_parts import SparseKernelInfo
from ltp_pipeline.settings.file_names import FAST, ExportFormat
from ltp_pipeline.settings.schema import Settings
from ltp_pipeline.stages import export
from ltp_pipeline.stages.import_model.parity_inputs import is_numeric, iter_likely_inputs
from ltp_pipeline.stages.import_model.read import read_model_file
from ltp_pipeline.stages.measure.any_file import ValidationResult, validate_against
from ltp_pipeline.stages.measure.session import Session, run_in_child
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.system.files import AnyPath, check_output_path
from ltp_pipeline.system.timing import time_interleaved
from ltp_pipeline.tasks.custom import CustomTask
from ltp_pipeline.tasks.custom_data import open_model_data


@dataclass(frozen=True)
class AccelerationResult:
    """A fast file and its latency next to its source, for one sample on one thread.

    `measurement` is None if there were no data; then the file was verified on random inputs.
    """

    path: str
    bytes: int
    sparse_kernels: SparseKernelInfo
    latency_ms: float
    source_latency_ms: float
    latency_ratio: float
    proven_on: str
    notes: tuple[str, ...]
    measurement: ValidationResult | None = None


def accelerate(
    model: AnyPath,
    out: AnyPath,
    settings: Settings,
    encoding: str = "packed",
    with_data: bool = False,
    custom_task: CustomTask | None = None,
) -> AccelerationResult:
    """Write a fast file of any file, verify it, and time both.

    Args:
        model: The file.
        out: The fast file to write.
        settings: Data, task and options of the fast graph.
        encoding: Encoding of the fast file.
        with_data: True to verify and measure it on data, false to verify it on random inputs.
        custom_task: A task of the user; None for a built-in one.

    Raises:
        NotFaster: If the fast file would not be faster.
        UnsupportedModel: If the model has no layer weights.
        ExportFailed: If the fast file cannot be verified.
    """
    source = Path(model)
    target = Path(out)
    library_path = sparse_ops_library()
    query_instruction_sets(library_path)  # raises InputError if it cannot be loaded
    file = read_model_file(source)
    check_output_path(target, [source, *(source.parent / name for name in file.data_files)])
    flat, _ = flatten_model(file.model)
    layers = find_layer_weights(flat, settings.prune.include, settings.prune.exclude)
    if not layers:
        raise UnsupportedModel(
            "the model has no layer weights", "run `ltp-pipeline inspect` to list its weights"
        )
    session = Session(source, is_single_threaded=True, is_foreign=True).session
    if with_data:
        data = open_model_data(file, settings.data, settings.train.seed, settings.task, custom_task)
        feeds = export.select_feeds(file.inputs, data)
        feeds_description = "the test split"
        run_in_child(source, feeds)
    else:
        feeds, feeds_description = _find_random_inputs(source, session, file.inputs)
    weights = {layer.name: flat.get_array(layer.name) for layer in layers}
    context = GraphContext(flat, weights, list(weights), feeds, settings=settings.export)
    graph = fast.build_graph(context)
    assert graph.sparse_kernels is not None  # noqa: S101 - a fast graph has them
    measurement = None
    with export.move_when_done(target) as path:
        export.write_graph(graph, context, ExportFormat(FAST, encoding), path, file.sha256)
        if with_data:
            measurement = validate_against(path, source, settings, custom_task)
            measurement = replace(measurement, path=str(target))
        sessions = [run_proof.open_session(path, library_path), run_proof.open_session(source)]
        sample = dict(fast.select_first_sample(flat, feeds))
        calls = [partial(session.run, None, sample) for session in sessions]
        fast_timing, source_timing = time_interleaved(
            calls, seconds=fast.TIMING_SECONDS, clock=fast.TIMING_CLOCK
        )
    return AccelerationResult(
        path=str(out),
        bytes=export.get_file_size(target),
        sparse_kernels=graph.sparse_kernels,
        latency_ms=fast_timing.ms,
        source_latency_ms=source_timing.ms,
        latency_ratio=fast_timing.ms / source_timing.ms,
        proven_on=feeds_description,
        notes=graph.notes,
        measurement=measurement,
    )


def _find_random_inputs(
    path: Path, session: Any, inputs: Sequence[TensorInfo]
) -> tuple[dict[str, Array], str]:
    """Return random inputs on which the model of a session runs, and a description of them."""
    no_inputs = InputError("the model does not run on random inputs", "pass samples with --data")
    if not all(map(is_numeric, inputs)):
        raise no_inputs
    for feeds in iter_likely_inputs(inputs, None):
        if feeds is None:
            continue
        run_in_child(path, feeds.arrays)
        try:
            session.run(None, feeds.arrays)
        except Exception:  # noqa: BLE001, S112 - they have no common root
            continue
        return feeds.arrays, feeds.description
    raise no_inputs
