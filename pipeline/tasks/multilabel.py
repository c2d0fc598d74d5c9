"""Several labels a sample, each there or not: how well each ranks the samples that have it counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ltp_pipeline.data.dataset import TARGET
from ltp_pipeline.results.metric import ExtraMetric, Metric
from ltp_pipeline.results.records import AccuracyResult
from ltp_pipeline.results.schema_parts import TaskSummary
from ltp_pipeline.tasks.outputs import decision_threshold
from ltp_pipeline.tasks.supervised import SupervisedTask

if TYPE_CHECKING:
    from torch import Tensor

    from ltp_pipeline.data.dataset import Batch
    from ltp_pipeline.system.arrays import Array
    from ltp_pipeline.tasks.protocol import SplitLabels

MAP = Metric("mean average precision")


@dataclass(frozen=True)
class MultilabelTask(SupervisedTask):
    """Binary cross-entropy for each label; average precision, averaged over labels."""

    is_probability: bool = False  # the output comes out of a Sigmoid

    task_kind = "multilabel"
    metric = MAP

    def describe_output(self) -> TaskSummary:
        """Whether each score is large."""
        return TaskSummary(
            self.task_kind, self.output.name, threshold=decision_threshold(self.is_probability)
        )

    def label_loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Binary cross-entropy."""
        return _binary_cross_entropy(
            output.float().flatten(1), target.float().flatten(1), self.is_probability
        )

    def distillation_loss(self, output: Tensor, taught: Tensor) -> Tensor:
        """Binary cross-entropy with the original's probabilities, less the least it can be."""
        wanted = taught.float().flatten(1)
        probabilities = wanted if self.is_probability else wanted.sigmoid()
        least = _binary_cross_entropy(wanted, probabilities, self.is_probability)
        return (
            _binary_cross_entropy(output.float().flatten(1), probabilities, self.is_probability)
            - least
        )

    def score_samples(self, output: Array, batch: Batch) -> Array:
        """The score of each label, and whether it is there."""
        scores = output.reshape(len(batch), -1).astype(np.float64)
        scores = np.where(np.isnan(scores), -np.inf, scores)
        return np.concatenate([scores, batch.targets[TARGET].reshape(len(batch), -1)], axis=1)

    def metric_value(self, evidence: Array) -> float:
        """Mean over the labels that any sample has."""
        precision = average_precision(*np.split(evidence, 2, axis=1))
        known = precision[~np.isnan(precision)]
        return float(known.mean()) if known.size else float("nan")

    def compute_metric(self, evidence: Array, split: str) -> AccuracyResult:
        """Mean average precision, and beside it the share of right answers over all labels."""
        scores, there = np.split(evidence, 2, axis=1)
        right = float(((scores > decision_threshold(self.is_probability)) == (there > 0.5)).mean())
        beside = (ExtraMetric("per-label accuracy", right),)
        return AccuracyResult(
            self.metric_or_zero(evidence), None, None, len(evidence), split, extra_metrics=beside
        )

    def chance_level(self, split: SplitLabels) -> float:
        """Of any order: the share of samples that have a label, averaged over labels."""
        there = split.inspected_targets
        shares = there.reshape(len(there), -1).mean(0)
        return float(shares[shares > 0].mean()) if shares.any() else 0.0


def average_precision(scores: Array, there: Array) -> Array:
    """For each column Σ (R_k - R_(k-1)) P_k over thresholds, equal scores as one; NaN where nothing is there."""
    order = np.argsort(-scores, axis=0, kind="stable")
    ranked, hits = (np.take_along_axis(a, order, axis=0) for a in (scores, there))
    found = np.cumsum(hits, axis=0)
    last = np.ones(ranked.shape, bool)
    last[:-1] = ranked[:-1] != ranked[1:]
    at_ends = np.where(last, found, 0)
    before = np.zeros_like(at_ends)
    before[1:] = np.maximum.accumulate(at_ends, axis=0)[:-1]
    precision = found / np.arange(1, len(ranked) + 1)[:, None]
    with np.errstate(invalid="ignore"):
        average: Array = (np.where(last, found - before, 0) * precision).sum(0) / found[-1]
    return average


def _binary_cross_entropy(output: Tensor, target: Tensor, is_probability: bool) -> Tensor:
    import torch.nn.functional as F

    if is_probability:
        return F.binary_cross_entropy(output.clamp(0, 1), target)
    return F.binary_cross_entropy_with_logits(output, target)
