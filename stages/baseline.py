"""Global magnitude pruning, the comparison: the smallest weights of the whole network go at once, the rest is trained.

Same kernels, same count of nonzeros, same total epochs, batches and loss as the learned result.
"""

import torch
from torch import Tensor

from ltp_pipeline.records import ImportedModel, PrunedModel
from ltp_pipeline.stages import finetune
from ltp_pipeline.stages.learn_thresholds.masks import keep_exactly
from ltp_pipeline.stages.prune import apply_masks, count_nonzeros, load_original
from ltp_pipeline.stages.training import Training

KEY = "baseline"  # of its checkpoint and its log lines


def run(nonzeros: int, epochs: int, training: Training) -> PrunedModel:
    """Prune the original once to as many `nonzeros` over all kernels, then train for `epochs`."""
    imported = training.imported
    load_original(imported)
    apply_masks(imported, global_magnitude_masks(imported, nonzeros))
    masks = {k.name: imported.module.tensors()[k.name].detach() != 0 for k in imported.prunable}
    pruned = PrunedModel(masks, count_nonzeros(imported), {"prune": 0, "finetune": 0})
    training.refresh_statistics()
    return finetune.run(pruned, training, epochs, KEY)


def accuracy_when_cut(nonzeros: int, training: Training) -> float:
    """Accuracy on the validation split of the network as it is, pruned at once and not trained."""
    tensors = training.imported.module.tensors()
    masks = global_magnitude_masks(training.imported, nonzeros)
    cut = {name: tensors[name].detach().masked_fill(~mask, 0.0) for name, mask in masks.items()}
    with training.statistics_of(cut):
        return training.accuracy(training.data.val, cut)


def global_magnitude_masks(imported: ImportedModel, nonzeros: int) -> dict[str, Tensor]:
    """Keep the weights largest in size over all prunable kernels, with no regard for layers."""
    tensors = imported.module.tensors()
    weights = {k.name: tensors[k.name].detach() for k in imported.prunable}
    present = count_nonzeros(imported)
    others = sum(present[k.name] for k in imported.kernels if not k.prunable)
    alike = torch.ones(())
    return keep_exactly(weights, dict.fromkeys(weights, alike), dict.fromkeys(weights, 0), nonzeros - others)
