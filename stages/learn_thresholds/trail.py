"""The trail: each epoch's network, hard-pruned, evaluated on the validation split and written as a file of its own."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

from pydantic import TypeAdapter, ValidationError

from ltp_pipeline.exporters.files.count import float_weights
from ltp_pipeline.graph.sparsity import Sparsity
from ltp_pipeline.results.records import TrailEntry
from ltp_pipeline.run_directory.run_directory import RunDirectory
from ltp_pipeline.stages import export
from ltp_pipeline.stages.learn_thresholds.method import PruningMethod
from ltp_pipeline.stages.train import evaluate
from ltp_pipeline.stages.train.job import RunContext
from ltp_pipeline.stages.train.statistics import refresh_statistics
from ltp_pipeline.stages.write_back import to_file_weights
from ltp_pipeline.system import distributed
from ltp_pipeline.system.arrays import StateDict

_ENTRIES = TypeAdapter(list[TrailEntry])
ENCODING = "packed"  # the smallest that every tool reads


def add_entry(
    context: RunContext, state: StateDict, method: PruningMethod, epoch: int
) -> TrailEntry:
    """Evaluate a hard-pruned network with fresh running statistics and write it."""
    network, workspace = context.network, context.workspace
    kernels = [k.name for k in network.kernels]
    path = workspace.trail_path(epoch + 1)
    state = refresh_statistics(context, state)
    accuracy = evaluate.evaluate_metric(context, state, context.data.val)
    weights = to_file_weights(network, state)
    if distributed.is_main_process():
        workspace.change_trail(epoch + 1)
        export.write(network.file, weights, kernels, ENCODING, path)
    counted = export.count(weights, kernels)
    whole = Sparsity.total(
        found for _, found in float_weights(network.file.model.with_weights(weights))
    )
    entry = TrailEntry(
        entry=epoch + 1,
        epoch=epoch + 1,
        compression=counted.elements / counted.nonzeros,
        accuracy=accuracy,
        file=workspace.relative(path),
        thresholds=dict(zip(method.layer_weights, method.tau.tolist(), strict=True)),
        temperatures=dict(zip(method.layer_weights, method.T.tolist(), strict=True)),
        model_compression=whole.compression,
    )
    if distributed.is_main_process():
        entry = replace(entry, **export.hashes_of(path))
        listed = [asdict(e) for e in [*read_entries(workspace, before=epoch + 1), entry]]
        workspace.keep_trail(entry.entry, (entry.sha256, entry.data_sha256), listed)
    return entry


def read_entries(workspace: RunDirectory, before: int | None = None) -> list[TrailEntry]:
    """Entries written so far; those of epochs that are about to be done again are left out."""
    try:
        entries = _ENTRIES.validate_json(json.dumps(workspace.read_trail()))
    except ValidationError as error:
        raise workspace.damaged_trail(error.errors()[0]["msg"]) from None
    return [e for e in entries if before is None or e.entry < before]
