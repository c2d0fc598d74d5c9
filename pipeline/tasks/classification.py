"""Classification: one class per sample, measured by top-1 accuracy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ltp_pipeline.data.dataset import TARGET, Batch, Split
from ltp_pipeline.results.intervals import paired_interval
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.results.schema_parts import AccuracyResult
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.tasks.supervised import ClassScoresTask

if TYPE_CHECKING:
    from torch import Tensor

TOP1 = Metric("top-1")
TOP5_CLASSES = 5  # with at most this many classes, top-5 accuracy is always 1


class ClassificationTask(ClassScoresTask):
    """One class per sample, with cross-entropy as loss."""

    task_kind = "classification"
    metric = TOP1

    def label_loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the cross-entropy of a batch."""
        import torch.nn.functional as F

        scores = self._class_scores(output)
        return F.cross_entropy(scores, target.reshape(-1), label_smoothing=self.label_smoothing)

    def distillation_loss(self, output: Tensor, teacher_output: Tensor) -> Tensor:
        """Return the divergence between the softened probabilities of a batch."""
        from ltp_pipeline.tasks.losses import softened_divergence

        return softened_divergence(self._class_scores(output), self._class_scores(teacher_output))

    def _class_scores(self, output: Tensor) -> Tensor:
        """Return logits or log-probabilities of shape (samples, classes)."""
        from ltp_pipeline.tasks.losses import to_logits

        scores = output.float().reshape(len(output), -1)  # a single score may have no axis
        return to_logits(scores, self.is_probability, self.is_single)

    def score_samples(self, output: Array, batch: Batch) -> Array:
        """Return for each sample whether its class has rank 1, and whether a rank up to 5."""
        scores = output.reshape(len(batch), -1)
        labels = batch.targets[TARGET].reshape(-1)
        if self.is_single:
            first = (1 if self.is_probability else 0) - scores
            scores = np.concatenate([first, scores], axis=1)
        label_scores = np.take_along_axis(scores, labels[:, None], axis=1)
        # Equal scores are ranked by position, as argmax does it. NaN is never the largest score.
        num_better = (scores > label_scores).sum(1)
        is_before = np.arange(scores.shape[1]) < labels[:, None]
        num_better += ((scores == label_scores) & is_before).sum(1)
        rank = np.where(np.isnan(label_scores[:, 0]), scores.shape[1], num_better)
        return np.stack([rank == 0, rank < TOP5_CLASSES], axis=1)

    def metric_value(self, statistics: Array) -> float:
        """Return the top-1 accuracy."""
        return float(statistics[:, 0].mean())

    def compute_metric(self, statistics: Array, split: str) -> AccuracyResult:
        """Return top-1 accuracy and, for more than five classes, top-5 accuracy."""
        result = super().compute_metric(statistics, split)
        if self.num_classes <= TOP5_CLASSES:
            return result
        return result.model_copy(update={"top5": float(statistics[:, 1].mean())})

    def correct_samples(self, statistics: Array) -> Array:
        """Return which samples have their class predicted."""
        return statistics[:, 0]

    def compute_drop_interval(
        self, before: Array, after: Array, confidence: float = 0.95
    ) -> tuple[float, float]:
        """Return the interval of a paired difference of two fractions."""
        return paired_interval(before[:, 0], after[:, 0], confidence)

    def chance_level(self, split: Split) -> float:
        """Return the accuracy of always predicting the most frequent class."""
        labels = split.inspected_targets if split.labels is None else split.labels
        _, counts = np.unique(labels, return_counts=True)
        return float(counts.max() / labels.size)
