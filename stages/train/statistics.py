"""Measure the running statistics of BatchNormalization again, for weights that have changed."""

from __future__ import annotations

import torch

from ltp_pipeline.stages.train.batches import statistics_batches
from ltp_pipeline.stages.train.context import RunContext
from ltp_pipeline.system.arrays import StateDict


@torch.no_grad()
def refresh_statistics(context: RunContext, state: StateDict) -> StateDict:
    """Return a copy of the state whose means and variances are those of training samples.

    A forward pass in training mode moves a statistic a fraction of the way (the momentum) to that
    of the batch. Each move is undone. The moves, divided by the fraction, average to the statistic
    of all batches.
    """
    momenta = context.network.forward.update_fractions
    if not momenta:
        return state
    before = {name: state[name] for name in momenta}
    live = {name: tensor.clone() for name, tensor in before.items()}
    moves = {name: torch.zeros_like(tensor) for name, tensor in before.items()}
    count = 0
    for batch in statistics_batches(context):
        context.network.forward(batch.inputs, {**state, **live}, training=True)
        for name, tensor in live.items():
            moves[name] += tensor - before[name]
            tensor.copy_(before[name])
        count += 1
    refreshed = {
        name: tensor + moves[name] / (count * momenta[name]) for name, tensor in before.items()
    }
    return {**state, **refreshed}
