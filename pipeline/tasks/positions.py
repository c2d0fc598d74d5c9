"""A class for each position of a sample, such as a token; positions may be without a class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ltp_pipeline.data.dataset import TARGET, Batch, Split
from ltp_pipeline.errors import InputError
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.tasks.classification import TOP1
from ltp_pipeline.tasks.supervised import ClassScoresTask, decision_threshold

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class ClassMapTask(ClassScoresTask):
    """A class for each position, with cross-entropy over positions that have a class as loss.

    Attributes:
        ignore_index: Label of positions without a class.
    """

    ignore_index: int = -100

    def label_loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the cross-entropy of a batch; 0 if no position has a class."""
        import torch.nn.functional as F

        scores = self._class_scores(output)
        labels = target.reshape(len(target), -1).long()
        num_missing = _count_missing(labels.shape[1], scores.shape[2])
        labels = F.pad(labels, (0, num_missing), value=self.ignore_index)
        total = F.cross_entropy(
            scores,
            labels,
            ignore_index=self.ignore_index,
            reduction="sum",
            label_smoothing=self.label_smoothing,
        )
        return total / (labels != self.ignore_index).sum().clamp_min(1)

    def distillation_loss(self, output: Tensor, teacher_output: Tensor) -> Tensor:
        """Return the divergence between the softened probabilities of all positions."""
        from ltp_pipeline.tasks.losses import softened_divergence

        scores = self._class_scores(output).movedim(1, -1)
        teacher_scores = self._class_scores(teacher_output).movedim(1, -1)
        return softened_divergence(scores.flatten(0, -2), teacher_scores.flatten(0, -2))

    def _class_scores(self, output: Tensor) -> Tensor:
        """Return logits or log-probabilities of shape (samples, classes, positions)."""
        from ltp_pipeline.tasks.losses import to_logits

        if self.is_single:
            scores = output.float().reshape(len(output), 1, -1)
        else:
            scores = output.float().movedim(self.axis, 1).flatten(2)
        return to_logits(scores, self.is_probability, self.is_single)

    def predict_classes(self, output: Array, batch: Batch) -> tuple[Array, Array]:
        """Return predicted classes and labels, each of shape (samples, positions).

        A model of fixed length has more positions than the longest sample of a batch. The labels
        are padded with `ignore_index`. A prediction from NaN is -1.
        """
        labels = batch.targets[TARGET].reshape(len(batch), -1).astype(np.int64)
        if self.is_single:
            is_second = output > decision_threshold(self.is_probability)
            predicted = np.where(np.isnan(output), -1, is_second)
        else:
            scores = np.moveaxis(output, self.axis, -1)
            predicted = np.where(np.isnan(scores).any(-1), -1, scores.argmax(-1))
        predicted = predicted.reshape(len(batch), -1)
        num_missing = _count_missing(labels.shape[1], predicted.shape[1])
        padding = ((0, 0), (0, num_missing))
        return predicted, np.pad(labels, padding, constant_values=self.ignore_index)

    def count_labels(self, split: Split) -> Array:
        """Return how often each class occurs in some samples of a split."""
        labels = split.inspected_targets
        classes = labels[labels != self.ignore_index].astype(np.int64)
        return np.bincount(classes, minlength=self.num_classes)


class PositionTask(ClassMapTask):
    """A class for each position, measured by the accuracy over all positions with a class."""

    task_kind = "classification"
    metric = TOP1

    def score_samples(self, output: Array, batch: Batch) -> Array:
        """Return for each sample how many positions are correct, and how many have a class."""
        predicted, labels = self.predict_classes(output, batch)
        has_class = labels != self.ignore_index
        is_correct = (predicted == labels) & has_class
        return np.stack([is_correct.sum(1), has_class.sum(1)], axis=1)

    def metric_value(self, statistics: Array) -> float:
        """Return the accuracy over positions; NaN if none has a class."""
        num_correct, count = statistics.sum(0)
        return float(num_correct / count) if count else float("nan")

    def chance_level(self, split: Split) -> float:
        """Return the accuracy of always predicting the most frequent class."""
        counts = self.count_labels(split)
        return float(counts.max() / max(counts.sum(), 1))


def _count_missing(num_labels: int, num_positions: int) -> int:
    """Return how many positions are without a label; raise InputError if there are too few."""
    if num_labels > num_positions:
        raise InputError(
            f"a sample has {num_labels} labels, and the output has {num_positions} positions for "
            "its batch",
            "pass one label for each position",
        )
    return num_positions - num_labels
