"""Running statistics of BatchNormalization, measured anew for weights that changed."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from ltp_pipeline.records import ImportedModel
from ltp_pipeline.stages.import_model import restore_bn
from ltp_pipeline.stages.import_model.ops.normalization import update_share
from ltp_pipeline.stages.import_model.roles import Role


def update_shares(imported: ImportedModel) -> dict[str, float]:
    """How far a batch moves each running statistic, by its name."""
    module = imported.module
    shares: dict[str, float] = {}
    for node in imported.proto.graph.node:
        if node.op_type == "BatchNormalization":
            momentum = next((a.f for a in node.attribute if a.name == "momentum"), 0.9)
            share = update_share(momentum)
            shares |= {n: share for n in node.input[3:5] if module.roles.get(n) is Role.STATISTIC}
    restored = imported.restored.norms
    share = update_share(restore_bn.MOMENTUM)
    return shares | {n: share for norm in restored for n in (norm.mean, norm.variance)}


@torch.no_grad()
def refresh(imported: ImportedModel, batches: Iterable[Tensor], weights: Mapping[str, Tensor] | None = None) -> None:
    """Set every mean and variance to its average over the batches.

    A forward pass in training mode moves a statistic a share of the way to the batch's own; undone and divided by
    that share, the moves average to the statistic of all batches.
    """
    module = imported.module.train()
    tensors = module.tensors()
    shares = update_shares(imported)
    statistics = {n: tensors[n] for n in shares if n in tensors}
    if not statistics:
        return
    before = {n: t.clone() for n, t in statistics.items()}
    moves = {n: torch.zeros_like(t) for n, t in statistics.items()}
    count = 0
    for x in batches:
        module(x, weights=weights)
        for name, t in statistics.items():
            moves[name] += t - before[name]
            t.copy_(before[name])
        count += 1
    for name, t in statistics.items():
        t += moves[name] / (count * shares[name])
