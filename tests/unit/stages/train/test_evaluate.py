"""Accuracy while training."""

import torch

from ltp_pipeline.stages.train.context import RunContext
from ltp_pipeline.stages.train.evaluate import evaluate_metric
from ltp_pipeline.system.arrays import StateDict


def test_evaluate_leaves_weights_and_statistics_unchanged(started: tuple[RunContext, StateDict]):
    context, state = started
    before = {n: t.clone() for n, t in state.items()}
    assert evaluate_metric(context, state, context.data.val) > 0.9
    assert all(torch.equal(before[n], t) for n, t in state.items())
