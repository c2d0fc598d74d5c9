"""The phase in which weights and thresholds are learned together."""

from collections.abc import Mapping

import torch
from torch import Tensor

from ltp_pipeline.errors import TrainingFailed
from ltp_pipeline.results.records import TrailEntry
from ltp_pipeline.stages.learn_thresholds import trail
from ltp_pipeline.stages.learn_thresholds.method import PruningMethod
from ltp_pipeline.stages.train.job import RunContext
from ltp_pipeline.stages.train.optimizer import moments
from ltp_pipeline.stages.train.phase import StepPosition, epochs_between_entries
from ltp_pipeline.system import distributed

FAR_BELOW = 2  # default budgets; fine-tuning commonly wins back less


class ThresholdLearningPhase:
    """Pruned weights in the forward pass, thresholds moved after each backward pass, entries of the trail."""

    name = key = "learn"

    def __init__(
        self,
        live: Mapping[str, Tensor],
        job: RunContext,
        method: PruningMethod,
        least: float | None = None,
    ) -> None:
        self.live, self.job, self.method = live, job, method
        self.least = least  # the worst accuracy within the budget, where that is what was asked for
        self.total = sum(w.numel() for w in method.live.values())

    def weights(self) -> Mapping[str, Tensor]:
        """v in place of the kernels."""
        return self.method.weights()

    def after_backward(self, at: StepPosition) -> None:
        """Move the thresholds, equally on all ranks, and stop when one runs away."""
        if self.method.leaf.grad is not None:
            distributed.all_reduce_mean(self.method.leaf.grad)
        self.method.after_backward(at)
        finite = self.method.tau.isfinite()
        if not bool(finite.all()):
            layer = list(self.method.live)[int(finite.logical_not().nonzero()[0])]
            raise TrainingFailed(
                f"the threshold of layer {layer!r} ran away in epoch {at.epoch + 1}, step {at.step}",
                "lower train.lr (or method.lambda and threshold_lr_ratio, where given); the trail so far is kept",
            )
        if at.step + 1 == max(at.steps // 10, 1) and self._kept() == 1.0:
            self.job.workspace.progress.say(
                "Note: a tenth of the steps is done and nothing is pruned yet; "
                "raise method.lambda or method.threshold_lr_ratio"
            )

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Take the momentum of pruned weights away: it would carry them back without a reason in the loss."""
        for w in self.method.live.values():
            if w.grad is None:
                continue
            moved = (
                w.grad.abs_().sign_()
            )  # the gradient has served; its sign is faster than a comparison
            for moment in moments(optimizer, w):
                moment.mul_(moved)

    def end_epoch(self, epoch: int) -> dict[str, float]:
        """Hard-prune a copy, evaluate it and add it to the trail."""
        epochs = self.job.epochs
        state = {**self.live, **self.method.hard((epoch + 1) / epochs)}
        entry = trail.add(self.job, state, self.method, epoch)
        first = epoch + 1 <= epochs_between_entries(epochs)
        if first and self.least is not None:
            self._warn(entry, self.least)
        return {
            "compression": entry.compression,
            "model_compression": entry.model_compression or 1.0,
            "val_accuracy": entry.accuracy,
        }

    def state(self) -> dict[str, Tensor]:
        """Thresholds."""
        return self.method.state()

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take them back."""
        self.method.restore(state)

    def log(self, at: StepPosition) -> dict[str, object]:
        """λ, the thresholds' learning rate, kept fraction and thresholds."""
        taus = dict(zip(self.method.live, self.method.tau.tolist(), strict=True))
        return {**self.method.log(at), "kept": self._kept(), "thresholds": taus}

    def _warn(self, entry: TrailEntry, least: float) -> None:
        """Say where even the mildest network is far outside the budget."""
        metric = self.job.task.metric
        if metric.is_no_worse(
            entry.accuracy, metric.worst_allowed(least, FAR_BELOW * metric.default_budget(least))
        ):
            return
        self.job.workspace.progress.say(
            f"Note: the budget may be out of reach. The mildest network, {entry.compression:.1f}×, has "
            f"{metric.shown(entry.accuracy)} on the validation split before fine-tuning, and {metric.no_worse} "
            f"{metric.shown(least)} is asked for; a lower learning rate, more epochs or a larger budget would help"
        )

    def _kept(self) -> float:
        return self.method.kept() / self.total
