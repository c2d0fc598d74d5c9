"""Scores by which magnitude pruning compares weights of different layers.

A score is given as thresholds on r², one for each layer, that only need a common factor: the
weights that are largest in r² / threshold have the largest scores. `sizes`, `lowest` and `costs`
are those of masks.py.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from ltp_pipeline.settings.schema import BaselineScore
from ltp_pipeline.stages.learn_thresholds.masks import TINY, affordable_ratio


@torch.no_grad()
def score_thresholds(
    score: BaselineScore,
    sizes: Mapping[str, Tensor],
    lowest: Mapping[str, int],
    budget: int,
    costs: Mapping[str, int] | None = None,
) -> dict[str, Tensor]:
    """Return thresholds on r² that stand for a score, up to a common factor.

    Args:
        score: "magnitude" for w² / cost, "lamp" for LAMP scores / cost.
        sizes: r of each layer.
        lowest: The smallest number of weights that each layer keeps.
        budget: Cost of the weights to keep. LAMP's thresholds are exact for this cost.
        costs: Cost of one weight of each layer; None if the budget counts weights.
    """
    cost_of = dict.fromkeys(sizes, 1) if costs is None else costs
    if score == "lamp":
        return _lamp_thresholds(sizes, lowest, budget, cost_of)
    return {name: r.new_tensor(float(cost_of[name])) for name, r in sizes.items()}


def _lamp_thresholds(
    sizes: Mapping[str, Tensor],
    lowest: Mapping[str, int],
    budget: int,
    costs: Mapping[str, int],
) -> dict[str, Tensor]:
    """Return the square of the smallest weight of each layer that LAMP keeps.

    Lee et al., 2021: the score of a weight is its square, divided by the sum of all squares of the
    layer that are not smaller.
    """
    squares = []
    ratios = []
    for name, r in sizes.items():
        ordered = r.detach().square().flatten().sort().values
        not_smaller = ordered.flip(0).cumsum(0).flip(0)
        ratio = ordered / not_smaller.clamp_min(TINY) / costs[name]
        ratio[len(ratio) - lowest[name] :] = torch.inf
        squares.append(ordered)
        ratios.append(ratio)
    lengths = [len(ratio) for ratio in ratios]
    layer_costs = {name: costs[name] for name in sizes}
    limit = affordable_ratio(torch.cat(ratios), lengths, layer_costs, budget)
    thresholds = {}
    for name, ordered, ratio in zip(sizes, squares, ratios, strict=True):
        kept_squares = ordered[ratio > limit]
        smallest = kept_squares.min() if len(kept_squares) else ordered.max()
        thresholds[name] = smallest.clamp_min(TINY)
    return thresholds
