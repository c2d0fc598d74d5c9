"""Between the tensors that are trained and those that a file has: names, types and layout are the file's."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from ltp_pipeline.graph.tensors import Weights
from ltp_pipeline.stages.import_model.network import Network
from ltp_pipeline.stages.import_model.restore_batch_norm import calibrate_norms, fold_norms
from ltp_pipeline.stages.import_model.values import array_to_torch, to_numpy, to_single_precision
from ltp_pipeline.stages.train.job import RunContext
from ltp_pipeline.system.arrays import StateDict


def to_file_weights(network: Network, state: StateDict) -> Weights:
    """The weights of a file: restored norms folded into their Convs, every tensor in the type that the file has."""
    return to_file_types(network, fold_norms(network.restored_norms, state))


def to_file_types(network: Network, tensors: Mapping[str, Tensor]) -> Weights:
    """Tensors as arrays of the types that the file has, e.g. an fp32 master as fp16."""
    kept = network.file.model.tensors
    return {name: to_numpy(tensor, kept[name].data_type) for name, tensor in tensors.items()}


def from_file_weights(job: RunContext, weights: Weights) -> StateDict:
    """The state of a file's weights: restored norms get the statistics that the training samples give."""
    state = {
        n: to_single_precision(array_to_torch(weights[n])).to(job.device)
        for n in list_file_tensors(job.network)
    }
    state = calibrate_norms(
        job.network, state, job.data.train, job.settings.train.batch_size, job.device
    )
    return {name: state[name] for name in job.network.forward.slots}


def list_file_tensors(network: Network) -> list[str]:
    """The tensors of a state that the file has too."""
    added = {name for norm in network.restored_norms for name in norm.added_names}
    return [name for name in network.forward.slots if name not in added]
