"""What is pruned stays zero while the rest is trained."""

import pytest
import torch

from ltp_pipeline.stages import baseline, finetune
from ltp_pipeline.stages.prune import apply_masks, nonzero_masks
from ltp_pipeline.stages.train.context import PrunedNetwork, RunContext
from ltp_pipeline.system.arrays import StateDict
from tests.support.contexts import with_train


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_finetune_pruned_weights_stay_zero(started: tuple[RunContext, StateDict], optimizer: str):
    context, state = started
    context = with_train(context, optimizer=optimizer, weight_decay=0.1)
    masks = {
        k.name: torch.rand(k.shape, generator=torch.Generator().manual_seed(0)) < 0.3
        for k in context.network.prunable_weights
    }
    before = apply_masks(state, masks)
    after = finetune.run(
        context, PrunedNetwork(dict(before), nonzero_masks(context.network, before), 0, {}), 1
    ).state
    for name, mask in masks.items():
        assert torch.equal(after[name] != 0, mask), name
        assert not torch.equal(after[name], before[name])


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_finetune_of_baseline_keeps_its_count(
    started: tuple[RunContext, StateDict], optimizer: str
):
    context, state = started
    context = with_train(context, optimizer=optimizer, weight_decay=0.1)
    count = sum(k.elements for k in context.network.layer_weights) // 10
    masks = baseline.global_magnitude_masks(context.network, state, count)
    baseline_network = baseline.run(context, state, count, 1)
    assert baseline_network.nonzeros == count
    assert all(torch.equal(baseline_network.state[name] != 0, mask) for name, mask in masks.items())
