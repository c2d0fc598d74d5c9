"""The phase in which weights and thresholds are learned together."""

from collections.abc import Mapping

import torch
from torch import Tensor

from ltp_pipeline.errors import TrainingFailed
from ltp_pipeline.results.records import TrailEntry
from ltp_pipeline.stages.learn_thresholds import trail
from ltp_pipeline.stages.learn_thresholds.method import PruningMethod
from ltp_pipeline.stages.train.job import RunContext
from ltp_pipeline.stages.train.optimizer import iter_moments
from ltp_pipeline.stages.train.phase import StepPosition, epochs_between_entries
from ltp_pipeline.system import distributed

FAR_OUTSIDE_BUDGETS = 2  # default budgets; fine-tuning commonly wins back less


class ThresholdLearningPhase:
    """Pruned weights in the forward pass, thresholds moved after each backward pass, entries of the trail."""

    name = key = "learn"

    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        context: RunContext,
        method: PruningMethod,
        worst_accuracy: float | None = None,
    ) -> None:
        self.tensors, self.context, self.method = tensors, context, method
        self.worst_accuracy = (
            worst_accuracy  # the worst accuracy within the budget, where that is what was asked for
        )
        self.total = sum(w.numel() for w in method.layer_weights.values())

    def effective_weights(self) -> Mapping[str, Tensor]:
        """v in place of the kernels."""
        return self.method.effective_weights()

    def after_backward(self, position: StepPosition) -> None:
        """Move the thresholds, equally on all ranks, and stop when one runs away."""
        if self.method.threshold_leaf.grad is not None:
            distributed.all_reduce_mean(self.method.threshold_leaf.grad)
        self.method.after_backward(position)
        finite = self.method.tau.isfinite()
        if not bool(finite.all()):
            layer = list(self.method.layer_weights)[int(finite.logical_not().nonzero()[0])]
            raise TrainingFailed(
                f"the threshold of layer {layer!r} ran away in epoch {position.epoch + 1}, step {position.step}",
                "lower train.lr (or method.lambda and threshold_lr_ratio, where given); the trail so far is kept",
            )
        if position.step + 1 == max(position.steps // 10, 1) and self._kept_fraction() == 1.0:
            self.context.workspace.progress.say(
                "Note: a tenth of the steps is done and nothing is pruned yet; "
                "raise method.lambda or method.threshold_lr_ratio"
            )

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Take the momentum of pruned weights away: it would carry them back without a reason in the loss."""
        for w in self.method.layer_weights.values():
            if w.grad is None:
                continue
            moved = (
                w.grad.abs_().sign_()
            )  # the gradient has served; its sign is faster than a comparison
            for moment in iter_moments(optimizer, w):
                moment.mul_(moved)

    def end_epoch(self, epoch: int) -> dict[str, float]:
        """Hard-prune a copy, evaluate it and add it to the trail."""
        epochs = self.context.epochs
        state = {**self.tensors, **self.method.pruned_weights((epoch + 1) / epochs)}
        entry = trail.add_entry(self.context, state, self.method, epoch)
        first = epoch + 1 <= epochs_between_entries(epochs)
        if first and self.worst_accuracy is not None:
            self._warn_out_of_reach(entry, self.worst_accuracy)
        return {
            "compression": entry.compression,
            "model_compression": entry.model_compression or 1.0,
            "val_accuracy": entry.accuracy,
        }

    def state_dict(self) -> dict[str, Tensor]:
        """Thresholds."""
        return self.method.state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take them back."""
        self.method.load_state_dict(state)

    def log_values(self, position: StepPosition) -> dict[str, object]:
        """λ, the thresholds' learning rate, kept fraction and thresholds."""
        taus = dict(zip(self.method.layer_weights, self.method.tau.tolist(), strict=True))
        return {
            **self.method.log_values(position),
            "kept": self._kept_fraction(),
            "thresholds": taus,
        }

    def _warn_out_of_reach(self, entry: TrailEntry, least: float) -> None:
        """Say where even the mildest network is far outside the budget."""
        metric = self.context.task.metric
        if metric.is_no_worse(
            entry.accuracy,
            metric.worst_allowed(least, FAR_OUTSIDE_BUDGETS * metric.default_budget(least)),
        ):
            return
        self.context.workspace.progress.say(
            f"Note: the budget may be out of reach. The mildest network, {entry.compression:.1f}×, has "
            f"{metric.shown(entry.accuracy)} on the validation split before fine-tuning, and {metric.no_worse} "
            f"{metric.shown(least)} is asked for; a lower learning rate, more epochs or a larger budget would help"
        )

    def _kept_fraction(self) -> float:
        return self.method.count_kept() / self.total
