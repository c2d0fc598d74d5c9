"""Scores of magnitude pruning: magnitude, and LAMP against its definition."""

from typing import Any

import pytest
import torch
from torch import Tensor

from ltp_pipeline.settings.schema import BaselineScore
from ltp_pipeline.stages.learn_thresholds.masks import keep_exactly
from ltp_pipeline.stages.learn_thresholds.scores import score_thresholds

COSTS = {"a": 9, "b": 40, "c": 1}
LOWEST = dict.fromkeys(COSTS, 0)


def make_weights() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    scales = {"a": 1.0, "b": 0.1, "c": 3.0}
    return {n: s * torch.randn(20, 15, generator=generator) for n, s in scales.items()}


def compute_lamp(w: Tensor) -> Tensor:
    """LAMP's score of each weight by its definition."""
    squares = w.square().flatten().double()
    return squares / torch.stack([squares[squares >= s].sum() for s in squares])


def keep(score: BaselineScore, weights: dict[str, Tensor], budget: int, **options: Any) -> Any:
    lowest = options.get("lowest", LOWEST)
    costs = options.get("costs")
    starts = score_thresholds(score, weights, lowest, budget, costs)
    return keep_exactly(weights, starts, lowest, budget, costs=costs)


@pytest.mark.parametrize("budget", [3, 37, 450, 899])
def test_lamp_keeps_the_largest_scores(budget: int) -> None:
    weights = make_weights()
    masks = keep("lamp", weights, budget)
    scores = torch.cat([compute_lamp(w) for w in weights.values()])
    mask = torch.cat([m.flatten() for m in masks.values()])
    assert int(mask.sum()) == budget
    assert torch.equal(scores.argsort(descending=True)[:budget].sort().values, mask.nonzero()[:, 0])


def test_lamp_with_costs_keeps_the_largest_scores_for_their_cost() -> None:
    weights = make_weights()
    masks = keep("lamp", weights, 3000, costs=COSTS)
    ratios = {n: compute_lamp(w).view_as(w) / COSTS[n] for n, w in weights.items()}
    worst_kept = min(ratios[n][m].min() for n, m in masks.items())
    best_pruned = max(ratios[n][~m].max() for n, m in masks.items())
    assert worst_kept > best_pruned
    cost = sum(COSTS[n] * int(m.sum()) for n, m in masks.items())
    assert 3000 - max(COSTS.values()) < cost <= 3000


def test_lamp_does_not_depend_on_the_scale_of_a_layer() -> None:
    weights = make_weights()
    scaled = {**weights, "a": weights["a"] / 16}
    for name, mask in keep("lamp", weights, 100).items():
        assert torch.equal(mask, keep("lamp", scaled, 100)[name])


def test_lamp_layer_that_keeps_all_weights_leaves_less_for_others() -> None:
    lowest = {"a": 300, "b": 0, "c": 0}
    masks = keep("lamp", make_weights(), 350, lowest=lowest)
    assert masks["a"].all()
    assert sum(int(m.sum()) for m in masks.values()) == 350
    scores = {n: compute_lamp(w).view_as(w) for n, w in make_weights().items()}
    kept = min(scores[n][masks[n]].min() for n in ("b", "c"))
    assert kept > max(scores[n][~masks[n]].max() for n in ("b", "c"))


def test_lamp_layer_of_zeros_is_pruned() -> None:
    weights = {**make_weights(), "b": torch.zeros(20, 15)}
    masks = keep("lamp", weights, 200)
    assert not masks["b"].any()
    assert sum(int(m.sum()) for m in masks.values()) == 200


def test_magnitude_thresholds_are_the_costs() -> None:
    thresholds = score_thresholds("magnitude", make_weights(), LOWEST, 100, COSTS)
    assert {name: float(t) for name, t in thresholds.items()} == COSTS
    thresholds = score_thresholds("magnitude", make_weights(), LOWEST, 100)
    assert set(map(float, thresholds.values())) == {1.0}
