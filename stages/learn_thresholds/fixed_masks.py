"""A mild budget: the network still works when it is cut to size, so the cut is kept and the rest is trained.

Masks that move cost such a network more than better ones would bring; docs/method.md has the reason, (R5).
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from ltp_pipeline.stages.learn_thresholds.blocks import NO_BLOCKS, Axes, sizes
from ltp_pipeline.stages.learn_thresholds.masks import keep_exactly, thresholds_for
from ltp_pipeline.stages.train.phase import StepPosition


class FixedMaskPruning:
    """One threshold for all kernels, and the masks it gives, held from the first step on."""

    def __init__(
        self,
        live: Mapping[str, Tensor],
        lowest: Mapping[str, int],
        count: int,
        axes: Axes = NO_BLOCKS,
    ) -> None:
        self.live = live
        with torch.no_grad():
            one, rs = dict.fromkeys(live, next(iter(live.values())).new_ones(())), sizes(live, axes)
            self.masks = keep_exactly(rs, one, lowest, count, axes)
            self.tau = self.leaf = torch.stack(thresholds_for(rs, one, lowest, count))
        self.count = sum(int(mask.sum()) for mask in self.masks.values())
        self.T = torch.zeros_like(self.tau)

    def weights(self) -> dict[str, Tensor]:
        """Kept weights as they are; eq. (9)."""
        return {name: w * self.masks[name] for name, w in self.live.items()}

    def kept(self) -> int:
        """How many weights the network in training has."""
        return self.count

    def after_backward(self, at: StepPosition) -> None:
        """Nothing moves."""

    @torch.no_grad()
    def hard(self, share: float) -> dict[str, Tensor]:  # noqa: ARG002 - the same at any time
        """The network as it stands."""
        return {name: w.masked_fill(~self.masks[name], 0.0) for name, w in self.live.items()}

    def state(self) -> dict[str, Tensor]:
        """Nothing: the masks come from the original."""
        return {}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Nothing to take back."""

    def log(self, at: StepPosition) -> dict[str, float]:  # noqa: ARG002 - nothing to say
        """There is no λ."""
        return {}
