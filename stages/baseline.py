"""Global magnitude pruning, the comparison: the smallest weights of the whole network go at once, the rest is trained.

Same kernels, same count of nonzeros, same total epochs, batches and loss as the learned result.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ltp_pipeline.records import Pruned, State
from ltp_pipeline.stages import finetune
from ltp_pipeline.stages.import_model.network import Network
from ltp_pipeline.stages.learn_thresholds.masks import keep_exactly
from ltp_pipeline.stages.prune import count_nonzeros, masked, masks_of
from ltp_pipeline.stages.train import Job
from ltp_pipeline.stages.train.evaluate import accuracy
from ltp_pipeline.stages.train.statistics import refreshed

KEY = "baseline"  # of its checkpoint and its log lines


def run(job: Job, original: State, nonzeros: int, epochs: int) -> Pruned:
    """Prune the original once to as many `nonzeros` over all kernels, then train for `epochs`."""
    state = refreshed(job, masked(original, global_magnitude_masks(job.network, original, nonzeros)))
    count = sum(count_nonzeros(job.network, state).values())
    pruned = Pruned(state, masks_of(job.network, state), count, {"prune": 0, "finetune": 0})
    return finetune.run(job, pruned, epochs, KEY)


def accuracy_when_cut(job: Job, original: State, nonzeros: int) -> float:
    """Accuracy on the validation split of the original, pruned at once and not trained."""
    state = masked(original, global_magnitude_masks(job.network, original, nonzeros))
    return accuracy(job, refreshed(job, state), job.data.val)


def global_magnitude_masks(network: Network, state: State, nonzeros: int) -> dict[str, Tensor]:
    """Keep the weights largest in size over all prunable kernels, with no regard for layers."""
    weights = {k.name: state[k.name] for k in network.prunable}
    present = count_nonzeros(network, state)
    others = sum(present[k.name] for k in network.kernels if not k.prunable)
    alike = torch.ones(())
    return keep_exactly(weights, dict.fromkeys(weights, alike), dict.fromkeys(weights, 0), nonzeros - others)
