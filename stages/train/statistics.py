"""Running statistics of BatchNormalization, measured anew for weights that changed."""

from __future__ import annotations

import torch

from ltp_pipeline.stages.train.batches import statistics_batches
from ltp_pipeline.stages.train.job import RunContext
from ltp_pipeline.system.arrays import StateDict


@torch.no_grad()
def refresh_statistics(context: RunContext, state: StateDict) -> StateDict:
    """The same state with every mean and variance that of the training samples; what is given stays as it is.

    A forward pass in training mode moves a statistic a share of the way to the batch's own; undone and divided by
    that share, the moves average to the statistic of all batches.
    """
    shares = context.network.forward.statistics
    if not shares:
        return state
    before = {n: state[n] for n in shares}
    moved = {n: t.clone() for n, t in before.items()}
    moves = {n: torch.zeros_like(t) for n, t in before.items()}
    count = 0
    for batch in statistics_batches(context):
        context.network.forward(batch.inputs, {**state, **moved}, training=True)
        for name, t in moved.items():
            moves[name] += t - before[name]
            t.copy_(before[name])
        count += 1
    return {**state, **{n: t + moves[n] / (count * shares[n]) for n, t in before.items()}}
