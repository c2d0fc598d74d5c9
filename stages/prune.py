"""Hard-prune: go on from a network of the trail, where what lies below its layer's threshold is zero and stays so."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from ltp_pipeline.errors import TrainingFailed
from ltp_pipeline.exporters.files.decode import read_tensors
from ltp_pipeline.graph.storage import read
from ltp_pipeline.results.records import Pruned, TrailEntry
from ltp_pipeline.stages.import_model.network import Network
from ltp_pipeline.stages.train.job import Job
from ltp_pipeline.stages.write_back import file_names, lift
from ltp_pipeline.system.arrays import State


def run(job: Job, entry: TrailEntry) -> Pruned:
    """The network of an entry of the trail; its zeros are the masks."""
    model = read(job.workspace.trail_path(entry.entry))
    state = lift(job, read_tensors(model, file_names(job.network)))
    masks = masks_of(job.network, state)
    for name, mask in masks.items():
        if not mask.any() and job.network.file.model.array(name).any():
            raise TrainingFailed(f"layer {name!r} lost all its weights", "raise method.floor, or ask for less")
    nonzeros = sum(count_nonzeros(job.network, state).values())
    return Pruned(state, masks, nonzeros, {"prune": entry.epoch, "finetune": 0})


def masks_of(network: Network, state: State) -> dict[str, Tensor]:
    """Where the prunable kernels are not zero."""
    return {k.name: state[k.name] != 0 for k in network.prunable}


def masked(state: State, masks: Mapping[str, Tensor]) -> State:
    """The same state with every weight outside its mask zero (never -0.0)."""
    return {**state, **{name: state[name].masked_fill(~mask, 0.0) for name, mask in masks.items()}}


def count_nonzeros(network: Network, state: Mapping[str, Tensor]) -> dict[str, int]:
    """Nonzeros of every kernel, prunable or not."""
    return {k.name: int(state[k.name].count_nonzero()) for k in network.kernels}
