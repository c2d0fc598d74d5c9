"""Class numbers: an output scores the classes, the share of right answers counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ltp_pipeline.data.dataset import TARGET
from ltp_pipeline.results.intervals import paired_interval
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.results.records import AccuracyResult
from ltp_pipeline.results.schema_parts import TaskSummary
from ltp_pipeline.tasks.outputs import decision_threshold
from ltp_pipeline.tasks.supervised import SupervisedTask

if TYPE_CHECKING:
    from torch import Tensor

    from ltp_pipeline.data.dataset import Batch
    from ltp_pipeline.system.arrays import Array
    from ltp_pipeline.tasks.protocol import SplitLabels

TOP1 = Metric("top-1")
FEW = 5  # classes; of so many, being among the five best says nothing


@dataclass(frozen=True)
class ClassificationTask(SupervisedTask):
    """Cross-entropy on the labels. A single output is the score of class 1 beside class 0."""

    classes: int = 0
    is_probability: bool = (
        False  # the output comes out of a Softmax, or a single one out of a Sigmoid
    )
    is_single: bool = False

    task_kind = "classification"
    metric = TOP1

    def describe_output(self) -> TaskSummary:
        """The largest score, or whether the single one is large."""
        if self.is_single:
            return TaskSummary(
                self.task_kind, self.output.name, threshold=decision_threshold(self.is_probability)
            )
        return TaskSummary(self.task_kind, self.output.name, class_axis=1)

    def label_loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy."""
        import torch.nn.functional as F

        labels = self.class_numbers(target).reshape(-1)
        return F.cross_entropy(self._scores(output), labels, label_smoothing=self.label_smoothing)

    def distillation_loss(self, output: Tensor, taught: Tensor) -> Tensor:
        """Divergence of the softened probabilities."""
        from ltp_pipeline.tasks.losses import softened_divergence

        return softened_divergence(self._scores(output), self._scores(taught))

    def _scores(self, output: Tensor) -> Tensor:
        from ltp_pipeline.tasks.losses import flat_log_probabilities, two_class_scores

        scores = output.float().reshape(
            len(output), -1
        )  # a single score may have no axis of its own
        return flat_log_probabilities(
            two_class_scores(scores, self.is_probability) if self.is_single else scores,
            self.is_probability,
        )

    def score_samples(self, output: Array, batch: Batch) -> Array:
        """Whether the label has the largest score, and whether one of the five largest."""
        scores, y = (
            output.reshape(len(batch), -1),
            self.class_numbers(batch.targets[TARGET]).reshape(-1),
        )
        if self.is_single:
            scores = np.concatenate([(1 if self.is_probability else 0) - scores, scores], axis=1)
        of_label = np.take_along_axis(scores, y[:, None], axis=1)
        # A tie counts by position, as argmax does; NaN never wins.
        better = (scores > of_label).sum(1) + (
            (scores == of_label) & (np.arange(scores.shape[1]) < y[:, None])
        ).sum(1)
        better = np.where(np.isnan(of_label[:, 0]), scores.shape[1], better)
        return np.stack([better == 0, better < FEW], axis=1)

    def metric_value(self, evidence: Array) -> float:
        """Top-1."""
        return float(evidence[:, 0].mean())

    def compute_metric(self, evidence: Array, split: str) -> AccuracyResult:
        """Top-1 and top-5; the latter says nothing of five classes or fewer."""
        top1 = self.metric_value(evidence)
        top5 = float(evidence[:, 1].mean()) if self.classes > FEW else None
        return AccuracyResult(top1, top1, top5, len(evidence), split)

    def correct_samples(self, evidence: Array) -> Array:
        """Where the label has the largest score."""
        return evidence[:, 0]

    def compute_drop_interval(
        self, before: Array, after: Array, confidence: float = 0.95
    ) -> tuple[float, float]:
        """Of a difference of two shares, paired."""
        return paired_interval(
            self.correct_samples(before), self.correct_samples(after), confidence
        )

    def chance_level(self, split: SplitLabels) -> float | None:
        """Accuracy of naming the most frequent class."""
        labels = (
            split.labels if self.one_hot is None else self.class_numbers(split.inspected_targets)
        )
        return (
            None
            if labels is None
            else float(np.unique(labels, return_counts=True)[1].max() / len(labels))
        )
