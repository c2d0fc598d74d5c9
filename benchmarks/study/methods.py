"""The methods of the study, as pruning methods of one training phase: equal epochs, batches, loss."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ltp_pipeline.settings.schema import BaselineScore
from ltp_pipeline.stages.learn_thresholds.budget_mode import MAX_LOG_CHANGE, SolvedLambdaPruning
from ltp_pipeline.stages.learn_thresholds.fixed_masks import FixedMaskPruning
from ltp_pipeline.stages.learn_thresholds.gradual_magnitude import GradualMagnitudePruning
from ltp_pipeline.stages.learn_thresholds.masks import TINY
from ltp_pipeline.stages.learn_thresholds.method import PruningMethod
from ltp_pipeline.stages.learn_thresholds.schedule import PruningSchedule
from ltp_pipeline.stages.train.optimizer import iter_moments
from ltp_pipeline.stages.train.phase import StepPosition

UPDATES = 200  # number of times that thresholds follow the schedule, as in the product


@dataclass(frozen=True)
class Task:
    """What a method is given.

    Attributes:
        weights: Layer weights being trained, by name.
        lowest: The smallest number of weights that each layer keeps.
        costs: Cost of one weight of each layer.
        fraction: Fraction of the cost that is left at the end.
        scaled: Layers without a normalization layer behind them.
        aggressiveness: m of (R5), by the product's rule.
        counts_weights: True if every weight costs 1.
    """

    weights: Mapping[str, Tensor]
    lowest: Mapping[str, int]
    costs: Mapping[str, int]
    fraction: float
    scaled: frozenset[str]
    aggressiveness: float
    counts_weights: bool

    @property
    def total(self) -> int:
        """Cost of all weights."""
        return round(sum(self.costs[name] * w.numel() for name, w in self.weights.items()))

    @property
    def budget(self) -> int:
        """Cost that is left at the end."""
        return int(self.total * self.fraction)


class MagnitudeMethod(GradualMagnitudePruning):
    """The product's gradual magnitude pruning, and the base of methods along such a schedule."""

    epochs_of_pruning = 2 / 3  # fraction of all epochs in which the schedule runs
    clears_moments = True  # of weights without a gradient
    score_name: BaselineScore = "magnitude"

    def __init__(self, task: Task) -> None:
        """Begin with all weights."""
        schedule = PruningSchedule(task.total, task.total, task.budget)
        costs = None if task.counts_weights else task.costs
        super().__init__(task.weights, task.lowest, schedule, costs=costs, score=self.score_name)
        self.task = task

    def after_step(self, position: StepPosition) -> None:
        """Change weights after the optimizer did."""

    @torch.no_grad()
    def pruned_weights(self, progress: float) -> dict[str, Tensor]:
        """Return the hard-pruned weights, as the forward pass has them."""
        self.update_thresholds(progress)
        masks = self.find_masks(progress)
        forward = self.effective_weights()
        return {name: v.detach().masked_fill(~masks[name], 0.0) for name, v in forward.items()}


class LampMethod(MagnitudeMethod):
    """Gradual magnitude with LAMP scores: w² / the sum of all squares that are not smaller."""

    score_name: BaselineScore = "lamp"


class FeatherMethod(MagnitudeMethod):
    """Feather (Georgoulakis et al., 2023): a smooth threshold, with a straight-through gradient."""

    epochs_of_pruning = 1.0
    clears_moments = False

    def cost_at(self, progress: float) -> int:
        """Reach the budget after half of the steps."""
        return super().cost_at(2 * progress)

    def effective_weights(self) -> dict[str, Tensor]:
        """Return sign(w) (|w|³ - T³)^⅓ above the threshold T, whose gradient is 1, below it θ."""
        theta = 0.5 if self.task.fraction < 0.05 else 1.0
        layers = zip(self.layer_weights.items(), self.tau, strict=True)
        return {name: _Feather.apply(w, t.sqrt(), theta) for (name, w), t in layers}  # type: ignore[no-untyped-call]


class _Feather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, w, limit, theta):  # type: ignore[no-untyped-def]
        size = w.abs()
        mask = size > limit
        ctx.save_for_backward(mask)
        ctx.theta = theta
        return torch.where(mask, w.sign() * (size**3 - limit**3).clamp_min(0) ** (1 / 3), 0.0)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        (mask,) = ctx.saved_tensors
        return torch.where(mask, grad, ctx.theta * grad), None, None


class St3Method(MagnitudeMethod):
    """ST-3 (Vanderschueren and De Vleeschouwer, 2023): soft thresholds, rescaled by channel."""

    epochs_of_pruning = 1.0
    clears_moments = False

    def cost_at(self, progress: float) -> int:
        """Run the cubic from 5 to 50 percent of the steps."""
        return super().cost_at(max(progress - 0.05, 0) / 0.45)

    def effective_weights(self) -> dict[str, Tensor]:
        """Return c (w - sign(w) T) above the threshold T, with c by output channel."""
        layers = zip(self.layer_weights.items(), self.tau, strict=True)
        pruned = {}
        for (name, w), t in layers:
            with torch.no_grad():
                mask = w.square() > t
                rows = w.abs().flatten(1)
                ratio = (rows * mask.flatten(1)).mean(1) / rows.mean(1).clamp_min(1e-12)
                factor = (1.01 / (ratio + 0.01)).view(-1, *[1] * (w.dim() - 1))
                value = factor * (w - w.sign() * t.sqrt()) * mask
            pruned[name] = value + (w - w.detach())  # the gradient of w passes as it is
        return pruned

    @torch.no_grad()
    def pruned_weights(self, progress: float) -> dict[str, Tensor]:
        """Return the hard-pruned weights, rescaled as in training."""
        return super().pruned_weights(progress)


