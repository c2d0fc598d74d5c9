"""What all tasks with labels have in common: one output is judged by them, and may be learned from the original too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self, TypeVar

import numpy as np

from ltp_pipeline.data.dataset import TARGET
from ltp_pipeline.results.intervals import bootstrap_interval
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.results.schema_parts import Asked
from ltp_pipeline.tasks.protocol import Judged, Output

if TYPE_CHECKING:
    from torch import Tensor

    from ltp_pipeline.data.dataset import Batch
    from ltp_pipeline.results.records import Accuracy
    from ltp_pipeline.settings.schema import TaskKind
    from ltp_pipeline.system.arrays import Array
    from ltp_pipeline.tasks.protocol import Labels

Values = TypeVar("Values", "Array", "Tensor")


@dataclass(frozen=True)
class Labelled:
    """A task that says how far an output is from its target, and from the original's output."""

    output: Output
    distill: float = 0.0  # share of the loss that is learned from the original
    label_smoothing: float = 0.0  # share of a class label that is spread over all classes
    one_hot: int | None = (
        None  # axis of the labels along which a 1 marks the class; None where they are its number
    )

    task_kind: ClassVar[TaskKind]
    metric: ClassVar[Metric]
    is_relative: ClassVar[bool] = False
    is_steep: ClassVar[bool] = False
    is_by_sample: ClassVar[bool] = True

    @property
    def quick(self) -> Self:
        """Intervals need nothing more."""
        return self

    @property
    def asked(self) -> Asked:
        """The output's own numbers are the answer."""
        return Asked(self.task_kind, self.output.name)

    @property
    def outputs(self) -> tuple[Output, ...]:
        """The one that is meant."""
        return (self.output,)

    @property
    def is_taught(self) -> bool:
        """Whether the original is learned from."""
        return self.distill > 0

    def taught(self, share: float, label_smoothing: float = 0.0) -> Self:
        """The same task, with this share of the loss learned from the original, and labels smoothed."""
        return replace(self, distill=share, label_smoothing=label_smoothing)

    def loss(
        self,
        outputs: Sequence[Tensor],
        targets: Mapping[str, Tensor],
        taught: Sequence[Tensor] | None,
    ) -> Tensor:
        """Error on the labels, mixed with the distance from the original where it is learned from."""
        errors = self.error(outputs[0], targets[TARGET])
        if taught is None:
            return errors
        return (1 - self.distill) * errors + self.distill * self.distance(outputs[0], taught[0])

    def class_numbers(self, target: Values) -> Values:
        """The labels as class numbers."""
        return target if self.one_hot is None else target.argmax(self.one_hot)

    def error(self, output: Tensor, target: Tensor) -> Tensor:
        """How far an output is from its target, over a batch."""
        raise NotImplementedError

    def distance(self, output: Tensor, taught: Tensor) -> Tensor:
        """How far an output is from the original's, over a batch."""
        raise NotImplementedError

    def scale(self, originals: Iterable[Judged], samples: int) -> Sequence[float]:  # noqa: ARG002 - a Task's
        """Right is right, whatever the original says."""
        return ()

    def evidence(self, judged: Iterable[Judged], scale: Sequence[float]) -> Array:  # noqa: ARG002 - a Task's
        """A row for each sample."""
        return np.concatenate([self.rows(outputs[0], batch) for outputs, batch, _ in judged])

    def rows(self, output: Array, batch: Batch) -> Array:
        """How each sample of a batch did."""
        raise NotImplementedError

    def value(self, evidence: Array) -> float:
        """The metric; NaN where it is undefined."""
        raise NotImplementedError

    def measured(self, evidence: Array) -> float:
        """The metric; 0 where it is undefined."""
        value = self.value(evidence)
        return 0.0 if np.isnan(value) else value

    def accuracy(self, evidence: Array, split: str) -> Accuracy:
        """The metric, and what is told beside it."""
        raise NotImplementedError

    def guess(self, split: Labels) -> float | None:
        """The metric of the best answer that does not look at the input."""
        raise NotImplementedError

    def of_the_original(self, samples: int, split: str) -> tuple[Accuracy, Array] | None:
        """It has to be measured."""

    def right(self, evidence: Array) -> Array | None:  # noqa: ARG002 - a Task's
        """A sample may be right in parts."""
        return None

    def interval(
        self, before: Array, after: Array, confidence: float = 0.95
    ) -> tuple[float, float] | None:
        """By resampling: the metric is no mean over samples."""
        return bootstrap_interval(before, after, self.value, confidence)
