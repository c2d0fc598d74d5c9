"""Regression: numbers as targets, measured by R²."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from ltp_pipeline.data.dataset import TARGET, Batch, Split
from ltp_pipeline.results.metric import ExtraMetric, Metric
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.tasks.supervised import SupervisedTask

if TYPE_CHECKING:
    from torch import Tensor

MAX_COLUMNS = 64  # targets with separate variances; of more, all values share one variance
MAX_ERROR = 1e150  # larger errors, infinite ones and NaN count as this
MIN_RELATIVE_VARIANCE = 1e-12  # below it, targets are constant but for rounding


@dataclass(frozen=True)
class RegressionTask(SupervisedTask):
    """Numbers as targets, with an error in units of their standard deviation as loss.

    Attributes:
        target_std: Standard deviation of the training targets.
        error: Error that the loss averages.
    """

    target_std: float = 1.0
    error: Literal["squared_error", "absolute_error"] = "squared_error"

    task_kind = "regression"
    metric = Metric("R²")
    has_unbounded_gradient = True

    def label_loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the mean error over all values, in units of `target_std`."""
        import torch.nn.functional as F

        predicted = output.float().reshape(len(output), -1)
        expected = target.float().reshape(len(target), -1)
        if self.error == "absolute_error":
            return F.l1_loss(predicted, expected) / self.target_std
        return F.mse_loss(predicted, expected) / self.target_std**2

    def distillation_loss(self, output: Tensor, teacher_output: Tensor) -> Tensor:
        """Return the error with the original's output as target."""
        return self.label_loss(output, teacher_output)

    def score_samples(self, output: Array, batch: Batch) -> Array:
        """Return squared and absolute errors, targets and squared targets, side by side.

        The last column is the number of values that each of these columns stands for.
        """
        expected = batch.targets[TARGET].reshape(len(batch), -1).astype(np.float64)
        errors = np.abs(output.reshape(len(batch), -1) - expected)
        errors = np.where(np.isfinite(errors), np.minimum(errors, MAX_ERROR), MAX_ERROR)
        parts = [errors**2, errors, expected, expected**2]
        num_values = expected.shape[1]
        if num_values > MAX_COLUMNS:
            parts = [part.sum(1, keepdims=True) for part in parts]
        counts = np.full((len(batch), 1), num_values / parts[0].shape[1])
        return np.concatenate([*parts, counts], axis=1)

    def metric_value(self, statistics: Array) -> float:
        """Return 1 - squared error / variance, averaged over columns whose targets vary."""
        squared_errors, _, totals, squares = np.split(statistics[:, :-1].sum(0), 4)
        count = statistics[:, -1].sum()
        variance = squares - totals**2 / count
        varies = variance > MIN_RELATIVE_VARIANCE * squares
        if not varies.any():
            return float("nan")
        return float((1 - squared_errors[varies] / variance[varies]).mean())

    def extra_metrics(self, statistics: Array) -> tuple[ExtraMetric, ...]:
        """Return the error in the unit of the targets."""
        squared_errors, absolute_errors, _, _ = np.split(statistics[:, :-1].sum(0), 4)
        num_values = statistics[:, -1].sum() * len(squared_errors)
        if self.error == "absolute_error":
            name = "mean absolute error"
            error = float(absolute_errors.sum() / num_values)
        else:
            name = "root mean squared error"
            error = float(np.sqrt(squared_errors.sum() / num_values))
        return (ExtraMetric(name, error, is_fraction=False, higher_is_better=False),)

    def chance_level(self, split: Split) -> float:  # noqa: ARG002 - required by Task
        """Return 0, the R² of always predicting the mean."""
        return 0.0
