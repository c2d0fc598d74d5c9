"""Numbers to be met: the share of the targets' variance that is explained counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from ltp_pipeline.data.dataset import TARGET
from ltp_pipeline.results.metric import ExtraMetric, Metric
from ltp_pipeline.results.records import AccuracyResult
from ltp_pipeline.tasks.supervised import SupervisedTask

if TYPE_CHECKING:
    from torch import Tensor

    from ltp_pipeline.data.dataset import Batch
    from ltp_pipeline.system.arrays import Array
    from ltp_pipeline.tasks.protocol import SplitLabels

R2 = Metric("R²")
MOST_COLUMNS = (
    64  # of targets whose variances are told apart; of more, all values are taken together
)
LARGEST = 1e150  # error of one value; more, or no number at all, counts as this


@dataclass(frozen=True)
class RegressionTask(SupervisedTask):
    """Squared or absolute error in units of the training targets' own spread, so that no scale has to be tuned."""

    spread: float = 1.0  # standard deviation of the training targets
    kind: Literal["squared_error", "absolute_error"] = "squared_error"

    task_kind = "regression"
    metric = R2
    has_unbounded_gradient = True

    def label_loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Mean error over all values."""
        import torch.nn.functional as F

        found, wanted = (
            y.float().flatten(1) if y.dim() > 1 else y.float()[:, None] for y in (output, target)
        )
        if self.kind == "absolute_error":
            return F.l1_loss(found, wanted) / self.spread
        return F.mse_loss(found, wanted) / self.spread**2

    def distillation_loss(self, output: Tensor, taught: Tensor) -> Tensor:
        """The same from the original's output."""
        return self.label_loss(output, taught)

    def score_samples(self, output: Array, batch: Batch) -> Array:
        """Squared errors, absolute errors, targets, their squares, and how many values each stands for."""
        wanted = batch.targets[TARGET].reshape(len(batch), -1).astype(np.float64)
        apart = np.abs(output.reshape(len(batch), -1) - wanted)
        apart = np.where(np.isfinite(apart), np.minimum(apart, LARGEST), LARGEST)
        parts = [apart**2, apart, wanted, wanted**2]
        if wanted.shape[1] > MOST_COLUMNS:
            parts = [part.sum(1, keepdims=True) for part in parts]
        return np.concatenate(
            [*parts, np.full((len(batch), 1), wanted.shape[1] / parts[0].shape[1])], axis=1
        )

    def metric_value(self, evidence: Array) -> float:
        """1 - squared error / variance of the targets, averaged over columns; one that never varies is left out."""
        (squared, _, total, squares), count = (
            np.split(evidence[:, :-1].sum(0), 4),
            evidence[:, -1].sum(),
        )
        variance = squares - total**2 / count
        varies = variance > 1e-12 * squares
        return (
            float((1 - squared[varies] / variance[varies]).mean()) if varies.any() else float("nan")
        )

    def compute_metric(self, evidence: Array, split: str) -> AccuracyResult:
        """R², and beside it the error in the targets' unit."""
        squared, absolute, _, _ = np.split(evidence[:, :-1].sum(0), 4)
        values = evidence[:, -1].sum() * len(squared)
        if self.kind == "absolute_error":
            name, error = "mean absolute error", float(absolute.sum() / values)
        else:
            name, error = "root mean squared error", float(np.sqrt(squared.sum() / values))
        beside = (ExtraMetric(name, error, is_fraction=False, higher_is_better=False),)
        return AccuracyResult(
            self.metric_or_zero(evidence), None, None, len(evidence), split, extra_metrics=beside
        )

    def chance_level(self, split: SplitLabels) -> float:  # noqa: ARG002 - a Task's
        """Of the mean."""
        return 0.0
