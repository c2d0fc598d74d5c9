"""Multilabel classification: several labels per sample, measured by mean average precision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ltp_pipeline.data.dataset import TARGET, Batch, Split
from ltp_pipeline.results.metric import ExtraMetric, Metric
from ltp_pipeline.results.schema_parts import TaskSummary
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.tasks.supervised import SupervisedTask, decision_threshold

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class MultilabelTask(SupervisedTask):
    """Several labels per sample, each present or not, with binary cross-entropy as loss.

    Attributes:
        is_probability: True if the output is computed by Sigmoid.
    """

    is_probability: bool = False

    task_kind = "multilabel"
    metric = Metric("mean average precision")

    def describe_output(self) -> TaskSummary:
        """Return the summary of the task for the report."""
        threshold = decision_threshold(self.is_probability)
        return TaskSummary(self.task_kind, self.output.name, threshold=threshold)

    def label_loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the binary cross-entropy of a batch."""
        return self._binary_cross_entropy(output, target.float().flatten(1))

    def distillation_loss(self, output: Tensor, teacher_output: Tensor) -> Tensor:
        """Return the binary cross-entropy with the original's probabilities, minus its minimum."""
        teacher_scores = teacher_output.float().flatten(1)
        probabilities = teacher_scores if self.is_probability else teacher_scores.sigmoid()
        minimum = self._binary_cross_entropy(teacher_output, probabilities)
        return self._binary_cross_entropy(output, probabilities) - minimum

    def _binary_cross_entropy(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the mean binary cross-entropy; `target` has shape (samples, labels)."""
        import torch.nn.functional as F

        scores = output.float().flatten(1)
        if self.is_probability:
            return F.binary_cross_entropy(scores.clamp(0, 1), target)
        return F.binary_cross_entropy_with_logits(scores, target)

    def score_samples(self, output: Array, batch: Batch) -> Array:
        """Return the score of each label and then whether each label is present."""
        scores = output.reshape(len(batch), -1).astype(np.float64)
        scores = np.where(np.isnan(scores), -np.inf, scores)
        return np.concatenate([scores, batch.targets[TARGET].reshape(len(batch), -1)], axis=1)

    def metric_value(self, statistics: Array) -> float:
        """Return the mean over labels that any sample has; NaN if there are none."""
        precision = average_precision(*np.split(statistics, 2, axis=1))
        defined = precision[~np.isnan(precision)]
        return float(defined.mean()) if defined.size else float("nan")

    def extra_metrics(self, statistics: Array) -> tuple[ExtraMetric, ...]:
        """Return the accuracy over all labels."""
        scores, is_present = np.split(statistics, 2, axis=1)
        is_predicted = scores > decision_threshold(self.is_probability)
        accuracy = float((is_predicted == (is_present > 0.5)).mean())
        return (ExtraMetric("per-label accuracy", accuracy),)

    def chance_level(self, split: Split) -> float:
        """Return the average precision of a random order: the mean frequency of the labels."""
        is_present = split.inspected_targets
        fractions = is_present.reshape(len(is_present), -1).mean(0)
        return float(fractions[fractions > 0].mean()) if fractions.any() else 0.0


def average_precision(scores: Array, is_present: Array) -> Array:
    """Return Σ (R_k - R_(k-1)) P_k over thresholds for each column; equal scores are one threshold.

    Args:
        scores: Scores of shape (samples, labels).
        is_present: 1 for a label that a sample has, else 0; same shape.

    Returns:
        One value per label; NaN for a label that no sample has.
    """
    order = np.argsort(-scores, axis=0, kind="stable")
    ranked = np.take_along_axis(scores, order, axis=0)
    num_hits = np.cumsum(np.take_along_axis(is_present, order, axis=0), axis=0)
    is_last = np.ones(ranked.shape, bool)  # the last of several equal scores
    is_last[:-1] = ranked[:-1] != ranked[1:]
    hits_at_last = np.where(is_last, num_hits, 0)
    hits_before = np.zeros_like(hits_at_last)
    hits_before[1:] = np.maximum.accumulate(hits_at_last, axis=0)[:-1]
    precision = num_hits / np.arange(1, len(ranked) + 1)[:, None]
    gained = np.where(is_last, num_hits - hits_before, 0)
    with np.errstate(invalid="ignore"):
        average: Array = (gained * precision).sum(0) / num_hits[-1]
    return average
