"""Segmentation: a class for each pixel, measured by mean intersection over union (mIoU)."""

from __future__ import annotations

import numpy as np

from ltp_pipeline.data.dataset import Batch, Split
from ltp_pipeline.results.metric import ExtraMetric, Metric
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.tasks.positions import ClassMapTask


class SegmentationTask(ClassMapTask):
    """A class for each pixel, measured by intersection over union, averaged over classes."""

    task_kind = "segmentation"
    metric = Metric("mIoU")

    def score_samples(self, output: Array, batch: Batch) -> Array:
        """Return numbers of correct, predicted and labeled pixels of each class, side by side."""
        predicted, labels = self.predict_classes(output, batch)
        has_class = labels != self.ignore_index
        counts = (
            self._count_pixels(labels, has_class & (predicted == labels)),
            self._count_pixels(predicted, has_class & (predicted >= 0)),
            self._count_pixels(labels, has_class),
        )
        return np.concatenate(counts, axis=1)

    def _count_pixels(self, classes: Array, is_counted: Array) -> Array:
        """Return numbers of pixels, of shape (samples, classes)."""
        num_samples = len(classes)
        offsets = np.arange(num_samples)[:, None] * self.num_classes
        counts = np.bincount(
            (offsets + classes)[is_counted], minlength=num_samples * self.num_classes
        )
        return counts.reshape(num_samples, self.num_classes)

    def metric_value(self, statistics: Array) -> float:
        """Return the mean over classes that were predicted or labeled; NaN if there are none."""
        correct, predicted, labeled = np.split(statistics.sum(0), 3)
        union = predicted + labeled - correct
        if not union.any():
            return float("nan")
        return float((correct[union > 0] / union[union > 0]).mean())

    def extra_metrics(self, statistics: Array) -> tuple[ExtraMetric, ...]:
        """Return the fraction of correct pixels."""
        correct, _, labeled = np.split(statistics.sum(0), 3)
        accuracy = float(correct.sum() / max(labeled.sum(), 1))
        return (ExtraMetric("pixel accuracy", accuracy),)

    def chance_level(self, split: Split) -> float:
        """Return the mIoU of predicting the most frequent class everywhere."""
        counts = self.count_labels(split)
        num_present = max(np.count_nonzero(counts), 1)
        return float(counts.max() / max(counts.sum(), 1) / num_present)
