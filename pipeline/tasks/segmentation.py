"""Segmentation: a class for each pixel, measured by mean intersection over union (mIoU)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ltp_pipeline.results.metric import ExtraMetric, Metric
from ltp_pipeline.results.schema_parts import AccuracyResult
from ltp_pipeline.tasks.positions import ClassMapTask

if TYPE_CHECKING:
    from ltp_pipeline.data.dataset import Batch
    from ltp_pipeline.system.arrays import Array
    from ltp_pipeline.tasks.protocol import SplitLabels

MIOU = Metric("mIoU")


@dataclass(frozen=True)
class SegmentationTask(ClassMapTask):
    """A class for each pixel, measured by intersection over union, averaged over classes."""

    task_kind = "segmentation"
    metric = MIOU

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

    def compute_metric(self, statistics: Array, split: str) -> AccuracyResult:
        """Return mIoU, and the fraction of correct pixels as an extra metric."""
        correct, _, labeled = np.split(statistics.sum(0), 3)
        pixels = ExtraMetric("pixel accuracy", float(correct.sum() / max(labeled.sum(), 1)))
        value = self.metric_or_zero(statistics)
        return AccuracyResult(
            value=value,
            top1=None,
            top5=None,
            samples=len(statistics),
            split=split,
            extra_metrics=(pixels,),
        )

    def chance_level(self, split: SplitLabels) -> float:
        """Return the mIoU of predicting the most frequent class everywhere."""
        counts = self.count_labels(split)
        num_present = max(np.count_nonzero(counts), 1)
        return float(counts.max() / max(counts.sum(), 1) / num_present)
