"""Accuracy while training."""

import torch

from ltp_pipeline.stages.train.evaluate import accuracy
from ltp_pipeline.stages.train.job import RunContext
from ltp_pipeline.system.arrays import StateDict


def test_evaluating_does_not_move_weights_or_statistics(started: tuple[RunContext, StateDict]):
    job, state = started
    before = {n: t.clone() for n, t in state.items()}
    assert accuracy(job, state, job.data.val) > 0.9
    assert all(torch.equal(before[n], t) for n, t in state.items())
