"""What all tasks with labels have in common: one output is judged by them, and may be learned from the original too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self, TypeVar

import numpy as np

from ltp_pipeline.data.dataset import TARGET
from ltp_pipeline.results.intervals import bootstrap_interval
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.results.schema_parts import TaskSummary
from ltp_pipeline.tasks.protocol import EvaluatedBatch, TaskOutput

if TYPE_CHECKING:
    from torch import Tensor

    from ltp_pipeline.data.dataset import Batch
    from ltp_pipeline.results.records import AccuracyResult
    from ltp_pipeline.settings.schema import TaskKind
    from ltp_pipeline.system.arrays import Array
    from ltp_pipeline.tasks.protocol import SplitLabels

Values = TypeVar("Values", "Array", "Tensor")


@dataclass(frozen=True)
class SupervisedTask:
    """A task that says how far an output is from its target, and from the original's output."""

    output: TaskOutput
    distillation_weight: float = 0.0  # share of the loss that is learned from the original
    label_smoothing: float = 0.0  # share of a class label that is spread over all classes
    one_hot: int | None = (
        None  # axis of the labels along which a 1 marks the class; None where they are its number
    )

    task_kind: ClassVar[TaskKind]
    metric: ClassVar[Metric]
    is_relative: ClassVar[bool] = False
    has_unbounded_gradient: ClassVar[bool] = False
    is_per_sample: ClassVar[bool] = True

    @property
    def without_interval(self) -> Self:
        """Intervals need nothing more."""
        return self

    def describe_output(self) -> TaskSummary:
        """The output's own numbers are the answer."""
        return TaskSummary(self.task_kind, self.output.name)

    @property
    def outputs(self) -> tuple[TaskOutput, ...]:
        """The one that is meant."""
        return (self.output,)

    @property
    def is_distilled(self) -> bool:
        """Whether the original is learned from."""
        return self.distillation_weight > 0

    def with_distillation(self, share: float, label_smoothing: float = 0.0) -> Self:
        """The same task, with this share of the loss learned from the original, and labels smoothed."""
        return replace(self, distillation_weight=share, label_smoothing=label_smoothing)

    def compute_loss(
        self,
        outputs: Sequence[Tensor],
        targets: Mapping[str, Tensor],
        taught: Sequence[Tensor] | None,
    ) -> Tensor:
        """Error on the labels, mixed with the distance from the original where it is learned from."""
        errors = self.label_loss(outputs[0], targets[TARGET])
        if taught is None:
            return errors
        return (
            1 - self.distillation_weight
        ) * errors + self.distillation_weight * self.distillation_loss(outputs[0], taught[0])

    def class_numbers(self, target: Values) -> Values:
        """The labels as class numbers."""
        return target if self.one_hot is None else target.argmax(self.one_hot)

    def label_loss(self, output: Tensor, target: Tensor) -> Tensor:
        """How far an output is from its target, over a batch."""
        raise NotImplementedError

    def distillation_loss(self, output: Tensor, taught: Tensor) -> Tensor:
        """How far an output is from the original's, over a batch."""
        raise NotImplementedError

    def compute_scales(self, originals: Iterable[EvaluatedBatch], samples: int) -> Sequence[float]:  # noqa: ARG002 - a Task's
        """Right is right, whatever the original says."""
        return ()

    def sample_statistics(self, judged: Iterable[EvaluatedBatch], scale: Sequence[float]) -> Array:  # noqa: ARG002 - a Task's
        """A row for each sample."""
        return np.concatenate(
            [self.score_samples(outputs[0], batch) for outputs, batch, _ in judged]
        )

    def score_samples(self, output: Array, batch: Batch) -> Array:
        """How each sample of a batch did."""
        raise NotImplementedError

    def metric_value(self, evidence: Array) -> float:
        """The metric; NaN where it is undefined."""
        raise NotImplementedError

    def metric_or_zero(self, evidence: Array) -> float:
        """The metric; 0 where it is undefined."""
        value = self.metric_value(evidence)
        return 0.0 if np.isnan(value) else value

    def compute_metric(self, evidence: Array, split: str) -> AccuracyResult:
        """The metric, and what is told beside it."""
        raise NotImplementedError

    def chance_level(self, split: SplitLabels) -> float | None:
        """The metric of the best answer that does not look at the input."""
        raise NotImplementedError

    def get_original_result(self, samples: int, split: str) -> tuple[AccuracyResult, Array] | None:
        """It has to be measured."""

    def correct_samples(self, evidence: Array) -> Array | None:  # noqa: ARG002 - a Task's
        """A sample may be right in parts."""
        return None

    def compute_drop_interval(
        self, before: Array, after: Array, confidence: float = 0.95
    ) -> tuple[float, float] | None:
        """By resampling: the metric is no mean over samples."""
        return bootstrap_interval(before, after, self.metric_value, confidence)
