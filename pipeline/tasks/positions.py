"""A class for each position of a sample, such as a token; some positions may have no label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ltp_pipeline.data.dataset import TARGET
from ltp_pipeline.errors import InputError
from ltp_pipeline.results.records import AccuracyResult
from ltp_pipeline.results.schema_parts import TaskSummary
from ltp_pipeline.tasks.classification import TOP1
from ltp_pipeline.tasks.outputs import decision_threshold
from ltp_pipeline.tasks.supervised import SupervisedTask

if TYPE_CHECKING:
    from torch import Tensor

    from ltp_pipeline.data.dataset import Batch
    from ltp_pipeline.system.arrays import Array
    from ltp_pipeline.tasks.protocol import SplitLabels


@dataclass(frozen=True)
class ClassMapTask(SupervisedTask):
    """Cross-entropy over all positions that have a label; `axis` is where the output has the classes.

    A single score for each position is that of class 1 beside class 0.
    """

    classes: int = 0
    axis: int = -1
    is_probability: bool = (
        False  # the output comes out of a Softmax, or single scores out of a Sigmoid
    )
    is_single: bool = False
    ignored: int = -100

    def describe_output(self) -> TaskSummary:
        """The largest score of a position, or whether the single one is large."""
        if self.is_single:
            return TaskSummary(
                self.task_kind, self.output.name, threshold=decision_threshold(self.is_probability)
            )
        return TaskSummary(self.task_kind, self.output.name, class_axis=self.axis)

    def label_loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy; a batch without any label has none."""
        import torch.nn.functional as F

        scores, labels = (
            self._scores(output),
            self.class_numbers(target).reshape(len(target), -1).long(),
        )
        labels = F.pad(
            labels, (0, _count_missing(labels.shape[1], scores.shape[2])), value=self.ignored
        )  # see answers
        total = F.cross_entropy(
            scores,
            labels,
            ignore_index=self.ignored,
            reduction="sum",
            label_smoothing=self.label_smoothing,
        )
        return total / (labels != self.ignored).sum().clamp_min(1)

    def distillation_loss(self, output: Tensor, taught: Tensor) -> Tensor:
        """Divergence of the softened probabilities, over all positions."""
        from ltp_pipeline.tasks.losses import softened_divergence

        return softened_divergence(
            *(self._scores(y).movedim(1, -1).flatten(0, -2) for y in (output, taught))
        )

    def _scores(self, output: Tensor) -> Tensor:
        """Classes on axis 1, positions on axis 2."""
        from ltp_pipeline.tasks.losses import to_log_probabilities, two_class_scores

        if self.is_single:
            scores = two_class_scores(
                output.float().reshape(len(output), 1, -1), self.is_probability
            )
            return to_log_probabilities(scores, self.is_probability)
        return to_log_probabilities(
            output.float().movedim(self.axis, 1).flatten(2), self.is_probability
        )

    def answers(self, output: Array, batch: Batch) -> tuple[Array, Array]:
        """For each position of each sample, the class with the largest score, and the label.

        A model of fixed length gives more positions than the longest sample has.
        """
        labels = self.class_numbers(batch.targets[TARGET]).reshape(len(batch), -1).astype(np.int64)
        if self.is_single:
            found = np.where(np.isnan(output), -1, output > decision_threshold(self.is_probability))
        else:
            scores = np.moveaxis(output, self.axis, -1)
            found = np.where(np.isnan(scores).any(-1), -1, scores.argmax(-1))
        found = found.reshape(len(batch), -1)
        missing = _count_missing(labels.shape[1], found.shape[1])
        return found, np.pad(labels, ((0, 0), (0, missing)), constant_values=self.ignored)

    def counts(self, split: SplitLabels) -> Array:
        """How often each class is right, in some samples of a split."""
        labels = self.class_numbers(split.inspected_targets)
        return np.bincount(labels[labels != self.ignored].astype(np.int64), minlength=self.classes)


@dataclass(frozen=True)
class PositionTask(ClassMapTask):
    """The share of right answers over all positions with a label."""

    task_kind = "classification"
    metric = TOP1

    def score_samples(self, output: Array, batch: Batch) -> Array:
        """How many positions are right, and how many there are."""
        found, labels = self.answers(output, batch)
        return np.stack(
            [
                ((found == labels) & (labels != self.ignored)).sum(1),
                (labels != self.ignored).sum(1),
            ],
            axis=1,
        )

    def metric_value(self, evidence: Array) -> float:
        """Right ones of all."""
        right, count = evidence.sum(0)
        return float(right / count) if count else float("nan")

    def compute_metric(self, evidence: Array, split: str) -> AccuracyResult:
        """Top-1."""
        top1 = self.metric_or_zero(evidence)
        return AccuracyResult(top1, top1, None, len(evidence), split)

    def chance_level(self, split: SplitLabels) -> float:
        """Accuracy of naming the most frequent class."""
        counts = self.counts(split)
        return float(counts.max() / max(counts.sum(), 1))


def _count_missing(labels: int, positions: int) -> int:
    if labels > positions:
        raise InputError(
            f"a sample has {labels} labels, and the output has {positions} positions for its batch",
            "give one label for each position",
        )
    return positions - labels
