"""The paper's own procedure: λ goes in, sparsity comes out."""

from collections.abc import Mapping

import torch
from torch import Tensor

from ltp_pipeline.stages.learn_thresholds.functional import (
    WeightGradient,
    soft_l0_slope,
    soft_prune,
    temperature,
    threshold_step,
)
from ltp_pipeline.stages.learn_thresholds.masks import keep_above
from ltp_pipeline.stages.training import Progress


class GivenLambda:
    """Soft pruning (1) with weight gradient (4), thresholds moved by (8) at a small share of the learning rate."""

    def __init__(
        self, live: Mapping[str, Tensor], lowest: Mapping[str, int], lam: float, lr_ratio: float, t0: float
    ) -> None:
        self.live, self.lowest, self.lam, self.lr_ratio = live, lowest, lam, lr_ratio
        with torch.no_grad():
            self.T = torch.stack([temperature(w, t0) for w in live.values()])
        self.tau = torch.zeros_like(self.T, requires_grad=True)

    def weights(self) -> dict[str, Tensor]:
        """v of eq. (1)."""
        layers = zip(self.live.items(), self.tau.unbind(), self.T.unbind(), strict=True)
        return {n: soft_prune(w, tau, T, WeightGradient.APPROXIMATE) for (n, w), tau, T in layers}

    @torch.no_grad()
    def after_backward(self, progress: Progress) -> None:
        """Move the thresholds by eq. (8)."""
        assert self.tau.grad is not None  # noqa: S101 - called after backward
        layers = zip(self.live.values(), self.tau.unbind(), self.T.unbind(), strict=True)
        slopes = torch.stack([soft_l0_slope(w, tau, T) for w, tau, T in layers])
        step = threshold_step(self.tau.grad, slopes, self.lam, self.lr_ratio * progress.lr)
        self.tau.add_(step).clamp_(min=0)
        self.tau.grad = None

    @torch.no_grad()
    def hard(self, share: float) -> dict[str, Tensor]:  # noqa: ARG002 - this method has no schedule
        """Weights above their threshold, eq. (9), and never fewer than the floor."""
        layers = zip(self.live.items(), self.tau.tolist(), strict=True)
        return {n: w.masked_fill(~keep_above(w, tau, self.lowest[n]), 0.0) for (n, w), tau in layers}

    def state(self) -> dict[str, Tensor]:
        """Thresholds and temperatures."""
        return {"tau": self.tau, "T": self.T}

    @torch.no_grad()
    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take them back."""
        self.tau.copy_(state["tau"])
        self.T.copy_(state["T"])

    def used_lambda(self) -> float:
        """λ as it was given."""
        return self.lam
