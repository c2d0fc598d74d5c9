"""Pruning for a mild budget: prune in one shot, keep the masks fixed and train what remains.

A network that still works after one-shot pruning loses more by moving masks than better masks
would gain; docs/explanation/method.md, (R5), has the reason.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from ltp_pipeline.stages.learn_thresholds.blocks import NO_BLOCKS, BlockAxes, weight_sizes
from ltp_pipeline.stages.learn_thresholds.masks import keep_exactly, scale_thresholds
from ltp_pipeline.stages.train.phase import StepPosition


class FixedMaskPruning:
    """Thresholds in proportion to costs, whose masks stay fixed from the first step on."""

    def __init__(
        self,
        layer_weights: Mapping[str, Tensor],
        lowest: Mapping[str, int],
        budget: int,
        axes: BlockAxes = NO_BLOCKS,
        costs: Mapping[str, int] | None = None,
    ) -> None:
        """Choose the masks.

        Args:
            layer_weights: The weights being pruned, by layer.
            lowest: The smallest number of weights that each layer keeps.
            budget: Cost of the weights to keep in all layers together.
            axes: Axis of the output channels of layers that are pruned in blocks.
            costs: Cost of one weight of each layer; None if the budget counts weights.
        """
        self.layer_weights = layer_weights
        unit = next(iter(layer_weights.values())).new_ones(())
        starts = {name: unit * (costs[name] if costs else 1) for name in layer_weights}
        with torch.no_grad():
            sizes = weight_sizes(layer_weights, axes)
            self.masks = keep_exactly(sizes, starts, lowest, budget, axes, costs)
            thresholds = scale_thresholds(sizes, starts, lowest, budget, costs)
            self.tau = self.threshold_leaf = torch.stack(thresholds)
        self.count = sum(int(mask.sum()) for mask in self.masks.values())
        self.T = torch.zeros_like(self.tau)

    def effective_weights(self) -> dict[str, Tensor]:
        """Return the kept weights unchanged and zero for all others. Eq. (9)."""
        return {name: w * self.masks[name] for name, w in self.layer_weights.items()}

    def count_kept(self) -> int:
        """Return the number of weights that the masks keep."""
        return self.count

    def after_backward(self, position: StepPosition) -> None:
        """Leave the thresholds as they are."""

    @torch.no_grad()
    def pruned_weights(self, progress: float) -> dict[str, Tensor]:  # noqa: ARG002 - masks are fixed
        """Return the masked weights."""
        return {
            name: w.masked_fill(~self.masks[name], 0.0) for name, w in self.layer_weights.items()
        }

    def state_dict(self) -> dict[str, Tensor]:
        """Return nothing, because the masks follow from the original weights."""
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore nothing, see `state_dict`."""

    def log_values(self, position: StepPosition) -> dict[str, float]:  # noqa: ARG002 - no values
        """Return nothing, because there is no λ."""
        return {}
