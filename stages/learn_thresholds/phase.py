"""The training phases of pruning methods: learning thresholds, and a schedule without a trail."""

from collections.abc import Mapping

import torch
from torch import Tensor

from ltp_pipeline.errors import TrainingFailed
from ltp_pipeline.results.schema_parts import LearnedEntry
from ltp_pipeline.stages.learn_thresholds import trail
from ltp_pipeline.stages.learn_thresholds.method import PruningMethod
from ltp_pipeline.stages.train.context import RunContext
from ltp_pipeline.stages.train.evaluate import evaluate_metric
from ltp_pipeline.stages.train.optimizer import iter_moments
from ltp_pipeline.stages.train.phase import StepPosition, epochs_between_entries
from ltp_pipeline.system import distributed

# A network this many default budgets below the requested accuracy is reported as far outside the
# budget. Fine-tuning commonly recovers less than that.
FAR_OUTSIDE_BUDGETS = 2


class PruningPhase:
    """Forward passes with pruned weights, and thresholds that move."""

    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        context: RunContext,
        method: PruningMethod,
        name: str,
        key: str,
    ) -> None:
        """Begin the phase.

        Args:
            tensors: The tensors being trained, by name.
            context: The run.
            method: How weights are pruned and thresholds move.
            name: Name of the phase in progress and logs.
            key: Name of its checkpoint.
        """
        self.tensors = tensors
        self.context = context
        self.method = method
        self.name = name
        self.key = key

    def effective_weights(self) -> Mapping[str, Tensor]:
        """Return the pruned weights for the forward pass."""
        return self.method.effective_weights()

    def after_backward(self, position: StepPosition) -> None:
        """Move the thresholds, equally in all processes.

        Raises:
            TrainingFailed: A threshold is not finite.
        """
        if self.method.threshold_leaf.grad is not None:
            distributed.all_reduce_mean(self.method.threshold_leaf.grad)
        self.method.after_backward(position)
        is_finite = self.method.tau.isfinite()
        if not bool(is_finite.all()):
            layer = list(self.method.layer_weights)[int(is_finite.logical_not().nonzero()[0])]
            raise TrainingFailed(
                f"the threshold of layer {layer!r} diverged "
                f"in epoch {position.epoch + 1}, step {position.step}",
                "lower train.lr (in paper mode also method.lambda or method.threshold_lr_ratio); "
                "the trail is saved up to here",
            )

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Clear the optimizer's moments of pruned weights.

        Momentum would move these weights back although the loss has no gradient for it.
        """
        for w in self.method.layer_weights.values():
            if w.grad is None:
                continue
            # The gradient has been used. Its sign in place is faster than a comparison.
            is_kept = w.grad.abs_().sign_()
            for moment in iter_moments(optimizer, w):
                moment.mul_(is_kept)

    def end_epoch(self, epoch: int) -> dict[str, float]:  # noqa: ARG002 - protocol of a phase
        """Return the metric of the network in training on the validation split."""
        weights = {name: w.detach() for name, w in self.method.effective_weights().items()}
        state = {**self.tensors, **weights}
        return {"val_accuracy": evaluate_metric(self.context, state, self.context.data.val)}

    def state_dict(self) -> dict[str, Tensor]:
        """Return the state of the pruning method."""
        return self.method.state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore the state of the pruning method."""
        self.method.load_state_dict(state)

    def log_values(self, position: StepPosition) -> dict[str, object]:
        """Return the values of the method, the kept fraction and the thresholds."""
        thresholds = dict(zip(self.method.layer_weights, self.method.tau.tolist(), strict=True))
        values = self.method.log_values(position)
        return {**values, "kept": self._kept_fraction(), "thresholds": thresholds}

    def _kept_fraction(self) -> float:
        """Return the fraction of prunable weights that the network in training has."""
        total = sum(w.numel() for w in self.method.layer_weights.values())
        return self.method.count_kept() / total


class ThresholdLearningPhase(PruningPhase):
    """The phase in which thresholds are learned, with a trail entry per epoch.

    Attributes:
        worst_accuracy: The worst accuracy within the budget; None with another kind of budget.
    """

    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        context: RunContext,
        method: PruningMethod,
        worst_accuracy: float | None = None,
    ) -> None:
        """Begin the phase.

        Args:
            tensors: The tensors being trained, by name.
            context: The run.
            method: How weights are pruned and thresholds move.
            worst_accuracy: The worst accuracy within the budget; None with another kind of budget.
        """
        super().__init__(tensors, context, method, name="learn", key="learn")
        self.worst_accuracy = worst_accuracy

    def after_backward(self, position: StepPosition) -> None:
        """Move the thresholds, and note when nothing is pruned.

        Raises:
            TrainingFailed: A threshold is not finite.
        """
        super().after_backward(position)
        tenth = max(position.steps // 10, 1)
        if position.step + 1 == tenth and self._kept_fraction() == 1.0:
            self.context.run_directory.progress.say(
                "Note: nothing is pruned yet after a tenth of the steps; "
                "raise method.lambda or method.threshold_lr_ratio"
            )

    def end_epoch(self, epoch: int) -> dict[str, float]:
        """Hard-prune a copy, evaluate it and add it to the trail.

        Args:
            epoch: The completed epoch, counted from zero.

        Returns:
            Compression ratios, the fraction of multiply-adds that is left if it was counted, and
            validation accuracy of the entry.
        """
        epochs = self.context.epochs
        state = {**self.tensors, **self.method.pruned_weights((epoch + 1) / epochs)}
        entry = trail.add_entry(self.context, state, self.method, epoch)
        is_first = epoch + 1 <= epochs_between_entries(epochs)
        if is_first and self.worst_accuracy is not None:
            self._warn_out_of_reach(entry, self.worst_accuracy)
        values = {
            "compression": entry.compression,
            "model_compression": entry.model_compression or 1.0,
        }
        if entry.macs_left is not None:
            values["macs_left"] = entry.macs_left
        return {**values, "val_accuracy": entry.accuracy}

    def _warn_out_of_reach(self, entry: LearnedEntry, worst_accuracy: float) -> None:
        """Warn if even the least compressed network is far outside the budget."""
        metric = self.context.task.metric
        margin = FAR_OUTSIDE_BUDGETS * metric.default_budget(worst_accuracy)
        if metric.is_no_worse(entry.accuracy, metric.find_worst_allowed(worst_accuracy, margin)):
            return
        self.context.run_directory.progress.say(
            "Note: the budget may be out of reach. The least compressed network, "
            f"{entry.compression:.1f}×, has {metric.format_value(entry.accuracy)} "
            "on the validation split "
            f"before fine-tuning, and the budget is {metric.no_worse} "
            f"{metric.format_value(worst_accuracy)}. "
            "Try a lower learning rate, more epochs or a larger "
            "budget"
        )
