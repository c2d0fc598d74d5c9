"""Paper mode: the paper's own procedure, where λ goes in and sparsity comes out."""

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

MIN_RATE = 1e-12  # stands for a learning rate of zero, by which eq. (17) would divide


class FixedLambdaPruning:
    """Soft pruning, eq. (1), with thresholds that move by eq. (8).

    The learning rate of the thresholds is a small fraction of that of the weights. Settings select
    the paper's ablations: the form of the weight gradient, the regularizer, and temperatures.
    """

    def __init__(
        self,
        layer_weights: Mapping[str, Tensor],
        lowest: Mapping[str, int],
        lam: float,
        settings: MethodSettings,
        momentum: float = 0.0,
    ) -> None:
        """Begin with thresholds of zero.

        Args:
            layer_weights: The weights being pruned, by layer; training changes them in place.
            lowest: The smallest number of weights that each layer keeps.
            lam: λ.
            settings: The [method] section.
            momentum: Momentum of the optimizer that moves the weights.
        """
        self.layer_weights = layer_weights
        self.lowest = lowest
        self.lam = lam
        self.settings = settings
        self.momentum = momentum
        # Layers that were pruned before. Their zeros stay zero.
        self.sparse = {n for n, w in layer_weights.items() if not bool(w.all())}
        self.gradient = WeightGradient(settings.weight_gradient)
        with torch.no_grad():
            self.unit = torch.stack([_temperature_unit(w) for w in layer_weights.values()])
        self.T = settings.t0 * self.unit
        self.tau = self.threshold_leaf = torch.zeros_like(self.T, requires_grad=True)

    def effective_weights(self) -> dict[str, Tensor]:
        """Return v of eq. (1)."""
        return {n: soft_prune(w, tau, T, self.gradient) for n, w, tau, T in self._iter_layers()}

    def count_kept(self) -> int:
        """Return the number of weights above their thresholds."""
        return count_above(self.layer_weights, self.tau)

    @torch.no_grad()
    def after_backward(self, position: StepPosition) -> None:
        """Move the thresholds by eq. (8), and complete the gradients of the weights."""
        assert self.tau.grad is not None  # noqa: S101 - called after backward
        lam = self._l0_lambda()
        for name, w, tau, T in self._iter_layers():
            if w.grad is None:
                continue
            if name in self.sparse:
                w.grad.mul_(w != 0)
            if self.gradient == WeightGradient.CLAMPED:
                lr = max(position.lr, MIN_RATE)
                w.grad = clamped_weight_gradient(w.grad, w, tau, T, lam, lr, self.momentum)
            if self.settings.regularizer == "l2":
                w.grad.add_(w, alpha=2 * self.lam)
        slopes = torch.stack([soft_l0_slope(w, tau, T) for _, w, tau, T in self._iter_layers()])
        step = threshold_step(self.tau.grad, slopes, lam, self._threshold_rate(position))
        self.tau.add_(step).clamp_(min=0)
        self.tau.grad = None
        if self.settings.t0_end is not None:
            progress = (position.step + 1) / position.steps
            t0 = self.settings.t0 * (self.settings.t0_end / self.settings.t0) ** progress
            self.T.copy_(t0 * self.unit)

    @torch.no_grad()
    def pruned_weights(self, progress: float) -> dict[str, Tensor]:  # noqa: ARG002 - no schedule
        """Return the weights above their threshold, eq. (9), and never fewer than `lowest`."""
        return {
            name: w.masked_fill(~keep_above(w, tau, self.lowest[name]), 0.0)
            for name, w, tau, _ in self._iter_layers()
        }

    def state_dict(self) -> dict[str, Tensor]:
        """Return the thresholds, the temperatures and their unit."""
        return {"tau": self.tau, "T": self.T, "unit": self.unit}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state_dict` returned."""
        self.tau.copy_(state["tau"])
        self.T.copy_(state["T"])
        self.unit.copy_(state["unit"])

    @torch.no_grad()
    def log_values(self, position: StepPosition) -> dict[str, float]:
        """Return λ, the soft L0 term of the loss, and the learning rate of the thresholds."""
        l0 = sum(float(soft_l0(w, tau, T)) for _, w, tau, T in self._iter_layers())
        return {
            "lambda": self.lam,
            "l0_loss": self._l0_lambda() * l0,
            "threshold_lr": self._threshold_rate(position),
        }

    def _threshold_rate(self, position: StepPosition) -> float:
        """Return the learning rate of the thresholds."""
        return self.settings.threshold_lr_ratio * position.threshold_lr

    def _l0_lambda(self) -> float:
        """Return the λ of the soft L0 term: zero with any other regularizer."""
        return self.lam if self.settings.regularizer == "l0" else 0.0

    def _iter_layers(self) -> Iterator[tuple[str, Tensor, Tensor, Tensor]]:
        """Yield name, weights, threshold and temperature of each layer."""
        thresholds = self.tau.unbind()
        temperatures = self.T.unbind()
        yield from zip(
            self.layer_weights, self.layer_weights.values(), thresholds, temperatures, strict=True
        )


def _temperature_unit(w: Tensor) -> Tensor:
    """Return the temperature of a layer for T0 = 1.

    Eq. (12) gives zero if all weights are of one size; then the unit is their mean square, or 1.
    """
    for unit in (layer_temperature(w, 1.0), w.square().mean()):
        if unit > 0:
            return unit
    return torch.ones_like(w.sum())
