"""A mild budget: the network still works when it is cut to size, so the cut is kept and the rest is trained.

Masks that move cost such a network more than better ones would bring; docs/method.md has the reason, (R5).
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from ltp_pipeline.stages.learn_thresholds.blocks import NO_BLOCKS, BlockAxes, weight_sizes
from ltp_pipeline.stages.learn_thresholds.masks import keep_exactly, scale_thresholds
from ltp_pipeline.stages.train.phase import StepPosition


class FixedMaskPruning:
    """One threshold for all kernels, and the masks it gives, held from the first step on."""

    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        lowest: Mapping[str, int],
        count: int,
        axes: BlockAxes = NO_BLOCKS,
    ) -> None:
        self.layer_weights = tensors
        with torch.no_grad():
            one, rs = (
                dict.fromkeys(tensors, next(iter(tensors.values())).new_ones(())),
                weight_sizes(tensors, axes),
            )
            self.masks = keep_exactly(rs, one, lowest, count, axes)
            self.tau = self.threshold_leaf = torch.stack(scale_thresholds(rs, one, lowest, count))
        self.count = sum(int(mask.sum()) for mask in self.masks.values())
        self.T = torch.zeros_like(self.tau)

    def effective_weights(self) -> dict[str, Tensor]:
        """Kept weights as they are; eq. (9)."""
        return {name: w * self.masks[name] for name, w in self.layer_weights.items()}

    def count_kept(self) -> int:
        """How many weights the network in training has."""
        return self.count

    def after_backward(self, position: StepPosition) -> None:
        """Nothing moves."""

    @torch.no_grad()
    def pruned_weights(self, share: float) -> dict[str, Tensor]:  # noqa: ARG002 - the same at any time
        """The network as it stands."""
        return {
            name: w.masked_fill(~self.masks[name], 0.0) for name, w in self.layer_weights.items()
        }

    def state_dict(self) -> dict[str, Tensor]:
        """Nothing: the masks come from the original."""
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Nothing to take back."""

    def log_values(self, position: StepPosition) -> dict[str, float]:  # noqa: ARG002 - nothing to say
        """There is no λ."""
        return {}
