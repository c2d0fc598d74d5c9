"""Pruning methods that learned thresholds are compared with, for the same training phase."""

from collections.abc import Mapping

import torch
from torch import Tensor

from ltp_pipeline.stages.learn_thresholds.budget_mode import SolvedLambdaPruning
from ltp_pipeline.stages.learn_thresholds.masks import (
    TINY,
    count_above,
    keep_exactly,
    scale_thresholds,
)
from ltp_pipeline.stages.train.phase import StepPosition

MAX_SOLVES = 200  # number of times that the threshold is raised in a phase


class GradualMagnitude:
    """Prune the smallest weights of all layers together along a cubic schedule.

    Zhu and Gupta (2017), *To prune, or not to prune*.
    """

    def __init__(self, layer_weights: Mapping[str, Tensor], count: int) -> None:
        """Begin with all weights.

        Args:
            layer_weights: The weights being pruned, by layer; training changes them in place.
            count: Number of weights to keep at the end of the phase.
        """
        self.layer_weights = layer_weights
        self.count = count
        self.total = sum(w.numel() for w in layer_weights.values())
        self.equal_thresholds = dict.fromkeys(layer_weights, torch.ones(()))
        self.lowest = dict.fromkeys(layer_weights, 0)
        self.tau = self.threshold_leaf = torch.full((len(layer_weights),), TINY)
        self.T = torch.zeros(len(layer_weights))

    def scheduled_count(self, progress: float) -> int:
        """Return the number of weights to keep after a fraction of the phase."""
        pruned = self.total - self.count
        return self.count + round(pruned * (1 - min(progress, 1.0)) ** 3)

    def effective_weights(self) -> dict[str, Tensor]:
        """Return the weights above the threshold and zero for all others."""
        pairs = zip(self.layer_weights.items(), self.tau, strict=True)
        return {name: w * (w.detach().square() > tau) for (name, w), tau in pairs}

    def count_kept(self) -> int:
        """Return the number of weights above the threshold."""
        return count_above(self.layer_weights, self.tau)

    @torch.no_grad()
    def after_backward(self, position: StepPosition) -> None:
        """Raise the threshold in MAX_SOLVES of the steps."""
        completed = position.step + 1
        if completed % max(position.steps // MAX_SOLVES, 1) == 0:
            count = self.scheduled_count(completed / position.steps)
            thresholds = scale_thresholds(
                self.layer_weights, self.equal_thresholds, self.lowest, count
            )
            self.tau = torch.stack(thresholds)

    @torch.no_grad()
    def pruned_weights(self, progress: float) -> dict[str, Tensor]:
        """Return exactly the scheduled number of weights, and zero for all others."""
        count = self.scheduled_count(progress)
        masks = keep_exactly(self.layer_weights, self.equal_thresholds, self.lowest, count)
        return {name: w.masked_fill(~masks[name], 0.0) for name, w in self.layer_weights.items()}

    def state_dict(self) -> dict[str, Tensor]:
        """Return nothing, because benchmarks do not resume a phase."""
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore nothing, see `state_dict`."""

    def log_values(self, position: StepPosition) -> dict[str, float]:  # noqa: ARG002 - no values
        """Return nothing, because there is no λ."""
        return {}


class CommonThreshold(SolvedLambdaPruning):
    """LTP with one threshold for all layers, whose differences are not learned."""

    def after_backward(self, position: StepPosition) -> None:
        """Ignore the gradient of the loss, so that only the common factor moves thresholds."""
        assert self.log_tau.grad is not None  # noqa: S101 - called after backward
        self.log_tau.grad.zero_()
        super().after_backward(position)
