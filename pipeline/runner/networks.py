"""A trained network in its run directory: save and load its weights, export and measure it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError

from ltp_pipeline.graph.tensors import Weights
from ltp_pipeline.run_directory.run_directory import RunDirectory
from ltp_pipeline.settings.schema import ExportSettings
from ltp_pipeline.stages import export, finetune_qat
from ltp_pipeline.stages.import_model.values import array_to_torch
from ltp_pipeline.stages.measure.network import (
    MeasuredNetwork,
    MeasuredOriginal,
    measure_network,
)
from ltp_pipeline.stages.multiply_adds import count_cost
from ltp_pipeline.stages.prune import count_nonzeros, nonzero_masks
from ltp_pipeline.stages.tools import quantize
from ltp_pipeline.stages.train.context import PrunedNetwork, RunContext
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
    """Metadata of the final weights of a network.

    Attributes:
        epochs: Number of epochs of each phase.
        nonzeros: Nonzeros of all layers.
        cost: What they cost, if the budget counts something else than weights.
        validation_accuracy: The metric on the validation split.
        entry: The trail entry it was fine-tuned from; 0 for a baseline.
        notes: How the entry was selected.
        budget_not_met: Why the network is outside the budget; None if it is within.
        num_trainings: Number of networks that were fine-tuned.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    epochs: dict[str, int]
    nonzeros: int
    validation_accuracy: float
    cost: int | None = None
    entry: int = 0
    notes: list[str] = []
    budget_not_met: str | None = None
    num_trainings: int = 1


def save_weights(context: RunContext, name: str, tuned: PrunedNetwork, **fields: Any) -> Weights:
    """Save the final weights of a network, so that later commands need no training.

    Args:
        context: The run.
        name: Name of the network in the run directory.
        tuned: The network.
        **fields: Further fields of SavedNetworkInfo.

    Returns:
        The weights as a file has them.
    """
    weights = to_file_weights(context.network, tuned.state)
    if context.costs is not None:
        nonzeros = count_nonzeros(context.network, tuned.state)
        fields["cost"] = count_cost(nonzeros, context.costs)
    meta = SavedNetworkInfo(epochs=dict(tuned.epochs), nonzeros=tuned.nonzeros, **fields)
    tensors = {n: array_to_torch(array) for n, array in weights.items()}
    context.run_directory.save_weights(name, tensors, meta.model_dump())
    return weights


def load_saved_network(
    context: RunContext, name: str
) -> tuple[PrunedNetwork, Weights, SavedNetworkInfo] | None:
    """Load the final weights of a network that was trained before.

    Returns:
        The network, its weights as a file has them, and their metadata; None if nothing usable is
        saved.

    Raises:
        InputError: Names or shapes of the tensors are not those of the model.
    """
    saved = context.run_directory.load_weights(name)
    if saved is None:
        return None
    tensors, metadata = saved
    info = _parse_network_info(context.run_directory, name, metadata)
    model = context.network.file.model
    shapes = {n: model.get_array(n).shape for n in list_file_tensors(context.network)}
    if {n: tuple(tensor.shape) for n, tensor in tensors.items()} != shapes:
        raise context.run_directory.corrupt_weights_error(
            name, "its tensors have other names or shapes than the model's"
        )
    weights = to_file_types(context.network, tensors)
    state = from_file_weights(context, weights)
    masks = nonzero_masks(context.network, state)
    return PrunedNetwork(state, masks, info.nonzeros, info.epochs), weights, info


def load_network_info(run_directory: RunDirectory, name: str) -> SavedNetworkInfo | None:
    """Return the metadata of saved weights; None if nothing usable is saved."""
    metadata = run_directory.load_weights_metadata(name)
    return None if metadata is None else _parse_network_info(run_directory, name, metadata)


def _parse_network_info(
    run_directory: RunDirectory, name: str, meta: Mapping[str, Any]
) -> SavedNetworkInfo:
    """Return the metadata of saved weights; raise CorruptFileError if it does not fit."""
    try:
        return SavedNetworkInfo.model_validate(meta)
    except ValidationError as error:
        raise run_directory.corrupt_weights_error(name, error.errors()[0]["msg"]) from None


def export_and_evaluate(
    context: RunContext,
    tuned: PrunedNetwork,
    weights: Weights,
    original: MeasuredOriginal | None,
    folder: str = "",
    settings: ExportSettings | None = None,
) -> MeasuredNetwork | None:
    """Export a network into a folder of the run directory and measure its files.

    Args:
        context: The run.
        tuned: The network.
        weights: Its weights as a file has them.
        original: The measured original; None in all processes but the main one, which then do
            nothing.
        folder: Folder of the run directory.
        settings: Which files to write; None for those of the run.
    """
    if original is None:
        return None
    file = context.network.file
    feeds = export.select_feeds(file.inputs, context.data)
    names = [layer.name for layer in context.network.layer_weights]
    export_settings = settings or context.settings.export
    with measure_time(context.run_directory, "export", but=finetune_qat.NAME):
        calibration = quantize.make_calibration(
            file.inputs,
            context.data,
            original.evaluator,
            export_settings,
            context.run_directory.progress.say,
        )
        if context.settings.train.quantization_aware:
            calibration = replace(
                calibration,
                train=partial(_train_quantized, context, (folder or "pruned").replace("/", "-")),
            )
        exported = export.run(
            file, weights, names, export_settings, context.run_directory, feeds, folder, calibration
        )
    with measure_time(context.run_directory, "validate"):
        return measure_network(
            exported, context.network, tuned.state, original, context.data.test, tuned.epochs
        )


def _train_quantized(
    context: RunContext, title: str, training: FakeQuantGraph, layers: Sequence[QuantizableLayer]
) -> QatResult:
    """Train in 8 bits, called in the course of an export."""
    with measure_time(context.run_directory, finetune_qat.NAME):
        return finetune_qat.run(context, title, training, layers)


@contextmanager
def measure_time(run_directory: RunDirectory, stage: str, but: str = "") -> Iterator[None]:
    """Add the time that a stage takes to the manifest, also if it is interrupted.

    Args:
        run_directory: The run directory.
        stage: Name of the stage.
        but: Name of a stage within it, whose time does not count.
    """
    start = time.monotonic()
    inner_before = run_directory.manifest.timings.get(but, 0.0)
    try:
        yield
    finally:
        inner = run_directory.manifest.timings.get(but, 0.0) - inner_before
        run_directory.add_time(stage, time.monotonic() - start - inner)
