"""Where thresholds settle if weights are held still: at the best masks for the budget.

The loss is ½ Σ α (v - w)². Without a weight it rises by ½ α w², so the best masks of a budget keep
the weights that are largest in α w² / κ.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ltp_pipeline.stages.learn_thresholds.budget_mode import SolvedLambdaPruning
from ltp_pipeline.stages.learn_thresholds.schedule import PruningSchedule
from ltp_pipeline.stages.train.phase import StepPosition

MIN_WEIGHTS = 4
FAR = 6.0  # change of log thresholds that reaches the best masks of these toys from any start


@dataclass(frozen=True)
class Toy:
    """A quadratic loss over layers of random weights.

    Attributes:
        sizes: Number of weights of each layer.
        alphas: α of each layer, for weights of unit scale.
        costs: Cost of one weight of each layer; None if the budget counts weights.
        scales: Scale of the weights of each layer. The loss does not depend on it, as that of a
            layer in front of a normalization layer.
        loss_scale: Factor of the loss.
    """

    sizes: Sequence[int]
    alphas: Sequence[float]
    costs: Sequence[int] | None = None
    scales: Sequence[float] | None = None
    loss_scale: float = 1.0

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        scales = self.scales or [1.0] * len(self.sizes)
        self.__dict__["weights"] = [
            s * torch.randn(size, generator=generator)
            for size, s in zip(self.sizes, scales, strict=True)
        ]
        self.__dict__["curvatures"] = [a / s**2 for a, s in zip(self.alphas, scales, strict=True)]

    def prune(self, compression: float, max_log_change: float = FAR, steps: int = 150) -> list[int]:
        """Learn thresholds and return the number of weights that each layer keeps."""
        method = self.learn(compression, max_log_change, steps)
        return [int(v.count_nonzero()) for v in method.pruned_weights(1.0).values()]

    def learn(
        self, compression: float, max_log_change: float = FAR, steps: int = 150, lr: float = 0.0
    ) -> SolvedLambdaPruning:
        """Learn thresholds, and weights at a learning rate; with 0 these are held still."""
        layers = {f"layer{i}": w.clone().requires_grad_() for i, w in enumerate(self.weights)}
        costs = None if self.costs is None else dict(zip(layers, self.costs, strict=True))
        total = sum(n * c for n, c in zip(self.sizes, self.costs or [1] * len(layers), strict=True))
        schedule = PruningSchedule.to_target(total, total, int(total / compression), 1.0)
        method = SolvedLambdaPruning(
            layers,
            dict.fromkeys(layers, MIN_WEIGHTS),
            schedule,
            (),
            costs=costs,
            max_log_change=max_log_change,
        )
        for step in range(steps):
            vs = method.effective_weights().values()
            lost = [
                0.5 * a * (v - w).square().sum()
                for a, v, w in zip(self.curvatures, vs, self.weights, strict=True)
            ]
            (self.loss_scale * torch.stack(lost).sum()).backward()
            method.after_backward(StepPosition(0, step, steps, threshold_lr=0.03))
            with torch.no_grad():
                for w in layers.values():
                    w -= lr * w.grad
                    w.grad = None
        return method

    def loss_of(self, counts: Sequence[int]) -> float:
        """Return the loss if each layer keeps this many of its largest weights."""
        losses = []
        for w, a, count in zip(self.weights, self.curvatures, counts, strict=True):
            losses.append(0.5 * a * w.square().sort().values[: len(w) - count].sum())
        return float(torch.stack(losses).sum())

    def best_loss(self, compression: float) -> float:
        """Return the loss of the best masks of the budget."""
        costs = self.costs or [1] * len(self.sizes)
        values, prices = [], []
        for w, a, c in zip(self.weights, self.curvatures, costs, strict=True):
            values.append(0.5 * a * w.square())
            prices.append(torch.full_like(w, c))
        value, price = torch.cat(values), torch.cat(prices)
        order = (value / price).argsort(descending=True)
        is_pruned = price[order].cumsum(0) > int(float(price.sum()) / compression)
        return float(value[order][is_pruned].sum())


FOUR_LAYERS = Toy([3_000] * 4, [1, 3, 10, 30])
SMALL_LAYER = Toy([10_000, 100], [1, 30])


@pytest.mark.parametrize(
    "toy",
    [
        FOUR_LAYERS,
        SMALL_LAYER,
        Toy([10_000, 100], [1, 1]),
        Toy([4_000] * 3, [1, 5, 2], costs=[1, 4, 16]),
    ],
    ids=["four-layers", "small-layer", "alike", "costs"],
)
@pytest.mark.parametrize("compression", [4, 10])
def test_learned_thresholds_lose_at_most_a_percent_more_than_the_best_masks(
    toy: Toy, compression: int
):
    assert toy.loss_of(toy.prune(compression)) <= 1.01 * toy.best_loss(compression)


def test_common_thresholds_lose_far_more_if_layers_matter_differently():
    learned, common = (FOUR_LAYERS.prune(10, change) for change in (FAR, 0.0))
    assert FOUR_LAYERS.loss_of(common) > 1.4 * FOUR_LAYERS.loss_of(learned)


@given(exponent=st.integers(-12, 12))
@settings(max_examples=5, deadline=None)
def test_masks_do_not_depend_on_the_scale_of_the_loss(exponent: int):
    scaled = Toy([2_000, 500], [1, 8], loss_scale=2.0**exponent)
    assert scaled.prune(8) == Toy([2_000, 500], [1, 8]).prune(8)


@given(scale=st.floats(1 / 16, 16))
@settings(max_examples=5, deadline=None)
def test_a_rescaled_layer_keeps_as_many_weights(scale: float):
    toy = Toy([2_000, 1_000], [1, 8], scales=[1.0, scale])
    expected = Toy([2_000, 1_000], [1, 8]).prune(8)
    assert toy.prune(8) == pytest.approx(expected, abs=0.03 * sum(expected))


def test_a_layer_that_is_split_in_two_keeps_as_many_weights():
    whole = Toy([4_000, 500], [1, 8])
    split = Toy([2_000, 2_000, 500], [1, 1, 8])
    first, second, last = split.prune(8)
    assert [first + second, last] == pytest.approx(whole.prune(8), abs=0.02 * 4_500 / 8)


def test_thresholds_stay_in_proportion_to_costs_if_weights_move():
    toy = Toy([2_000, 2_000], [1, 1], costs=[1, 9])
    tau = toy.learn(8, steps=300, lr=0.05).tau
    assert float(tau[1] / tau[0]) == pytest.approx(9, rel=0.2)


def test_weights_that_move_find_the_best_masks_under_a_common_threshold():
    toy = Toy([2_000, 2_000], [1, 10])
    best = toy.prune(8)
    method = toy.learn(8, max_log_change=0.0, steps=300, lr=0.05)
    moved = [int(v.count_nonzero()) for v in method.pruned_weights(1.0).values()]
    assert moved == pytest.approx(best, abs=0.02 * sum(best))
