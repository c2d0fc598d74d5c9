"""What a way of pruning while training consists of; paper mode and budget mode are the two."""

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor

from ltp_pipeline.stages.train.phase import StepPosition


class PruningMethod(Protocol):
    """How weights are pruned while they are trained, and how thresholds move."""

    layer_weights: Mapping[str, Tensor]  # the kernels being pruned
    threshold_leaf: Tensor  # what the gradient of the thresholds arrives at

    @property
    def tau(self) -> Tensor:
        """Thresholds on w², or on the mean of a block's, in the order of `live`."""

    @property
    def T(self) -> Tensor:
        """Temperatures, in the same order."""

    def effective_weights(self) -> dict[str, Tensor]:
        """Pruned weights for a forward pass, differentiable."""

    def count_kept(self) -> int:
        """How many weights the network in training has now."""

    def after_backward(self, position: StepPosition) -> None:
        """Move the thresholds."""

    def pruned_weights(self, share: float) -> dict[str, Tensor]:
        """Hard-pruned weights if pruning ended here, with this share of the phase done."""

    def state_dict(self) -> dict[str, Tensor]:
        """What must survive an interruption."""

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state` gave."""

    def log_values(self, position: StepPosition) -> dict[str, float]:
        """λ and the thresholds' learning rate in this step."""
