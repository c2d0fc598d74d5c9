"""Convert between the tensors that are trained and the weights of a file."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from ltp_pipeline.graph.tensors import Weights
from ltp_pipeline.stages.import_model.network import Network
from ltp_pipeline.stages.import_model.restore_batch_norm import calibrate_norms, fold_norms
from ltp_pipeline.stages.import_model.values import array_to_torch, to_numpy, to_single_precision
from ltp_pipeline.stages.train.context import RunContext
from ltp_pipeline.stages.weight_units import from_units, to_units
from ltp_pipeline.system.arrays import StateDict


def to_file_weights(network: Network, state: StateDict) -> Weights:
    """Convert a state to weights of a file: its units, restored norms folded, its types."""
    tensors = from_units(network.units, state)
    return to_file_types(network, fold_norms(network.restored_norms, tensors))


def to_file_types(network: Network, tensors: Mapping[str, Tensor]) -> Weights:
    """Convert tensors to arrays of the types that the file has, for example float32 to float16."""
    file_tensors = network.file.model.tensors
    return {
        name: to_numpy(tensor, file_tensors[name].data_type) for name, tensor in tensors.items()
    }


def from_file_weights(context: RunContext, weights: Weights) -> StateDict:
    """Convert weights of a file to a state.

    Restored norms are not in the file. They get their statistics from training samples.

    Args:
        context: The run.
        weights: Weights of a file by name.
    """
    state = {}
    for name in list_file_tensors(context.network):
        state[name] = to_single_precision(array_to_torch(weights[name])).to(context.device)
    state = calibrate_norms(
        context.network,
        state,
        context.data.train,
        context.settings.train.batch_size,
        context.device,
    )
    state = to_units(context.network.units, state)
    return {name: state[name] for name in context.network.forward.slots}


def list_file_tensors(network: Network) -> list[str]:
    """Return the names of the tensors of a state that the file has too."""
    added_names: set[str] = set()
    for norm in network.restored_norms:
        added_names.update(norm.added_names)
    return [name for name in network.forward.slots if name not in added_names]
