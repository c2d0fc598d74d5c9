"""The protocol of a pruning method: how weights are pruned in training and how thresholds move.

budget_mode.py, paper_mode.py and fixed_masks.py implement it.
"""

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor

from ltp_pipeline.stages.train.phase import StepPosition


class PruningMethod(Protocol):
    """A way of pruning weights while they are trained.

    Attributes:
        layer_weights: The weights being pruned, by layer; training changes them in place.
        threshold_leaf: The leaf tensor that receives the gradient of the thresholds.
    """

    layer_weights: Mapping[str, Tensor]
    threshold_leaf: Tensor

    @property
    def tau(self) -> Tensor:
        """Thresholds on w², or on the mean of w² over a block, in the order of the layers."""

    @property
    def T(self) -> Tensor:
        """Temperatures, in the order of the layers."""

    def effective_weights(self) -> dict[str, Tensor]:
        """Return the pruned weights for a forward pass, differentiable."""

    def count_kept(self) -> int:
        """Return the number of weights that the network in training has at present."""

    def after_backward(self, position: StepPosition) -> None:
        """Move the thresholds."""

    def pruned_weights(self, progress: float) -> dict[str, Tensor]:
        """Return hard-pruned weights, as if the phase ended here.

        Args:
            progress: Completed fraction of the phase.
        """

    def state_dict(self) -> dict[str, Tensor]:
        """Return the tensors that a resumed run needs."""

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state_dict` returned."""

    def log_values(self, position: StepPosition) -> dict[str, float]:
        """Return λ and other values for the log line of this step."""
