"""The phase in which weights and thresholds are learned together."""

from collections.abc import Mapping

import torch
from torch import Tensor

from ltp_pipeline.errors import TrainingFailed
from ltp_pipeline.stages.learn_thresholds import trail
from ltp_pipeline.stages.learn_thresholds.budget import Rule
from ltp_pipeline.stages.learn_thresholds.thresholds import Thresholds
from ltp_pipeline.stages.training import Progress, Training


class Learning:
    """Soft-pruned weights in the forward pass, thresholds moved by a rule after each backward pass."""

    name = key = "learn"

    def __init__(self, training: Training, thresholds: Thresholds, rule: Rule, epochs: int) -> None:
        self.training, self.thresholds, self.rule, self.epochs = training, thresholds, rule, epochs
        self.lam = 0.0

    def weights(self) -> Mapping[str, Tensor]:
        """v of eq. (1) in place of the kernels."""
        return self.thresholds.pruned()

    def after_backward(self, progress: Progress) -> None:
        """Move the thresholds, eq. (8)."""
        self.lam = self.rule.update(self.thresholds, progress.lr, (progress.step + 1) / progress.steps)
        self.thresholds.tau.grad = None
        if not bool(self.thresholds.tau.isfinite().all()):
            name = self.thresholds.names[int(self.thresholds.tau.isfinite().logical_not().nonzero()[0])]
            raise TrainingFailed(
                f"the threshold of layer {name!r} is not finite in epoch {progress.epoch + 1}, step {progress.step}",
                "lower method.lambda, method.threshold_lr_ratio or train.lr",
            )

    def end_epoch(self, epoch: int) -> dict[str, float]:
        """Hard-prune a copy and judge it."""
        masks = self.rule.masks(self.thresholds, (epoch + 1) / self.epochs)
        entry = trail.add(self.training, masks, epoch)
        return {"compression": entry.compression, "val_accuracy": entry.accuracy}

    def state(self) -> dict[str, Tensor]:
        """Thresholds and temperatures."""
        return {"tau": self.thresholds.tau, "T": self.thresholds.T, "unit": self.thresholds.variance}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take them back."""
        with torch.no_grad():
            self.thresholds.tau.copy_(state["tau"])
            self.thresholds.T.copy_(state["T"])
            self.thresholds.variance.copy_(state["unit"])

    def log(self) -> dict[str, object]:
        """λ, kept fraction and thresholds."""
        kept = self.thresholds.kept() / self.thresholds.total
        values = dict(zip(self.thresholds.names, self.thresholds.tau.tolist(), strict=True))
        return {"lambda": self.lam, "kept": kept, "thresholds": values}
