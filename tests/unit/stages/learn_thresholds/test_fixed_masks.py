"""A mild budget: the network is cut to size once, and its masks are held."""

import torch

from ltp_pipeline.stages.learn_thresholds.fixed_masks import FixedMaskPruning
from ltp_pipeline.stages.train.phase import StepPosition


def make() -> FixedMaskPruning:
    generator = torch.Generator().manual_seed(0)
    live = {
        n: (s * torch.randn(500, generator=generator)).requires_grad_()
        for n, s in (("a", 1.0), ("b", 0.01))
    }
    return FixedMaskPruning(live, dict.fromkeys(live, 4), 300)


def test_fixed_masks_keep_the_largest_weights_and_minimum():
    method = make()
    pruned = method.effective_weights()
    kept = {n: v != 0 for n, v in pruned.items()}
    assert (int(kept["a"].sum()), int(kept["b"].sum()), method.count_kept()) == (296, 4, 300)
    assert all(torch.equal(pruned[n][kept[n]], method.layer_weights[n][kept[n]]) for n in kept)
    assert (
        method.layer_weights["a"][kept["a"]].abs().min()
        > method.layer_weights["a"][~kept["a"]].abs().max()
    )


def test_fixed_masks_keep_complete_blocks():
    w = torch.randn(8, 9, generator=torch.Generator().manual_seed(0)).requires_grad_()
    method = FixedMaskPruning({"w": w}, {"w": 4}, 30, {"w": 0})
    sizes = w.detach().view(2, 4, 9).square().sum(1)
    largest = sizes >= sizes.flatten().sort(descending=True).values[6]
    assert method.count_kept() == 28
    assert torch.equal(method.masks["w"], largest.repeat_interleave(4, 0))
    assert torch.equal(method.effective_weights()["w"] != 0, method.masks["w"])


def test_fixed_masks_keep_weights_that_shrink():
    method = make()
    before = {n: v != 0 for n, v in method.effective_weights().items()}
    with torch.no_grad():
        for w in method.layer_weights.values():
            w.mul_(1e-3)
    method.after_backward(StepPosition(0, 0, 10, lr=0.1, threshold_lr=0.1))
    assert all(torch.equal(v != 0, before[n]) for n, v in method.pruned_weights(1.0).items())


def test_fixed_masks_give_gradients_to_unpruned_weights():
    method = make()
    sum(v.sum() for v in method.effective_weights().values()).backward()
    assert all(torch.equal(w.grad != 0, method.masks[n]) for n, w in method.layer_weights.items())