class AcdcHamMethod(MagnitudeMethod):
    """AC/DC (Peste et al., 2021): dense and sparse epochs in turn; with HAM's multiplicative step."""

    epochs_of_pruning = 1.0
    ALPHA = 200.0
    BETA = 1e-3
    is_sparse = False

    def after_backward(self, position: StepPosition) -> None:
        """Change between dense and sparse; the last 15 percent are sparse."""
        progress = (position.step + 1) / position.steps
        was_sparse = self.is_sparse
        self.is_sparse = progress >= 0.85 or (progress >= 1 / 6 and int(progress * 12) % 2 == 1)
        if self.is_sparse and not was_sparse:
            self.update_thresholds(1.0)
        elif not self.is_sparse:
            self.tau = torch.full_like(self.tau, TINY)

    @torch.no_grad()
    def after_step(self, position: StepPosition) -> None:
        """Multiply each weight by exp(lr (-α sign(w) ∇ - β)), limited."""
        for w in self.layer_weights.values():
            if w.grad is not None:
                step = position.lr * (-self.ALPHA * w.sign() * w.grad - self.BETA)
                w.mul_(step.clamp(-5, 5).exp())


class FormerLtp(SolvedLambdaPruning):
    """The product's former method: Δ log τ = -η c ∂L/∂log τ, clipped to η; no gradient below τ."""

    def effective_weights(self) -> dict[str, Tensor]:
        """Return v of (R2), without a gradient of pruned weights."""
        own = self.layer_weights
        layers = zip(own.items(), self.tau, strict=True)
        self.layer_weights = {name: w * (w.detach().square() > t) for (name, w), t in layers}
        try:
            return super().effective_weights()
        finally:
            self.layer_weights = own

    @torch.no_grad()
    def after_backward(self, position: StepPosition) -> None:
        """Move every threshold by its own gradient, then solve for the common factor."""
        gradient = self.log_tau.grad
        assert gradient is not None  # noqa: S101 - called after backward
        self.log_tau.grad = None
        widths = self.tau.new_tensor(self.widths)
        self.log_tau -= position.threshold_lr * (widths * gradient).clamp(-1, 1)
        progress = (position.step + 1) / position.steps
        self.widths = self._gate_widths(progress)
        if (position.step + 1) % max(position.steps // UPDATES, 1) == 0:
            self._solve_lambda(self.schedule.count_at(progress))


MAGNITUDE_METHODS = {
    "gradual": MagnitudeMethod,
    "own-loop": MagnitudeMethod,
    "feather": FeatherMethod,
    "lamp-gradual": LampMethod,
    "st3": St3Method,
    "acdc-ham": AcdcHamMethod,
}
GATED_METHODS = ("ltp", "common", "common-plain", "ltp-former")


def make_method(name: str, task: Task) -> PruningMethod | MagnitudeMethod:
    """Return a method by its name in the plan; `dense` has none."""
    if name in MAGNITUDE_METHODS:
        return MAGNITUDE_METHODS[name](task)
    costs = None if task.counts_weights else task.costs
    if name == "one-shot" or (name in GATED_METHODS and task.aggressiveness == 0):
        return FixedMaskPruning(task.weights, task.lowest, task.budget, costs=costs)
    schedule = PruningSchedule.to_target(task.total, task.total, task.budget, task.aggressiveness)
    method = FormerLtp if name == "ltp-former" else SolvedLambdaPruning
    pruning = method(
        task.weights,
        task.lowest,
        schedule,
        task.scaled,
        costs=costs,
        max_log_change=MAX_LOG_CHANGE if name == "ltp" else 0.0,
    )
    if name == "common-plain":
        with torch.no_grad():
            pruning.log_tau.fill_(math.log(TINY))
            pruning._solve_lambda(schedule.count_at(0.0))
    return pruning


def epochs_of(name: str, total: int, aggressiveness: float) -> int:
    """Return the epochs of pruning; the others are fine-tuning with fixed masks."""
    if name in MAGNITUDE_METHODS:
        return round(total * MAGNITUDE_METHODS[name].epochs_of_pruning)
    if name == "one-shot":
        return 0
    return max(round(total * (1 + 3 * aggressiveness) / 6), 1)


def clear_moments(optimizer: torch.optim.Optimizer, weights: Mapping[str, Tensor]) -> None:
    """Clear the optimizer's moments of weights without a gradient."""
    for w in weights.values():
        if w.grad is not None:
            is_kept = w.grad.abs().sign()
            for moment in iter_moments(optimizer, w):
                moment.mul_(is_kept)
