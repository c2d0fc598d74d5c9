"""λ solved, not tuned: the regulariser's weight that makes the kept fraction follow a schedule."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ltp_pipeline.stages.learn_thresholds.functional import threshold_step
from ltp_pipeline.stages.learn_thresholds.masks import keep_above, keep_exactly
from ltp_pipeline.stages.learn_thresholds.thresholds import Thresholds


class Rule(Protocol):
    """How thresholds move, and which weights they leave."""

    def update(self, thresholds: Thresholds, lr: float, progress: float) -> float:
        """Move them one step after a backward pass; returns the λ that was used."""

    def masks(self, thresholds: Thresholds, progress: float) -> dict[str, Tensor]:
        """Weights to keep if pruning ended here; `progress` goes from 0 to 1."""


@dataclass
class GivenLambda:
    """The paper's own update, eq. (8): λ goes in, sparsity comes out."""

    lam: float
    lr_ratio: float
    floors: Mapping[str, int]

    def update(self, thresholds: Thresholds, lr: float, progress: float) -> float:  # noqa: ARG002 - the shape of a rule
        """Move the thresholds one step; returns λ."""
        assert thresholds.tau.grad is not None  # noqa: S101 - called after backward
        with torch.no_grad():
            step = threshold_step(thresholds.tau.grad, thresholds.slopes(), self.lam, self.lr_ratio * lr)
            thresholds.tau.add_(step).clamp_(min=0)
        return self.lam

    def masks(self, thresholds: Thresholds, progress: float) -> dict[str, Tensor]:  # noqa: ARG002 - the shape of a rule
        """Weights above their threshold, eq. (9)."""
        taus = dict(zip(thresholds.names, thresholds.tau.tolist(), strict=True))
        return {n: keep_above(w.detach(), taus[n], self.floors[n]) for n, w in thresholds.live.items()}


@dataclass
class SolvedLambda:
    """Kept fraction goes in, λ comes out."""

    count: int  # weights kept at the end
    floors: Mapping[str, int]
    total: int
    eta: float = 1.0
    cap: float = 0.1  # largest change of a threshold in one step, relative

    def wanted(self, progress: float) -> float:
        """Kept fraction at `progress` (0 to 1): falls exponentially, as soft L0 does by itself."""
        return math.exp(math.log(self.count / self.total) * progress)

    def update(self, thresholds: Thresholds, lr: float, progress: float) -> float:  # noqa: ARG002 - the shape of a rule
        """Move the thresholds so that the kept fraction follows the schedule; returns λ in units of the loss."""
        assert thresholds.tau.grad is not None  # noqa: S101 - called after backward
        with torch.no_grad():
            unit = thresholds.variance
            C = thresholds.tau.grad * unit
            D = -thresholds.slopes() * unit / self.total
            g = unit.mean() / unit
            excess = thresholds.kept() / self.total - self.wanted(progress)
            lam = solve_lambda(C, D, g, excess, self.eta)
            step = self.eta * g * (lam * D - C) * unit
            limit = self.cap * thresholds.tau + thresholds.T
            thresholds.tau.add_(step.clamp(-limit, limit)).clamp_(min=0)
        return lam

    def masks(self, thresholds: Thresholds, progress: float) -> dict[str, Tensor]:
        """Exactly as many weights as the schedule says, by a common factor on all thresholds."""
        count = round(self.wanted(progress) * self.total)
        scale = {n: max(t, 1e-30) for n, t in zip(thresholds.names, thresholds.tau.tolist(), strict=True)}
        live = {n: w.detach() for n, w in thresholds.live.items()}
        return keep_exactly(live, scale, self.floors, max(count, sum(self.floors.values())))


def solve_lambda(C: Tensor, D: Tensor, g: Tensor, excess: float, eta: float) -> float:
    """λ̂ for which the step Δθ = η g (λ̂ D - C) lowers the kept fraction by `excess`."""
    slope = float((g * D.square()).sum())
    if slope == 0:
        return 0.0
    return max((excess / eta + float((g * D * C).sum())) / slope, 0.0)
