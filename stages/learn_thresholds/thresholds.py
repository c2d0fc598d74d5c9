"""A threshold and a temperature for every prunable kernel."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ltp_pipeline.stages.learn_thresholds.functional import WeightGradient, soft_l0_slope, soft_prune, temperature


class Thresholds:
    """τ_l of all layers as one vector that is learned, T_l as one that is fixed by eq. (12)."""

    def __init__(self, weights: Mapping[str, Tensor], t0: float, gradient: WeightGradient) -> None:
        self.live = dict(weights)
        self.gradient = gradient
        with torch.no_grad():
            self.T = torch.stack([temperature(w, t0) for w in self.live.values()]).float()
        self.variance = self.T / t0  # σ²_|w| of each layer at the start: the unit of its thresholds
        self.tau = torch.zeros_like(self.T, requires_grad=True)
        self.total = sum(w.numel() for w in self.live.values())

    @property
    def names(self) -> Sequence[str]:
        """Kernels, in graph order."""
        return tuple(self.live)

    def pruned(self) -> dict[str, Tensor]:
        """Soft-pruned weights v of every layer, for a forward pass. Eq. (1)."""
        taus, Ts = self.tau.unbind(), self.T.unbind()
        return {n: soft_prune(w, taus[i], Ts[i], self.gradient) for i, (n, w) in enumerate(self.live.items())}

    @torch.no_grad()
    def slopes(self) -> Tensor:
        """∂L0_l/∂τ_l of every layer. Eq. (16)."""
        return torch.stack([soft_l0_slope(w, self.tau[i], self.T[i]) for i, w in enumerate(self.live.values())])

    @torch.no_grad()
    def kept(self) -> int:
        """How many weights lie above their threshold."""
        return int(torch.stack([(w.square() > self.tau[i]).sum() for i, w in enumerate(self.live.values())]).sum())
