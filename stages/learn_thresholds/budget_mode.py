"""Budget mode: the number of kept weights goes in as a schedule, and λ comes out.

Each threshold follows the loss on its own, (R3). The regularizer pulls on all of them alike in
log τ, so it multiplies them by a common factor. That factor is solved for instead of tuned: it
leaves exactly the scheduled number of weights above the thresholds, (R4).
docs/explanation/method.md has the derivation.
"""

import math
from collections.abc import Collection, Iterator, Mapping

import torch
from torch import Tensor

from ltp_pipeline.stages.learn_thresholds.blocks import NO_BLOCKS, BlockAxes, weight_sizes
from ltp_pipeline.stages.learn_thresholds.functional import (
    kept_norm_ratio,
    log_threshold_step,
    rectified_gates,
    rectified_prune,
)
from ltp_pipeline.stages.learn_thresholds.masks import (
    TINY,
    count_above,
    keep_exactly,
    scale_thresholds,
)
from ltp_pipeline.stages.learn_thresholds.schedule import PruningSchedule
from ltp_pipeline.stages.train.phase import StepPosition

MAX_SOLVES = 200  # number of times that λ is solved for in a phase
MIN_GATE = 1e-3  # a kept weight is not zero, even at its threshold
# Small layers are pruned together, up to this number of weights, which fit into a cache.
MAX_GROUP_WEIGHTS = 2**18


class SolvedLambdaPruning:
    """Rectified soft pruning, (R1) and (R2), along a schedule of counts and gate widths, (R5).

    Thresholds move by (R3) and (R4).
    """

    def __init__(
        self,
        layer_weights: Mapping[str, Tensor],
        lowest: Mapping[str, int],
        schedule: PruningSchedule,
        scaled: Collection[str] = (),
        axes: BlockAxes = NO_BLOCKS,
    ) -> None:
        """Solve for the first thresholds.

        Args:
            layer_weights: The weights being pruned, by layer; training changes them in place.
            lowest: The smallest number of weights that each layer keeps.
            schedule: Number of kept weights and gate widths.
            scaled: Layers without a normalization layer behind them; these keep their norm. (R6).
            axes: Axis of the output channels of layers that are pruned in blocks.
        """
        self.layer_weights = layer_weights
        self.lowest = lowest
        self.schedule = schedule
        self.scaled = frozenset(scaled)
        self.axes = axes
        device = next(iter(layer_weights.values())).device
        self.log_tau = self.threshold_leaf = torch.full(
            (len(layer_weights),), math.log(TINY), device=device, requires_grad=True
        )
        self.lam = 0.0
        self.groups = list(_group_small_layers({n: w.numel() for n, w in layer_weights.items()}))
        with torch.no_grad():
            self._solve_lambda(schedule.count_at(0.0))
        self.widths = self._gate_widths(0.0)

    @property
    def tau(self) -> Tensor:
        """Thresholds on r²."""
        return self.log_tau.detach().exp()

    @property
    def T(self) -> Tensor:
        """Temperatures: the thresholds times the widths of the gates."""
        return self.tau * self.tau.new_tensor(self.widths)

    def effective_weights(self) -> dict[str, Tensor]:
        """Return v of (R2), with layers in `scaled` at their norm, (R6)."""
        taus = torch.split(self.log_tau.exp(), [len(names) for names in self.groups])
        widths = dict(zip(self.layer_weights, self.widths, strict=True))
        pruned: dict[str, Tensor] = {}
        for names, group_taus in zip(self.groups, taus, strict=True):
            weights = {n: self.layer_weights[n] for n in names}
            sizes = weight_sizes(weights, self.axes)
            vs = rectified_prune(
                list(weights.values()),
                group_taus,
                [widths[n] for n in names],
                [i for i, n in enumerate(names) if n in self.scaled],
                list(sizes.values()),
            )
            pruned.update(zip(names, vs, strict=True))
        return pruned

    def count_kept(self) -> int:
        """Return the number of weights above their thresholds."""
        return count_above(weight_sizes(self.layer_weights, self.axes), self.tau)

    @torch.no_grad()
    def after_backward(self, position: StepPosition) -> None:
        """Move the thresholds by (R3), and solve for λ in MAX_SOLVES of the steps."""
        assert self.log_tau.grad is not None  # noqa: S101 - called after backward
        widths = self.tau.new_tensor(self.widths)
        self.log_tau += log_threshold_step(self.log_tau.grad, position.threshold_lr, widths)
        self.log_tau.grad = None
        completed = position.step + 1
        progress = completed / position.steps
        self.widths = self._gate_widths(progress)
        interval = max(position.steps // MAX_SOLVES, 1)
        if completed % interval == 0:
            before = self.log_tau.mean()
            self._solve_lambda(self.schedule.count_at(progress))
            change = float(self.log_tau.mean() - before)
            self.lam = change / (interval * position.threshold_lr)

    @torch.no_grad()
    def pruned_weights(self, progress: float) -> dict[str, Tensor]:
        """Return the weights at exactly the scheduled count; the gate has zeroed the others."""
        count = self.schedule.count_at(progress)
        self._solve_lambda(count)
        tau = dict(zip(self.layer_weights, self.tau.unbind(), strict=True))
        sizes = weight_sizes(self.layer_weights, self.axes)
        masks = keep_exactly(sizes, tau, self.lowest, count, self.axes)
        gates = rectified_gates(list(sizes.values()), self.tau, self.widths)
        pruned: dict[str, Tensor] = {}
        for (name, w), gate in zip(self.layer_weights.items(), gates, strict=True):
            v = (w * gate.clamp_min_(MIN_GATE)).masked_fill_(~masks[name], 0.0)
            pruned[name] = v * kept_norm_ratio(w, v) if name in self.scaled else v
        return pruned

    def state_dict(self) -> dict[str, Tensor]:
        """Return the thresholds, the widths of the gates, and λ for the log."""
        widths = torch.tensor(self.widths, dtype=torch.float64)
        return {"log_tau": self.log_tau, "widths": widths, "lambda": torch.tensor(self.lam)}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state_dict` returned."""
        self.log_tau.copy_(state["log_tau"])
        self.widths = state["widths"].tolist()
        self.lam = float(state["lambda"])

    def log_values(self, position: StepPosition) -> dict[str, float]:
        """Return λ as it was last solved, and the learning rate of the thresholds."""
        return {"lambda": self.lam, "threshold_lr": position.threshold_lr}

    def _solve_lambda(self, count: int) -> None:
        """Multiply all thresholds by the factor that leaves `count` weights. (R4)."""
        tau = dict(zip(self.layer_weights, self.tau.unbind(), strict=True))
        sizes = weight_sizes(self.layer_weights, self.axes)
        thresholds = scale_thresholds(sizes, tau, self.lowest, count)
        self.log_tau.copy_(torch.stack(thresholds).log())

    def _gate_widths(self, progress: float) -> list[float]:
        """Return the width of each layer's gate. (R5)."""
        return [
            self.schedule.gate_width_at(progress, is_normalized=name not in self.scaled)
            for name in self.layer_weights
        ]


def _group_small_layers(elements: Mapping[str, int]) -> Iterator[list[str]]:
    """Yield groups of consecutive layers with at most MAX_GROUP_WEIGHTS weights, or one layer."""
    names: list[str] = []
    for name, count in elements.items():
        if names and sum(elements[n] for n in names) + count > MAX_GROUP_WEIGHTS:
            yield names
            names = []
        names.append(name)
    yield names
