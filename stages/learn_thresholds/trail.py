"""The trail: each epoch's network, hard-pruned, judged on the validation split and written as a file of its own."""

import json
from dataclasses import asdict, replace

import torch

from ltp_pipeline import ranks
from ltp_pipeline.errors import InputError
from ltp_pipeline.exporters import float_weights
from ltp_pipeline.files import write_json
from ltp_pipeline.records import Sparsity, TrailEntry
from ltp_pipeline.stages import export
from ltp_pipeline.stages.learn_thresholds.method import Method
from ltp_pipeline.stages.training import Training
from ltp_pipeline.workspace import Workspace

ENCODING = "packed"  # the smallest that every tool reads


def add(training: Training, method: Method, hard: dict[str, torch.Tensor], epoch: int) -> TrailEntry:
    """Judge the network with `hard` kernels and fresh running statistics, write it, leave the live module as it was."""
    imported, workspace = training.imported, training.workspace
    kernels = [k.name for k in imported.kernels]
    path = workspace.trail_path(epoch + 1)
    with training.statistics_of(hard):
        accuracy = training.accuracy(training.data.val, hard)
        arrays = export.live_arrays(imported, hard)
        if ranks.leads():
            export.write(imported.file, arrays, kernels, ENCODING, path)
    counted = export.count(arrays, kernels)
    whole = Sparsity.total(found for _, found in float_weights(imported.proto, arrays))
    taus = dict(zip(method.live, method.tau.tolist(), strict=True))
    temperatures = dict(zip(method.live, method.T.tolist(), strict=True))
    entry = TrailEntry(
        entry=epoch + 1,
        epoch=epoch + 1,
        compression=counted.elements / counted.nonzeros,
        accuracy=accuracy,
        file=workspace.relative(path),
        thresholds=taus,
        temperatures=temperatures,
        model_compression=whole.compression,
    )
    if ranks.leads():
        entry = replace(entry, **export.hashes_of(path))
        write_json(workspace.trail_index, [asdict(e) for e in [*read(workspace, before=epoch + 1), entry]])
    return entry


def read(workspace: Workspace, before: int | None = None) -> list[TrailEntry]:
    """Entries written so far; those of epochs that are about to be done again are left out."""
    if not workspace.trail_index.is_file():
        return []
    try:
        entries = [TrailEntry(**e) for e in json.loads(workspace.trail_index.read_text(encoding="utf-8"))]
    except (ValueError, TypeError) as error:
        raise InputError(f"{workspace.trail_index} is damaged: {error}", "use --fresh to start over") from None
    return [e for e in entries if before is None or e.entry < before]
