"""What a network is asked to do: the words in which stages speak of samples, outputs, losses and scores.

A task knows the loss of a batch, how each sample did, and the metric of them all (metric.py). What computes the
outputs, torch or onnxruntime, is a function from inputs to arrays; so both are judged alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from ltp_pipeline.results.metric import ExtraMetric, Metric

if TYPE_CHECKING:
    from torch import Tensor

    from ltp_pipeline.data.dataset import Batch
    from ltp_pipeline.results.records import AccuracyResult
    from ltp_pipeline.results.schema_parts import TaskSummary
    from ltp_pipeline.system.arrays import Array

    Inputs = Mapping[str, Array]
    ComputeOutputs = Callable[
        [Inputs], Sequence[Array]
    ]  # from the inputs of a batch to the judged outputs

__all__ = [
    "EvaluatedBatch",
    "ExtraMetric",
    "Metric",
    "OutputKind",
    "SplitLabels",
    "Task",
    "TaskOutput",
]

OutputKind = Literal["scores", "values"]


@dataclass(frozen=True)
class TaskOutput:
    """An output that is judged: class scores, whose largest counts, or values, whose distance counts."""

    position: int
    name: str
    kind: OutputKind
    maybe_scores: bool = False  # its shape is that of class scores, whatever it is taken for

    @property
    def has_argmax(self) -> bool:
        """Whether the place of its largest number may mean a class."""
        return self.kind == "scores" or self.maybe_scores


class SplitLabels(Protocol):
    """What a task needs to know of a split to guess."""

    @property
    def labels(self) -> Array | None:
        """The class number of each sample; None where samples have none."""

    @property
    def inspected_targets(self) -> Array:
        """What outputs should be, of all samples or of some."""


class EvaluatedBatch(NamedTuple):
    """What a network makes of a batch; `originals` is what the original makes of it, where scores are relative."""

    outputs: Sequence[Array]
    batch: Batch
    originals: Sequence[Array] | None


class Task(Protocol):
    """Everything that depends on what the network is for."""

    @property
    def metric(self) -> Metric:
        """What is measured."""

    def describe_output(self) -> TaskSummary:
        """What the network is for, and how it tells its answer."""

    @property
    def outputs(self) -> tuple[TaskOutput, ...]:
        """The outputs that are judged, in the order in which losses and scores get them."""

    @property
    def is_distilled(self) -> bool:
        """Whether the loss needs the original's outputs."""

    @property
    def is_relative(self) -> bool:
        """Whether a score needs the original's outputs."""

    @property
    def has_unbounded_gradient(self) -> bool:
        """Whether the loss may have a gradient of any size."""

    @property
    def is_per_sample(self) -> bool:
        """Whether evidence has a row for each sample, so that several processes can share the samples."""

    @property
    def without_interval(self) -> Task:
        """The same, without what only intervals need: networks are chosen by it."""

    def compute_loss(
        self,
        outputs: Sequence[Tensor],
        targets: Mapping[str, Tensor],
        taught: Sequence[Tensor] | None,
    ) -> Tensor:
        """Loss of a batch; `taught` are the original's outputs where the task is taught."""

    def compute_scales(self, originals: Iterable[EvaluatedBatch], samples: int) -> Sequence[float]:
        """What scores of a split are relative to, from what the original makes of all its batches."""

    def sample_statistics(self, judged: Iterable[EvaluatedBatch], scale: Sequence[float]) -> Array:
        """How each sample did, in rows of numbers: all that the metric and its interval need."""

    def compute_metric(self, evidence: Array, split: str) -> AccuracyResult:
        """The metric, and what is told beside it."""

    def correct_samples(self, evidence: Array) -> Array | None:
        """Whether each sample is right; None where the metric is no share of samples that are right or wrong."""

    def compute_drop_interval(
        self, before: Array, after: Array, confidence: float = 0.95
    ) -> tuple[float, float] | None:
        """How sure the drop from one network to another is, by the evidence of both on the same samples.

        Positive is worse. None where that is not known (intervals.UNDEFINED).
        """

    def get_original_result(self, samples: int, split: str) -> tuple[AccuracyResult, Array] | None:
        """The original's own accuracy and evidence, where that needs no measuring."""

    def chance_level(self, split: SplitLabels) -> float | None:
        """The metric of the best answer that does not look at the input; None where there is no such thing."""
