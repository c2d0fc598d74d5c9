"""Global magnitude pruning, the comparison: the smallest weights of the whole network go at once, the rest is trained.

Same kernels, same count of nonzeros, same total epochs, batches and loss as the learned result. Further points of its
curve differ in the count alone.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from ltp_pipeline.records import Pruned, State
from ltp_pipeline.stages import finetune
from ltp_pipeline.stages.import_model.kernels import makers
from ltp_pipeline.stages.import_model.network import Network
from ltp_pipeline.stages.learn_thresholds.masks import keep_exactly
from ltp_pipeline.stages.prune import count_nonzeros, masked, masks_of
from ltp_pipeline.stages.train import Job
from ltp_pipeline.stages.train.evaluate import accuracy
from ltp_pipeline.stages.train.statistics import refreshed

FIRST, LATER = "baseline", "curve"  # what people and the log call the training of its first point and of others


def key(number: int, spares_classifier: bool) -> str:
    """Name of the checkpoint, the log lines and the kept weights of a point, counted from 1."""
    return "-".join((FIRST, *(["spared"] if spares_classifier else []), *([str(number)] if number > 1 else [])))


def run(
    job: Job,
    original: State,
    nonzeros: int,
    epochs: int,
    name: str = FIRST,
    key: str = FIRST,
    spared: Collection[str] = (),
) -> Pruned:
    """Prune the original once to as many `nonzeros` over all kernels, then train for `epochs`."""
    state = refreshed(job, masked(original, global_magnitude_masks(job.network, original, nonzeros, spared)))
    count = sum(count_nonzeros(job.network, state).values())
    pruned = Pruned(state, masks_of(job.network, state), count, {"prune": 0, "finetune": 0})
    return finetune.run(job, pruned, epochs, name, key)


def accuracy_when_cut(job: Job, original: State, nonzeros: int) -> float:
    """Accuracy on the validation split of the original, pruned at once and not trained."""
    state = masked(original, global_magnitude_masks(job.network, original, nonzeros))
    return accuracy(job, refreshed(job, state), job.data.val)


def global_magnitude_masks(
    network: Network, state: State, nonzeros: int, spared: Collection[str] = ()
) -> dict[str, Tensor]:
    """Keep the weights largest in size over all prunable kernels, with no regard for layers; all of those `spared`."""
    weights = {k.name: state[k.name] for k in network.prunable}
    present = count_nonzeros(network, state)
    others = sum(present[k.name] for k in network.kernels if not k.prunable)
    lowest = {name: present[name] if name in spared else 0 for name in weights}
    return keep_exactly(weights, dict.fromkeys(weights, torch.ones(())), lowest, nonzeros - others)


def classifier(job: Job) -> set[str]:
    """The prunable kernels that make the judged outputs."""
    graph = job.network.file.model.graph
    return makers(graph, [output.name for output in job.task.outputs], job.network.prunable)


def fewest_nonzeros(network: Network, state: State, spared: Collection[str] = ()) -> int:
    """Nonzeros of all kernels where pruning leaves each kernel that is not `spared` one weight."""
    present = count_nonzeros(network, state)
    return sum(1 if k.prunable and k.name not in spared else present[k.name] for k in network.kernels)
