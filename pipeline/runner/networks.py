"""A trained network in its run directory: its weights are kept, taken up again, exported and measured."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError

from ltp_pipeline.graph.tensors import Weights
from ltp_pipeline.results.records import MeasuredNetwork, PrunedNetwork
from ltp_pipeline.run_directory.run_directory import RunDirectory
from ltp_pipeline.settings.schema import ExportSettings
from ltp_pipeline.stages import export, finetune_qat
from ltp_pipeline.stages.import_model.values import array_to_torch
from ltp_pipeline.stages.measure import network
from ltp_pipeline.stages.prune import nonzero_masks
from ltp_pipeline.stages.tools import quantize
from ltp_pipeline.stages.train.job import RunContext
from ltp_pipeline.stages.write_back import (
    from_file_weights,
    list_file_tensors,
    to_file_types,
    to_file_weights,
)

if TYPE_CHECKING:
    from ltp_pipeline.exporters.int8.layers import QuantizableLayer
    from ltp_pipeline.exporters.int8.training_graph import FakeQuantGraph, QatResult


class SavedNetworkInfo(BaseModel):
    """What stands beside the final weights of a network."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    epochs: dict[str, int]
    nonzeros: int
    validation_accuracy: float
    entry: int = 0  # of the trail, where it comes from there; and how it was selected
    notes: list[str] = []
    budget_not_met: str | None = None
    num_trainings: int = 1


def save_weights(job: RunContext, name: str, tuned: PrunedNetwork, **more: Any) -> Weights:
    """Keep the final weights of a network, so that later commands need not train; `more` as in Kept."""
    weights = to_file_weights(job.network, tuned.state)
    meta = SavedNetworkInfo(epochs=dict(tuned.epochs), nonzeros=tuned.nonzeros, **more)
    tensors = {n: array_to_torch(array) for n, array in weights.items()}
    job.workspace.save_weights(name, tensors, meta.model_dump())
    return weights


def load_saved_network(
    job: RunContext, name: str
) -> tuple[PrunedNetwork, Weights, SavedNetworkInfo] | None:
    """A network whose final weights were kept; None where they were not, or cannot be used."""
    found = job.workspace.load_weights(name)
    if found is None:
        return None
    tensors, meta = found[0], _parse_network_info(job.workspace, name, found[1])
    shapes = {n: job.network.file.model.get_array(n).shape for n in list_file_tensors(job.network)}
    if {n: tuple(tensor.shape) for n, tensor in tensors.items()} != shapes:
        raise job.workspace.corrupt_weights_error(
            name, "its tensors have other names or shapes than the model's"
        )
    weights = to_file_types(job.network, tensors)
    state = from_file_weights(job, weights)
    return (
        PrunedNetwork(state, nonzero_masks(job.network, state), meta.nonzeros, meta.epochs),
        weights,
        meta,
    )


def load_network_info(workspace: RunDirectory, name: str) -> SavedNetworkInfo | None:
    """What stands beside kept weights."""
    found = workspace.load_weights_metadata(name)
    return None if found is None else _parse_network_info(workspace, name, found)


def _parse_network_info(
    workspace: RunDirectory, name: str, meta: Mapping[str, Any]
) -> SavedNetworkInfo:
    try:
        return SavedNetworkInfo.model_validate(meta)
    except ValidationError as error:
        raise workspace.corrupt_weights_error(name, error.errors()[0]["msg"]) from None


def export_and_evaluate(
    job: RunContext,
    tuned: PrunedNetwork,
    weights: Weights,
    reference: network.Reference | None,
    folder: str = "",
    settings: ExportSettings | None = None,
) -> MeasuredNetwork | None:
    """Export a network into a folder of the run directory and measure its files; the leader does."""
    if reference is None:
        return None
    file = job.network.file
    feeds = export.select_feeds(file.inputs, job.data)
    kernels, asked = [k.name for k in job.network.layer_weights], settings or job.settings.export
    with measure_time(job.workspace, "export", but=finetune_qat.NAME):
        judged = quantize.make_calibration(
            file.inputs, job.data, reference.evaluator, asked, job.workspace.progress.say
        )
        if job.settings.train.quantization_aware:
            judged = replace(
                judged, train=partial(_train_quantized, job, (folder or "pruned").replace("/", "-"))
            )
        exported = export.run(file, weights, kernels, asked, job.workspace, feeds, folder, judged)
    with measure_time(job.workspace, "validate"):
        return network.run(
            exported, job.network, tuned.state, reference, job.data.test, tuned.epochs
        )


def _train_quantized(
    job: RunContext, title: str, training: FakeQuantGraph, layers: Sequence[QuantizableLayer]
) -> QatResult:
    """Train in 8 bits in the midst of exporting."""
    with measure_time(job.workspace, finetune_qat.NAME):
        return finetune_qat.run(job, title, training, layers)


@contextmanager
def measure_time(workspace: RunDirectory, stage: str, but: str = "") -> Iterator[None]:
    """Note the time that a stage takes, also of one that is broken off; not that of another within it."""
    begun, other = time.monotonic(), workspace.manifest.timings.get(but, 0.0)
    try:
        yield
    finally:
        within = workspace.manifest.timings.get(but, 0.0) - other
        workspace.add_time(stage, time.monotonic() - begun - within)
