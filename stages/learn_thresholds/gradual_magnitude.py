"""Gradual magnitude pruning: hard masks by magnitude, along a cubic schedule of the cost.

Zhu and Gupta, 2017. A pruned weight is zero in the forward pass and has no gradient. Its stored
value stays, so the weight comes back if the threshold of its layer falls below that value.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from ltp_pipeline.settings.schema import BaselineScore
from ltp_pipeline.stages.learn_thresholds.blocks import NO_BLOCKS, BlockAxes, weight_sizes
from ltp_pipeline.stages.learn_thresholds.budget_mode import MAX_SOLVES
from ltp_pipeline.stages.learn_thresholds.functional import is_kept
from ltp_pipeline.stages.learn_thresholds.masks import (
    TINY,
    count_above,
    keep_exactly,
    scale_thresholds,
)
from ltp_pipeline.stages.learn_thresholds.schedule import PruningSchedule
from ltp_pipeline.stages.learn_thresholds.scores import score_thresholds
from ltp_pipeline.stages.train.phase import StepPosition


class GradualMagnitudePruning:
    """Thresholds that follow from a score and from the cost that the schedule leaves."""

    def __init__(
        self,
        layer_weights: Mapping[str, Tensor],
        lowest: Mapping[str, int],
        schedule: PruningSchedule,
        axes: BlockAxes = NO_BLOCKS,
        costs: Mapping[str, int] | None = None,
        score: BaselineScore = "magnitude",
    ) -> None:
        """Begin with all weights.

        Args:
            layer_weights: The weights being pruned, by layer; training changes them in place.
            lowest: The smallest number of weights that each layer keeps.
            schedule: Cost of the kept weights.
            axes: Axis of the output channels of layers that are pruned in blocks.
            costs: Cost of one weight of each layer; None if the budget counts weights.
            score: The score by which weights are compared.
        """
        self.layer_weights = layer_weights
        self.lowest = lowest
        self.schedule = schedule
        self.axes = axes
        self.costs = costs
        self.score = score
        device = next(iter(layer_weights.values())).device
        self.tau = torch.full((len(layer_weights),), TINY, device=device)
        self.T = torch.zeros_like(self.tau)
        self.threshold_leaf = self.tau  # no gradient moves the thresholds

    def cost_at(self, progress: float) -> int:
        """Return the cost that is left at a point of the phase."""
        return self.schedule.count_at(progress)

    def effective_weights(self) -> dict[str, Tensor]:
        """Return the weights above their thresholds, and zero for all others. Eq. (9)."""
        sizes = weight_sizes(self.layer_weights, self.axes)
        layers = zip(self.layer_weights.items(), self.tau, strict=True)
        return {name: w * is_kept(sizes[name].detach(), t) for (name, w), t in layers}

    def count_kept(self) -> int:
        """Return the number of weights above their thresholds."""
        return count_above(weight_sizes(self.layer_weights, self.axes), self.tau)

    def after_backward(self, position: StepPosition) -> None:
        """Move the thresholds along the schedule in MAX_SOLVES of the steps."""
        completed = position.step + 1
        if completed % max(position.steps // MAX_SOLVES, 1) == 0:
            self.update_thresholds(completed / position.steps)

    @torch.no_grad()
    def update_thresholds(self, progress: float) -> None:
        """Move the thresholds to where weights of the scheduled cost are above them."""
        sizes = weight_sizes(self.layer_weights, self.axes)
        cost = self.cost_at(progress)
        starts = score_thresholds(self.score, sizes, self.lowest, cost, self.costs)
        thresholds = scale_thresholds(sizes, starts, self.lowest, cost, self.costs)
        self.tau = torch.stack(thresholds)

    @torch.no_grad()
    def pruned_weights(self, progress: float) -> dict[str, Tensor]:
        """Return the weights at exactly the scheduled cost, and move the thresholds there."""
        self.update_thresholds(progress)
        masks = self.find_masks(progress)
        return {name: w.masked_fill(~masks[name], 0.0) for name, w in self.layer_weights.items()}

    @torch.no_grad()
    def find_masks(self, progress: float) -> dict[str, Tensor]:
        """Return masks of exactly the scheduled cost."""
        sizes = weight_sizes(self.layer_weights, self.axes)
        cost = self.cost_at(progress)
        starts = score_thresholds(self.score, sizes, self.lowest, cost, self.costs)
        return keep_exactly(sizes, starts, self.lowest, cost, self.axes, self.costs)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the thresholds."""
        return {"tau": self.tau}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state_dict` returned."""
        self.tau.copy_(state["tau"])

    def log_values(self, position: StepPosition) -> dict[str, float]:  # noqa: ARG002 - no values
        """Return nothing, because there is no λ."""
        return {}
