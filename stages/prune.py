"""Hard-prune: load a network of the trail, whose weights below the thresholds are zero for good."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from ltp_pipeline.errors import TrainingFailed
from ltp_pipeline.exporters.files.decode import read_tensors
from ltp_pipeline.graph.storage import read_model
from ltp_pipeline.results.schema_parts import LearnedEntry
from ltp_pipeline.stages.import_model.network import Network
from ltp_pipeline.stages.train.context import PrunedNetwork, RunContext
from ltp_pipeline.stages.write_back import from_file_weights, list_file_tensors
from ltp_pipeline.system.arrays import StateDict


def run(context: RunContext, entry: LearnedEntry) -> PrunedNetwork:
    """Load the network of a trail entry; its zeros become the masks.

    Raises:
        TrainingFailed: A layer has lost all its weights.
    """
    model = read_model(context.run_directory.trail_path(entry.entry))
    state = from_file_weights(context, read_tensors(model, list_file_tensors(context.network)))
    masks = nonzero_masks(context.network, state)
    for name, mask in masks.items():
        if not mask.any() and context.network.file.model.get_array(name).any():
            raise TrainingFailed(
                f"layer {name!r} has lost all its weights",
                "raise method.min_layer_density, or ask for less",
            )
    nonzeros = sum(count_nonzeros(context.network, state).values())
    return PrunedNetwork(state, masks, nonzeros, {"prune": entry.epoch, "finetune": 0})


def nonzero_masks(network: Network, state: StateDict) -> dict[str, Tensor]:
    """Return the masks of nonzero weights in prunable layers."""
    return {layer.name: state[layer.name] != 0 for layer in network.prunable_weights}


def apply_masks(state: StateDict, masks: Mapping[str, Tensor]) -> StateDict:
    """Return a copy of the state whose weights outside the masks are zero, never -0.0."""
    masked = {name: state[name].masked_fill(~mask, 0.0) for name, mask in masks.items()}
    return {**state, **masked}


def count_nonzeros(network: Network, state: Mapping[str, Tensor]) -> dict[str, int]:
    """Return the number of nonzeros of every layer, also of those excluded from pruning."""
    return {layer.name: int(state[layer.name].count_nonzero()) for layer in network.layer_weights}
