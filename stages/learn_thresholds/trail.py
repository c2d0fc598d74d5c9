"""The trail: after each epoch the network is hard-pruned, evaluated and written as a file."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
from pydantic import TypeAdapter, ValidationError

from ltp_pipeline.exporters.files.count import iter_float_weights
from ltp_pipeline.graph.sparsity import Sparsity
from ltp_pipeline.graph.tensors import Weights
from ltp_pipeline.results.schema_parts import LearnedEntry
from ltp_pipeline.run_directory.run_directory import RunDirectory
from ltp_pipeline.stages import export
from ltp_pipeline.stages.learn_thresholds.method import PruningMethod
from ltp_pipeline.stages.multiply_adds import count_cost, count_multiply_adds
from ltp_pipeline.stages.train.context import RunContext
from ltp_pipeline.stages.train.evaluate import evaluate_metric
from ltp_pipeline.stages.train.statistics import refresh_statistics
from ltp_pipeline.stages.write_back import to_file_weights
from ltp_pipeline.system import distributed
from ltp_pipeline.system.arrays import StateDict

_ENTRIES = TypeAdapter(list[LearnedEntry])
ENCODING = "packed"  # the smallest encoding that every tool reads


@dataclass(frozen=True)
class ThresholdLearningResult:
    """The trail that threshold learning leaves, each entry with its thresholds and temperatures."""

    trail: tuple[LearnedEntry, ...]


def add_entry(
    context: RunContext, state: StateDict, method: PruningMethod, epoch: int
) -> LearnedEntry:
    """Evaluate a hard-pruned network with new running statistics and add it to the trail.

    Args:
        context: The run.
        state: Tensors of the hard-pruned network.
        method: The pruning method, for its thresholds and temperatures.
        epoch: The completed epoch, counted from zero.

    Returns:
        The entry. Only the main process writes its file.
    """
    network = context.network
    run_directory = context.run_directory
    number = epoch + 1
    names = [layer.name for layer in network.layer_weights]
    path = run_directory.trail_path(number)
    state = refresh_statistics(context, state)
    accuracy = evaluate_metric(context, state, context.data.val)
    weights = to_file_weights(network, state)
    if distributed.is_main_process():
        run_directory.forget_trail_entry(number)
        export.write_file(network.file, weights, names, ENCODING, path)
    layer_counts = export.count_layers(weights, names)
    model = network.file.model.with_weights(weights)
    model_counts = Sparsity.combine(counts for _, counts in iter_float_weights(model))
    entry = LearnedEntry(
        entry=number,
        epoch=number,
        compression=layer_counts.elements / layer_counts.nonzeros,
        accuracy=accuracy,
        file=run_directory.relative_name(path),
        thresholds=dict(zip(method.layer_weights, method.tau.tolist(), strict=True)),
        temperatures=dict(zip(method.layer_weights, method.T.tolist(), strict=True)),
        model_compression=model_counts.compression,
        macs_left=_compute_macs_left(context, weights),
        cost=_compute_cost(context, weights),
    )
    if distributed.is_main_process():
        entry = entry.replace(**export.hash_file(path))
        entries = [
            each.model_dump() for each in [*read_entries(run_directory, before=number), entry]
        ]
        run_directory.save_trail_entry(entry.entry, (entry.sha256, entry.data_sha256), entries)
    return entry


def _compute_macs_left(context: RunContext, weights: Weights) -> float | None:
    """Return the fraction of the multiply-adds that is left; None if they were not counted."""
    layers = context.network.layer_weights
    if any(layer.name not in context.uses for layer in layers):
        return None
    nonzeros = {layer.name: int(np.count_nonzero(weights[layer.name])) for layer in layers}
    elements = {layer.name: layer.elements for layer in layers}
    total = count_multiply_adds(context.uses, elements)
    return count_multiply_adds(context.uses, nonzeros) / total


def _compute_cost(context: RunContext, weights: Weights) -> int | None:
    """Return what the nonzeros cost; None if the budget counts weights."""
    if context.costs is None:
        return None
    layers = context.network.layer_weights
    nonzeros = {layer.name: int(np.count_nonzero(weights[layer.name])) for layer in layers}
    return count_cost(nonzeros, context.costs)


def read_entries(run_directory: RunDirectory, before: int | None = None) -> list[LearnedEntry]:
    """Return the entries written so far.

    Args:
        run_directory: The run.
        before: Leave out entries from this number on, whose epochs are about to be repeated.
    """
    try:
        entries = _ENTRIES.validate_json(json.dumps(run_directory.read_trail()))
    except ValidationError as error:
        raise run_directory.corrupt_trail_error(error.errors()[0]["msg"]) from None
    return [entry for entry in entries if before is None or entry.entry < before]
