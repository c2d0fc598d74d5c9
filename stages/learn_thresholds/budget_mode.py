"""Budget mode: the cost of the kept weights goes in as a schedule, and λ comes out.

Thresholds begin in proportion to the cost of one weight. They move until every layer loses the
same for each unit of cost that it saves, (R3). A common factor is solved for instead of tuned: it
leaves weights of exactly the scheduled cost above the thresholds, (R4).
docs/explanation/method.md has the derivation.
"""

import math
from collections.abc import Collection, Iterator, Mapping

import torch
from torch import Tensor

from ltp_pipeline.stages.learn_thresholds.blocks import NO_BLOCKS, BlockAxes, weight_sizes
from ltp_pipeline.stages.learn_thresholds.functional import (
    balance_step,
    gate_slopes,
    kept_norm_ratio,
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
from ltp_pipeline.stages.weight_costs import MeetTarget

MAX_SOLVES = 200  # number of times that λ is solved for in a phase
# Log thresholds move by at most this in a phase, beyond the common factor: by a factor of e. Larger
# changes find better masks for weights that are held still, and worse ones for weights that learn.
MAX_LOG_CHANGE = 1.0
MEAN_STEPS = 20  # number of steps over which gradients of thresholds are averaged
MIN_GATE = 1e-3  # a kept weight is not zero, even at its threshold
# Small layers are pruned together, up to this number of weights, which fit into a cache.
MAX_GROUP_WEIGHTS = 2**18


class SolvedLambdaPruning:
    """Rectified soft pruning, (R1) and (R2), along a schedule of costs and gate widths, (R5).

    Thresholds move by (R3) and (R4).
    """

    def __init__(
        self,
        layer_weights: Mapping[str, Tensor],
        lowest: Mapping[str, int],
        schedule: PruningSchedule,
        scaled: Collection[str] = (),
        axes: BlockAxes = NO_BLOCKS,
        costs: Mapping[str, int] | None = None,
        max_log_change: float = MAX_LOG_CHANGE,
        meet_target: MeetTarget | None = None,
    ) -> None:
        """Solve for the first thresholds.

        Args:
            layer_weights: The weights being pruned, by layer; training changes them in place.
            lowest: The smallest number of weights that each layer keeps.
            schedule: Cost of the kept weights, and gate widths.
            scaled: Layers without a normalization layer behind them; these keep their norm. (R6).
            axes: Axis of the output channels of layers that are pruned in blocks.
            costs: Cost of one weight of each layer; None if the budget counts weights.
            max_log_change: Largest change of the log thresholds in a phase, beyond the common
                factor; 0 keeps them in proportion to costs.
            meet_target: Corrects the last budget by what its masks are measured to cost; None if
                costs add up exactly.
        """
        self.layer_weights = layer_weights
        self.lowest = lowest
        self.schedule = schedule
        self.scaled = frozenset(scaled)
        self.axes = axes
        self.costs = costs
        self.max_log_change = max_log_change
        self.meet_target = meet_target
        device = next(iter(layer_weights.values())).device
        self.cost_of_weight = torch.ones(len(layer_weights), device=device)
        if costs is not None:
            self.cost_of_weight = torch.tensor([costs[n] for n in layer_weights], device=device)
        start = (self.cost_of_weight / self.cost_of_weight.max()).log() + math.log(TINY)
        self.log_tau = self.threshold_leaf = start.requires_grad_()
        self.mean_gradient = torch.zeros_like(start)  # of the loss with respect to log τ
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
        """Average the gradients; in MAX_SOLVES of the steps, move the thresholds by (R3), (R4)."""
        assert self.log_tau.grad is not None  # noqa: S101 - called after backward
        completed = position.step + 1
        weight = max(1 / completed, 1 / MEAN_STEPS)
        self.mean_gradient.lerp_(self.log_tau.grad, weight)
        self.log_tau.grad = None
        progress = completed / position.steps
        interval = max(position.steps // MAX_SOLVES, 1)
        if completed % interval == 0:
            if self.max_log_change:
                self.log_tau += self._balance(self.max_log_change * interval / position.steps)
            self._solve_lambda(self.schedule.count_at(progress))
        self.widths = self._gate_widths(progress)

    @torch.no_grad()
    def pruned_weights(self, progress: float) -> dict[str, Tensor]:
        """Return the weights at exactly the scheduled cost; the gate has zeroed the others."""
        budget = self.schedule.count_at(progress)
        self._solve_lambda(budget)
        if progress >= 1 and self.meet_target is not None:
            budget = self.meet_target(self._make_masks, budget)
        masks = self._make_masks(budget)
        self._solve_lambda(budget)
        sizes = weight_sizes(self.layer_weights, self.axes)
        gates = rectified_gates(list(sizes.values()), self.tau, self.widths)
        pruned: dict[str, Tensor] = {}
        for (name, w), gate in zip(self.layer_weights.items(), gates, strict=True):
            v = (w * gate.clamp_min_(MIN_GATE)).masked_fill_(~masks[name], 0.0)
            pruned[name] = v * kept_norm_ratio(w, v) if name in self.scaled else v
        return pruned

    def state_dict(self) -> dict[str, Tensor]:
        """Return the thresholds, the widths of the gates, and λ for the log."""
        return {
            "log_tau": self.log_tau,
            "mean_gradient": self.mean_gradient,
            "widths": torch.tensor(self.widths, dtype=torch.float64),
            "lambda": torch.tensor(self.lam),
        }

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state_dict` returned."""
        self.log_tau.copy_(state["log_tau"])
        self.mean_gradient.copy_(state["mean_gradient"])
        self.widths = state["widths"].tolist()
        self.lam = float(state["lambda"])

    def log_values(self, position: StepPosition) -> dict[str, float]:  # noqa: ARG002 - no rate
        """Return λ: the loss for each unit of cost that a common factor of thresholds saves."""
        return {"lambda": self.lam}

    def _make_masks(self, budget: int) -> dict[str, Tensor]:
        """Return the masks of weights with this cost by the present thresholds."""
        tau = dict(zip(self.layer_weights, self.tau.unbind(), strict=True))
        sizes = weight_sizes(self.layer_weights, self.axes)
        return keep_exactly(sizes, tau, self.lowest, budget, self.axes, self.costs)

    def _balance(self, rate: float) -> Tensor:
        """Return the change of log thresholds towards equal prices, and note the price. (R3)."""
        sizes = weight_sizes(self.layer_weights, self.axes)
        slopes = gate_slopes(list(sizes.values()), self.tau, self.widths)
        saved = float((self.cost_of_weight * slopes).sum())
        self.lam = float(self.mean_gradient.sum()) / saved if saved else 0.0
        return balance_step(self.mean_gradient, slopes, self.cost_of_weight, rate)

    def _solve_lambda(self, budget: int) -> None:
        """Multiply all thresholds by the factor that leaves weights of this cost. (R4)."""
        tau = dict(zip(self.layer_weights, self.tau.unbind(), strict=True))
        sizes = weight_sizes(self.layer_weights, self.axes)
        thresholds = scale_thresholds(sizes, tau, self.lowest, budget, self.costs)
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
