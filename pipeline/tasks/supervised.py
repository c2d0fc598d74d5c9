"""Base classes of the tasks with labels, in which one output is compared with a target."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from ltp_pipeline.data.dataset import TARGET, Batch, Split
from ltp_pipeline.results.intervals import bootstrap_interval
from ltp_pipeline.results.metric import ExtraMetric, Metric
from ltp_pipeline.results.schema_parts import AccuracyResult, TaskSummary
from ltp_pipeline.settings.schema import TaskKind
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.tasks.protocol import EvaluatedBatch, TaskOutput

if TYPE_CHECKING:
    from torch import Tensor


def decision_threshold(is_probability: bool) -> float:
    """Return the threshold of a single score: 0.5 for a probability, 0 for a logit."""
    return 0.5 if is_probability else 0.0


@dataclass(frozen=True)
class SupervisedTask:
    """A task whose loss compares an output with labels, and optionally with the original's output.

    Attributes:
        output: The output that is compared.
        distillation_weight: Weight of the distillation loss; the loss on labels has the rest.
        label_smoothing: Fraction of a class label that is spread over all classes.
    """

    output: TaskOutput
    distillation_weight: float = 0.0
    label_smoothing: float = 0.0

    task_kind: ClassVar[TaskKind]
    metric: ClassVar[Metric]
    is_relative: ClassVar[bool] = False
    has_unbounded_gradient: ClassVar[bool] = False
    is_per_sample: ClassVar[bool] = True

    @property
    def without_interval(self) -> Self:
        """The task itself: its interval needs no further work."""
        return self

    @property
    def outputs(self) -> tuple[TaskOutput, ...]:
        """The output that is compared, as a tuple."""
        return (self.output,)

    @property
    def is_distilled(self) -> bool:
        """Whether the loss needs the original's output."""
        return self.distillation_weight > 0

    def describe_output(self) -> TaskSummary:
        """Return the summary of the task for the report."""
        return TaskSummary(self.task_kind, self.output.name)

    def compute_loss(
        self,
        outputs: Sequence[Tensor],
        targets: Mapping[str, Tensor],
        teacher_outputs: Sequence[Tensor] | None,
    ) -> Tensor:
        """Return the loss on labels, mixed with the distillation loss; see `Task.compute_loss`."""
        loss = self.label_loss(outputs[0], targets[TARGET])
        if teacher_outputs is None:
            return loss
        weight = self.distillation_weight
        distance = self.distillation_loss(outputs[0], teacher_outputs[0])
        return (1 - weight) * loss + weight * distance

    def label_loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the loss of a batch on its labels."""
        raise NotImplementedError

    def distillation_loss(self, output: Tensor, teacher_output: Tensor) -> Tensor:
        """Return the distance of a batch of outputs from those of the original."""
        raise NotImplementedError

    def compute_scales(
        self,
        originals: Iterable[EvaluatedBatch],  # noqa: ARG002 - required by Task
        samples: int,  # noqa: ARG002 - required by Task
    ) -> Sequence[float]:
        """Return no scales: the metric does not depend on the original."""
        return ()

    def sample_statistics(
        self,
        batches: Iterable[EvaluatedBatch],
        scales: Sequence[float],  # noqa: ARG002 - required by Task
    ) -> Array:
        """Return the statistics of all samples, a row each."""
        return np.concatenate(
            [self.score_samples(outputs[0], batch) for outputs, batch, _ in batches]
        )

    def score_samples(self, output: Array, batch: Batch) -> Array:
        """Return the statistics of a batch, a row per sample."""
        raise NotImplementedError

    def metric_value(self, statistics: Array) -> float:
        """Return the metric; NaN if it is undefined."""
        raise NotImplementedError

    def extra_metrics(
        self,
        statistics: Array,  # noqa: ARG002 - required by tasks with extra metrics
    ) -> tuple[ExtraMetric, ...]:
        """Return what is measured besides the metric."""
        return ()

    def compute_metric(self, statistics: Array, split: str) -> AccuracyResult:
        """Return the metric, or 0 if it is undefined, and the extra metrics."""
        value = self.metric_value(statistics)
        if np.isnan(value):
            value = 0.0
        return AccuracyResult(
            value=value,
            top1=value if self.metric.is_accuracy else None,
            samples=len(statistics),
            split=split,
            extra_metrics=self.extra_metrics(statistics),
        )

    def chance_level(self, split: Split) -> float | None:
        """Return the metric of the best constant prediction."""
        raise NotImplementedError

    def get_original_result(self, samples: int, split: str) -> tuple[AccuracyResult, Array] | None:
        """Return None: the original has to be measured."""

    def correct_samples(self, statistics: Array) -> Array | None:  # noqa: ARG002 - required by Task
        """Return None: a sample may be correct in parts."""
        return None

    def compute_drop_interval(
        self, before: Array, after: Array, confidence: float = 0.95
    ) -> tuple[float, float] | None:
        """Return a bootstrap interval of the drop, for metrics that are no mean over samples."""
        return bootstrap_interval(before, after, self.metric_value, confidence)


@dataclass(frozen=True)
class ClassScoresTask(SupervisedTask):
    """A task whose output scores classes that exclude each other.

    Attributes:
        num_classes: Number of classes.
        axis: Axis of the output that scores the classes.
        is_probability: True if the output is computed by Softmax, or single scores by Sigmoid.
        is_single: True if there is one score instead, that of class 1 against class 0.
    """

    num_classes: int = 0
    axis: int = 1
    is_probability: bool = False
    is_single: bool = False

    def describe_output(self) -> TaskSummary:
        """Return the summary of the task for the report."""
        if self.is_single:
            threshold = decision_threshold(self.is_probability)
            return TaskSummary(self.task_kind, self.output.name, threshold=threshold)
        return TaskSummary(self.task_kind, self.output.name, class_axis=self.axis)
