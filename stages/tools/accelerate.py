"""Turn a file of any origin over to the sparse kernels, where that makes it faster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ltp_pipeline.errors import InputError, UnsupportedModel
from ltp_pipeline.exporters.files import run_proof
from ltp_pipeline.exporters.graphs import fast
from ltp_pipeline.exporters.sparse_ops.library import query_instruction_sets, sparse_ops_library
from ltp_pipeline.graph.layer_weights import find_layer_weights
from ltp_pipeline.graph.rewrites.flatten import flatten_model
from ltp_pipeline.results.tool_results import AccelerationResult
from ltp_pipeline.settings.file_names import FAST, ExportFormat
from ltp_pipeline.stages import export
from ltp_pipeline.stages.import_model.parity_inputs import is_numeric, iter_likely_inputs, to_input
from ltp_pipeline.stages.import_model.read import read_model_file
from ltp_pipeline.stages.measure.network import validate_beside
from ltp_pipeline.stages.measure.session import Session, try_elsewhere
from ltp_pipeline.system.files import check_output_path
from ltp_pipeline.system.timing import time_interleaved
from ltp_pipeline.tasks.custom_data import open_model_data

if TYPE_CHECKING:
    from ltp_pipeline.graph.model_file import TensorInfo
    from ltp_pipeline.settings.schema import Settings
    from ltp_pipeline.system.arrays import Array
    from ltp_pipeline.system.files import AnyPath
    from ltp_pipeline.tasks.custom import CustomTask

PROOF_SAMPLES = 4


def accelerate(
    model: AnyPath,
    out: AnyPath,
    settings: Settings,
    encoding: str = "packed",
    with_data: bool = False,
    custom_task: CustomTask | None = None,
) -> AccelerationResult:
    """Write a fast file, proven on samples or else on random inputs; NotFaster where it would not be."""
    source, target = Path(model), Path(out)
    library = sparse_ops_library()
    query_instruction_sets(library)  # raises where it cannot be loaded
    file = read_model_file(source)
    check_output_path(target, [source, *(source.parent / name for name in file.data_files)])
    walked, _ = flatten_model(file.model)
    kernels = [
        kernel.name
        for kernel in find_layer_weights(walked, settings.prune.include, settings.prune.exclude)
    ]
    if not kernels:
        raise UnsupportedModel(
            "the model has no kernels", "`ltp-pipeline inspect` shows what was found"
        )
    session = Session(source, single=True, is_foreign=True).session
    if with_data:
        shown = (
            open_model_data(file, settings.data, settings.train.seed, settings.task, custom_task)
            .test.read_first(PROOF_SAMPLES)
            .inputs
        )
        feeds, proven_on = (
            {i.name: to_input(i, shown[i.name]) for i in file.inputs},
            "the test split",
        )
        try_elsewhere(source, feeds)
    else:
        feeds, proven_on = _find_random_inputs(source, session, file.inputs)
    weights = {name: walked.get_array(name) for name in kernels}
    made = fast.build_graph(walked, weights, kernels, feeds, settings=settings.export)
    assert made.sparse_kernels is not None  # noqa: S101 - a fast graph has them
    with export.move_when_done(target) as path:
        export.write_graph(made, kernels, ExportFormat(FAST, encoding), path, feeds, file.sha256)
        measured = (
            replace(validate_beside(path, source, settings, custom_task), path=str(target))
            if with_data
            else None
        )
        sessions = [run_proof.open_session(path, library), run_proof.open_session(source)]
        calls = [
            partial(session.run, None, dict(fast.select_first_sample(walked, feeds)))
            for session in sessions
        ]
        ours, theirs = (
            timing.ms
            for timing in time_interleaved(
                calls, seconds=fast.TIMING_SECONDS, clock=fast.TIMING_CLOCK
            )
        )
    return AccelerationResult(
        path=str(out),
        bytes=export.get_file_size(target),
        sparse_kernels=made.sparse_kernels,
        latency_ms=ours,
        source_latency_ms=theirs,
        latency_ratio=ours / theirs,
        proven_on=proven_on,
        notes=made.notes,
        measurement=measured,
    )


def _find_random_inputs(
    source: Path, session: Any, inputs: Sequence[TensorInfo]
) -> tuple[dict[str, Array], str]:
    """Random inputs that the model runs on, and what to call them."""
    refused = InputError(
        "no random inputs were found that the model runs on", "give samples with --data"
    )
    if not all(map(is_numeric, inputs)):
        raise refused
    for feeds in iter_likely_inputs(inputs, None):
        if feeds is None:
            continue
        try_elsewhere(source, feeds.arrays)
        try:
            session.run(None, feeds.arrays)
        except Exception:  # noqa: BLE001, S112 - onnxruntime's errors have no common root; another shape may do
            continue
        return feeds.arrays, feeds.description
    raise refused
