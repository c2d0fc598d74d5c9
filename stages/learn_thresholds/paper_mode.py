"""The paper's own procedure: λ goes in, sparsity comes out."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from ltp_pipeline.settings.schema import MethodSettings
from ltp_pipeline.stages.learn_thresholds.functional import (
    WeightGradient,
    clamped_weight_gradient,
    layer_temperature,
    soft_l0,
    soft_l0_slope,
    soft_prune,
    threshold_step,
)
from ltp_pipeline.stages.learn_thresholds.masks import count_above, keep_above
from ltp_pipeline.stages.train.phase import StepPosition


class FixedLambdaPruning:
    """Soft pruning (1), thresholds moved by (8) at a small share of the learning rate; the ablations by settings."""

    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        lowest: Mapping[str, int],
        lam: float,
        settings: MethodSettings,
        momentum: float = 0.0,
    ) -> None:
        self.layer_weights, self.lowest, self.lam, self.settings = tensors, lowest, lam, settings
        self.momentum = momentum  # of the optimizer that moves the weights
        self.sparse = {
            n for n, w in tensors.items() if not bool(w.all())
        }  # pruned before: what is zero stays zero
        self.gradient = WeightGradient(settings.weight_gradient)
        with torch.no_grad():
            self.unit = torch.stack([_temperature_unit(w) for w in tensors.values()])
        self.T = settings.t0 * self.unit
        self.tau = self.threshold_leaf = torch.zeros_like(self.T, requires_grad=True)

    def effective_weights(self) -> dict[str, Tensor]:
        """v of eq. (1)."""
        return {n: soft_prune(w, tau, T, self.gradient) for n, w, tau, T in self._iter_layers()}

    def count_kept(self) -> int:
        """How many weights lie above their thresholds."""
        return count_above(self.layer_weights, self.tau)

    @torch.no_grad()
    def after_backward(self, position: StepPosition) -> None:
        """Move the thresholds by eq. (8), and finish the gradients of the weights."""
        assert self.tau.grad is not None  # noqa: S101 - called after backward
        lam = self._l0_lambda()
        for name, w, tau, T in self._iter_layers():
            if w.grad is None:
                continue
            if name in self.sparse:
                w.grad.mul_(w != 0)
            if self.gradient == WeightGradient.CLAMPED:
                w.grad = clamped_weight_gradient(
                    w.grad, w, tau, T, lam, max(position.lr, 1e-12), self.momentum
                )
            if self.settings.regulariser == "l2":
                w.grad.add_(w, alpha=2 * self.lam)
        slopes = torch.stack([soft_l0_slope(w, tau, T) for _, w, tau, T in self._iter_layers()])
        step = threshold_step(self.tau.grad, slopes, lam, self._threshold_rate(position))
        self.tau.add_(step).clamp_(min=0)
        self.tau.grad = None
        if self.settings.t0_end is not None:
            share = (position.step + 1) / position.steps
            self.T.copy_(
                self.settings.t0 * (self.settings.t0_end / self.settings.t0) ** share * self.unit
            )

    @torch.no_grad()
    def pruned_weights(self, share: float) -> dict[str, Tensor]:  # noqa: ARG002 - this method has no schedule
        """Weights above their threshold, eq. (9), and never fewer than the floor."""
        return {
            n: w.masked_fill(~keep_above(w, tau, self.lowest[n]), 0.0)
            for n, w, tau, _ in self._iter_layers()
        }

    def state_dict(self) -> dict[str, Tensor]:
        """Thresholds, temperatures and their unit."""
        return {"tau": self.tau, "T": self.T, "unit": self.unit}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take them back."""
        self.tau.copy_(state["tau"])
        self.T.copy_(state["T"])
        self.unit.copy_(state["unit"])

    @torch.no_grad()
    def log_values(self, position: StepPosition) -> dict[str, float]:
        """λ as it was given, what the soft L0 adds to the loss by it, and the thresholds' own rate."""
        l0 = sum(float(soft_l0(w, tau, T)) for _, w, tau, T in self._iter_layers())
        return {
            "lambda": self.lam,
            "l0_loss": self._l0_lambda() * l0,
            "threshold_lr": self._threshold_rate(position),
        }

    def _threshold_rate(self, position: StepPosition) -> float:
        return self.settings.threshold_lr_ratio * position.threshold_lr

    def _l0_lambda(self) -> float:
        return self.lam if self.settings.regulariser == "l0" else 0.0

    def _iter_layers(self) -> Iterator[tuple[str, Tensor, Tensor, Tensor]]:
        for (name, w), tau, T in zip(
            self.layer_weights.items(), self.tau.unbind(), self.T.unbind(), strict=True
        ):
            yield name, w, tau, T


def _temperature_unit(w: Tensor) -> Tensor:
    """Temperature for T0 = 1; where all weights are of one size and (12) gives none, in the unit of that size."""
    found = (scale for scale in (layer_temperature(w, 1.0), w.square().mean()) if scale > 0)
    return next(found, torch.ones_like(w.sum()))
