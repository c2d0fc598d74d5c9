"""A class for each pixel: the overlap of found and true areas counts, averaged over classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ltp_pipeline.results.metric import ExtraMetric, Metric
from ltp_pipeline.results.records import AccuracyResult
from ltp_pipeline.tasks.positions import ClassMapTask

if TYPE_CHECKING:
    from ltp_pipeline.data.dataset import Batch
    from ltp_pipeline.system.arrays import Array
    from ltp_pipeline.tasks.protocol import SplitLabels

MIOU = Metric("mIoU")


@dataclass(frozen=True)
class SegmentationTask(ClassMapTask):
    """Cross-entropy on class maps; the mean over classes of intersection / union."""

    task_kind = "segmentation"
    metric = MIOU

    def score_samples(self, output: Array, batch: Batch) -> Array:
        """For each class how many pixels are right, how many were found, how many are true."""
        found, labels = self.answers(output, batch)
        known = labels != self.ignored
        places = np.arange(len(batch))[:, None] * self.classes
        parts = []
        for classes, counted in (
            (labels, known & (found == labels)),
            (found, known & (found >= 0)),
            (labels, known),
        ):
            flat = (places + classes)[counted]
            parts.append(
                np.bincount(flat, minlength=len(batch) * self.classes).reshape(
                    len(batch), self.classes
                )
            )
        return np.concatenate(parts, axis=1)

    def metric_value(self, evidence: Array) -> float:
        """Mean over the classes that were found or are true."""
        right, found, true = np.split(evidence.sum(0), 3)
        union = found + true - right
        return float((right[union > 0] / union[union > 0]).mean()) if union.any() else float("nan")

    def compute_metric(self, evidence: Array, split: str) -> AccuracyResult:
        """mIoU, and beside it the share of right pixels."""
        right, _, true = np.split(evidence.sum(0), 3)
        pixels = ExtraMetric("pixel accuracy", float(right.sum() / max(true.sum(), 1)))
        return AccuracyResult(
            self.metric_or_zero(evidence), None, None, len(evidence), split, extra_metrics=(pixels,)
        )

    def chance_level(self, split: SplitLabels) -> float:
        """mIoU of naming the most frequent class everywhere."""
        counts = self.counts(split)
        return float(counts.max() / max(counts.sum(), 1) / max(np.count_nonzero(counts), 1))
