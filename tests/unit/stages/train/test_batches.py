"""Batches of training."""

import torch

from ltp_pipeline.stages.train import batches
from ltp_pipeline.stages.train.context import RunContext
from ltp_pipeline.system.arrays import StateDict


def test_statistics_behind_dropout_do_not_depend_on_earlier_draws(
    started: tuple[RunContext, StateDict],
):
    """So that a run that goes on measures what an uninterrupted one measures."""
    context, _ = started
    seen = []
    for drawn in (1, 7):
        torch.rand(drawn)
        next(batches.statistics_batches(context))
        seen.append(torch.rand(3))
    assert torch.equal(*seen)
