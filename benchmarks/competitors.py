"""What learned thresholds are compared with, as methods of the same training phase: equal epochs, batches and loss."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from ltp_pipeline.stages.learn_thresholds.masks import TINY, count_above, keep_exactly, thresholds_for
from ltp_pipeline.stages.learn_thresholds.solved_lambda import SolvedLambda
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
        return {n: w * (w.detach().square() > t) for (n, w), t in zip(self.live.items(), self.tau, strict=True)}

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
        self.tau = torch.stack(thresholds_for(self.live, alike, self.none, count))

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


class CommonThreshold(SolvedLambda):
    """Our method with one threshold for all layers: nothing is learned about how they differ."""

    def after_backward(self, at: StepPosition) -> None:
        """Leave out the loss, so that only the common factor moves thresholds."""
        assert self.log_tau.grad is not None  # noqa: S101 - called after backward
        self.log_tau.grad.zero_()
        super().after_backward(at)


class SoftThreshold(GradualMagnitude):
    """STR (Kusupati et al., 2020): v = sign(w) relu(|w| - α_l) with α_l learned.

    STR has no budget: weight decay on α's parameter decides the outcome. To meet the same counts as the others, a
    common factor on all α is solved for, as in our own method.
    """

    def __init__(self, live: Mapping[str, Tensor], count: int) -> None:
        super().__init__(live, count)
        self.log_alpha = self.leaf = torch.full((len(live),), math.log(TINY) / 2, requires_grad=True)

    def weights(self) -> dict[str, Tensor]:
        """Soft-thresholded weights."""
        alphas = self.log_alpha.exp().unbind()
        return {n: w.sign() * (w.abs() - a).relu() for (n, w), a in zip(self.live.items(), alphas, strict=True)}

    @torch.no_grad()
    def after_backward(self, at: StepPosition) -> None:
        """Move every α against the loss, then all together to the schedule."""
        self.log_alpha -= at.lr * self.log_alpha.grad.clamp(-1, 1)
        self.log_alpha.grad = None
        super().after_backward(at)

    @torch.no_grad()
    def _solve(self, count: int) -> None:
        tau = dict(zip(self.live, (2 * self.log_alpha).exp(), strict=True))
        self.tau = torch.stack(thresholds_for(self.live, tau, self.none, count))
        self.log_alpha.copy_(self.tau.log() / 2)

    @torch.no_grad()
    def hard(self, share: float) -> dict[str, Tensor]:
        """Exactly the scheduled count, with the thresholded values."""
        count = self.schedule(share)
        self._solve(count)
        tau = dict(zip(self.live, self.tau.unbind(), strict=True))
        masks = keep_exactly(self.live, tau, self.none, count)
        soft = {n: w.sign() * (w.abs() - tau[n].sqrt()).clamp_min(1e-6) for n, w in self.live.items()}
        return {n: v.masked_fill(~masks[n], 0.0) for n, v in soft.items()}
