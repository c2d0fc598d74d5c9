"""What learned thresholds are compared with, as methods of the same training phase: equal epochs, batches and loss."""

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


class GradualMagnitude:
    """Zhu and Gupta (2017): the smallest weights of the whole network go, along a cubic schedule."""

    def __init__(self, live: Mapping[str, Tensor], count: int) -> None:
        self.live, self.count = live, count
        self.total = sum(w.numel() for w in live.values())
        self.none = dict.fromkeys(live, 0)
        self.tau = self.leaf = torch.full((len(live),), TINY)
        self.T = torch.zeros(len(live))

    def schedule(self, share: float) -> int:
        """Weights kept when this share of the phase is done."""
        return self.count + round((self.total - self.count) * (1 - min(share, 1.0)) ** 3)

    def weights(self) -> dict[str, Tensor]:
        """Weights above the one threshold."""
        return {
            n: w * (w.detach().square() > t)
            for (n, w), t in zip(self.live.items(), self.tau, strict=True)
        }

    def kept(self) -> int:
        """How many weights lie above the threshold."""
        return count_above(self.live, self.tau)

    def after_backward(self, at: StepPosition) -> None:
        """Raise the threshold."""
        if (at.step + 1) % max(at.steps // 200, 1) == 0:
            self._solve(self.schedule((at.step + 1) / at.steps))

    @torch.no_grad()
    def _solve(self, count: int) -> None:
        alike = dict.fromkeys(self.live, torch.ones(()))
        self.tau = torch.stack(scale_thresholds(self.live, alike, self.none, count))

    @torch.no_grad()
    def hard(self, share: float) -> dict[str, Tensor]:
        """Exactly the scheduled count."""
        alike = dict.fromkeys(self.live, torch.ones(()))
        masks = keep_exactly(self.live, alike, self.none, self.schedule(share))
        return {n: w.masked_fill(~masks[n], 0.0) for n, w in self.live.items()}

    def state(self) -> dict[str, Tensor]:
        """Not resumed."""
        return {}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Not resumed."""

    def log(self, at: StepPosition) -> dict[str, float]:  # noqa: ARG002 - nothing to say
        """There is no λ."""
        return {}


class CommonThreshold(SolvedLambdaPruning):
    """Our method with one threshold for all layers: nothing is learned about how they differ."""

    def after_backward(self, at: StepPosition) -> None:
        """Leave out the loss, so that only the common factor moves thresholds."""
        assert self.log_tau.grad is not None  # noqa: S101 - called after backward
        self.log_tau.grad.zero_()
        super().after_backward(at)
