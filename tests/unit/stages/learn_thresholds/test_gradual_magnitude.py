"""Gradual magnitude pruning: hard masks on schedule, and weights that come back."""

from typing import Any

import pytest
import torch
from torch import Tensor

from ltp_pipeline.settings.schema import BaselineScore
from ltp_pipeline.stages.learn_thresholds.gradual_magnitude import GradualMagnitudePruning
from ltp_pipeline.stages.learn_thresholds.schedule import PruningSchedule
from ltp_pipeline.stages.train.phase import StepPosition

STEPS = 100
SCORES: tuple[BaselineScore, ...] = ("magnitude", "lamp")


def make(budget: int = 60, **options: Any) -> GradualMagnitudePruning:
    generator = torch.Generator().manual_seed(0)
    weights = {
        name: (s * torch.randn(8, 40, generator=generator)).requires_grad_()
        for name, s in (("a", 1.0), ("b", 0.1))
    }
    costs = options.get("costs") or dict.fromkeys(weights, 1)
    total = sum(costs[name] * w.numel() for name, w in weights.items())
    schedule = PruningSchedule(total, total, budget)
    return GradualMagnitudePruning(weights, dict.fromkeys(weights, 4), schedule, **options)


def move(method: GradualMagnitudePruning, step: int) -> None:
    method.after_backward(StepPosition(0, step, STEPS))


def count(tensors: dict[str, Tensor]) -> int:
    return sum(int(t.count_nonzero()) for t in tensors.values())


def test_gradual_pruning_begins_with_all_weights() -> None:
    method = make()
    forward = method.effective_weights()
    assert all(torch.equal(forward[n], w) for n, w in method.layer_weights.items())


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("step", [0, 49, 99])
def test_gradual_pruning_follows_the_cubic_schedule(score: BaselineScore, step: int) -> None:
    method = make(score=score)
    move(method, step)
    expected = 60 + round(580 * (1 - (step + 1) / STEPS) ** 3)
    assert method.count_kept() == count(method.effective_weights()) == expected
    assert count(method.pruned_weights((step + 1) / STEPS)) == expected


@pytest.mark.parametrize("score", SCORES)
def test_gradual_pruning_with_costs_ends_at_the_budget(score: BaselineScore) -> None:
    costs = {"a": 16, "b": 3}
    method = make(1000, costs=costs, score=score)
    pruned = method.pruned_weights(1.0)
    cost = sum(costs[n] * int(w.count_nonzero()) for n, w in pruned.items())
    assert 1000 - 16 < cost <= 1000


def test_gradual_pruning_scores_by_lamp_if_requested() -> None:
    counts = {}
    for score in SCORES:
        method = make(score=score)
        counts[score] = int(method.pruned_weights(1.0)["b"].count_nonzero())
    assert counts["magnitude"] == 4  # the layer of small weights keeps its minimum
    assert counts["lamp"] > 20


def test_pruned_weights_have_no_gradient_and_kept_ones_their_own() -> None:
    method = make()
    move(method, 60)
    forward = method.effective_weights()
    sum((3 * v).sum() for v in forward.values()).backward()  # type: ignore[union-attr]
    for name, w in method.layer_weights.items():
        assert w.grad is not None
        assert torch.equal(w.grad, 3.0 * (forward[name] != 0))


def test_pruned_weight_comes_back_if_others_fall_below_it() -> None:
    method = make()
    move(method, 99)
    w = method.layer_weights["a"]
    pruned = method.effective_weights()["a"] == 0
    largest_pruned = (w.detach().abs() * pruned).argmax()
    with torch.no_grad():
        w[~pruned] *= 1e-3
    move(method, 99)
    assert method.effective_weights()["a"].flatten()[largest_pruned] != 0


def test_gradual_pruning_removes_complete_blocks() -> None:
    method = make(axes={"a": 0})
    mask = method.pruned_weights(1.0)["a"] != 0
    assert torch.equal(mask.view(2, 4, 40).all(1), mask.view(2, 4, 40).any(1))
    assert 0 < int(mask.sum()) < 60


def test_equal_weights_are_pruned_to_the_exact_count() -> None:
    w = torch.ones(10, 10, requires_grad=True)
    method = GradualMagnitudePruning({"w": w}, {"w": 4}, PruningSchedule(100, 100, 30))
    assert count(method.pruned_weights(1.0)) == 30


def test_state_restores_the_thresholds() -> None:
    method = make()
    move(method, 50)
    state = {name: t.clone() for name, t in method.state_dict().items()}
    resumed = make()
    resumed.load_state_dict(state)
    assert torch.equal(resumed.tau, method.tau)
    assert resumed.count_kept() == method.count_kept()


def test_forward_pass_prunes_complete_blocks() -> None:
    method = make(axes={"a": 0})
    move(method, 60)
    mask = method.effective_weights()["a"] != 0
    assert torch.equal(mask.view(2, 4, 40).all(1), mask.view(2, 4, 40).any(1))
    assert 0 < int(mask.sum()) < mask.numel()
