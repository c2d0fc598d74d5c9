"""λ solved, not tuned: the kept fraction goes in as a schedule, λ comes out.

Thresholds follow the loss, each on its own; the regulariser's pull is the same for all of them in log τ, a common
factor, chosen so that exactly the scheduled number of weights stays above. docs/method.md has the derivation.
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

MAX_SOLVES = 200  # how often λ is solved over the whole phase
MIN_GATE = 1e-3  # a weight that is kept is not zero, even at its threshold
MAX_GROUP_WEIGHTS = (
    2**18
)  # layers are pruned together up to this many weights, which a processor's cache holds


class SolvedLambdaPruning:
    """Rectified soft pruning (R1), (R2), with counts and width by (R5); thresholds by (R3), (R4).

    The kernels in `scaled` have no norm behind them: their scale is kept by (R6). Those in `axes` are pruned in blocks.
    """

    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        lowest: Mapping[str, int],
        schedule: PruningSchedule,
        scaled: Collection[str] = (),
        axes: BlockAxes = NO_BLOCKS,
    ) -> None:
        self.layer_weights, self.lowest, self.schedule, self.scaled, self.axes = (
            tensors,
            lowest,
            schedule,
            frozenset(scaled),
            axes,
        )
        device = next(iter(tensors.values())).device
        self.log_tau = self.threshold_leaf = torch.full(
            (len(tensors),), math.log(TINY), device=device, requires_grad=True
        )
        self.lam = 0.0
        self.groups = list(_group_small_layers({n: w.numel() for n, w in tensors.items()}))
        with torch.no_grad():
            self._solve_lambda(schedule.count_at(0.0))
        self.widths = self._gate_widths(0.0)

    @property
    def tau(self) -> Tensor:
        """Thresholds on w²."""
        return self.log_tau.detach().exp()

    @property
    def T(self) -> Tensor:
        """Temperatures: the threshold times the width of the gate."""
        return self.tau * self.tau.new_tensor(self.widths)

    def effective_weights(self) -> dict[str, Tensor]:
        """v of (R1), kernels without a norm at their scale, (R6)."""
        taus = torch.split(self.log_tau.exp(), [len(names) for names in self.groups])
        widths = dict(zip(self.layer_weights, self.widths, strict=True))
        pruned: dict[str, Tensor] = {}
        for names, part in zip(self.groups, taus, strict=True):
            scaled = [i for i, n in enumerate(names) if n in self.scaled]
            ws = {n: self.layer_weights[n] for n in names}
            rs = weight_sizes(ws, self.axes)
            vs = rectified_prune(
                [*ws.values()], part, [widths[n] for n in names], scaled, [*rs.values()]
            )
            pruned.update(zip(names, vs, strict=True))
        return pruned

    def count_kept(self) -> int:
        """How many weights lie above their thresholds."""
        return count_above(weight_sizes(self.layer_weights, self.axes), self.tau)

    @torch.no_grad()
    def after_backward(self, position: StepPosition) -> None:
        """Move the thresholds by (R3); now and then solve for λ."""
        assert self.log_tau.grad is not None  # noqa: S101 - called after backward
        self.log_tau += log_threshold_step(
            self.log_tau.grad, position.threshold_lr, self.tau.new_tensor(self.widths)
        )
        self.log_tau.grad = None
        share = (position.step + 1) / position.steps
        self.widths = self._gate_widths(share)
        interval = max(position.steps // MAX_SOLVES, 1)
        if (position.step + 1) % interval == 0:
            before = self.log_tau.mean()
            self._solve_lambda(self.schedule.count_at(share))
            self.lam = float(self.log_tau.mean() - before) / (interval * position.threshold_lr)

    @torch.no_grad()
    def pruned_weights(self, share: float) -> dict[str, Tensor]:
        """The network as it stands, at exactly the scheduled count: what lies below a threshold is zero already."""
        count = self.schedule.count_at(share)
        self._solve_lambda(count)
        tau, rs = (
            dict(zip(self.layer_weights, self.tau.unbind(), strict=True)),
            weight_sizes(self.layer_weights, self.axes),
        )
        masks = keep_exactly(rs, tau, self.lowest, count, self.axes)
        gates = rectified_gates([*rs.values()], self.tau, self.widths)
        pruned = {
            n: (w * gate.clamp_min_(MIN_GATE)).masked_fill_(~masks[n], 0.0)
            for (n, w), gate in zip(self.layer_weights.items(), gates, strict=True)
        }
        return {
            n: v * kept_norm_ratio(self.layer_weights[n], v) if n in self.scaled else v
            for n, v in pruned.items()
        }

    def state_dict(self) -> dict[str, Tensor]:
        """Thresholds, the widths of the gates, and λ for the log."""
        widths = torch.tensor(self.widths, dtype=torch.float64)
        return {"log_tau": self.log_tau, "widths": widths, "lambda": torch.tensor(self.lam)}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take them back."""
        self.log_tau.copy_(state["log_tau"])
        self.widths, self.lam = state["widths"].tolist(), float(state["lambda"])

    def log_values(self, position: StepPosition) -> dict[str, float]:
        """λ as it was last solved, and the thresholds' rate."""
        return {"lambda": self.lam, "threshold_lr": position.threshold_lr}

    def _solve_lambda(self, count: int) -> None:
        """Multiply all thresholds by the factor that leaves `count` weights. (R4)."""
        tau = dict(zip(self.layer_weights, self.tau.unbind(), strict=True))
        rs = weight_sizes(self.layer_weights, self.axes)
        self.log_tau.copy_(torch.stack(scale_thresholds(rs, tau, self.lowest, count)).log())

    def _gate_widths(self, share: float) -> list[float]:
        """Width of each kernel's gate, (R5)."""
        return [
            self.schedule.gate_width_at(share, norm=name not in self.scaled)
            for name in self.layer_weights
        ]


def _group_small_layers(sizes: Mapping[str, int]) -> Iterator[list[str]]:
    """Neighbouring layers of at most TOGETHER weights; a larger one is by itself."""
    names: list[str] = []
    for name, size in sizes.items():
        if names and sum(sizes[n] for n in names) + size > MAX_GROUP_WEIGHTS:
            yield names
            names = []
        names.append(name)
    yield names
