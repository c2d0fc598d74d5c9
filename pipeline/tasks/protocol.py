"""What every task offers: loss, statistics of samples, metric and confidence interval.

A task does not know what computes the outputs. torch and onnxruntime are both functions from
inputs to arrays, so that both are evaluated by the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from ltp_pipeline.data.dataset import Batch, Split
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.results.schema_parts import AccuracyResult, TaskSummary
from ltp_pipeline.system.arrays import Array

if TYPE_CHECKING:
    from torch import Tensor

# Returns the evaluated outputs of a batch of inputs, in the order of Task.outputs.
ComputeOutputs = Callable[[Mapping[str, Array]], Sequence[Array]]
OutputKind = Literal["scores", "values"]


@dataclass(frozen=True)
class TaskOutput:
    """An output that is evaluated.

    Attributes:
        position: Position among the outputs of the graph.
        name: Name of the output.
        kind: "scores" of classes, whose argmax is compared, or "values", whose distance is.
        may_be_scores: True if "values" have the shape of class scores.
    """

    position: int
    name: str
    kind: OutputKind
    may_be_scores: bool = False

    @property
    def has_argmax(self) -> bool:
        """Whether the position of the largest value may be a class."""
        return self.kind == "scores" or self.may_be_scores


class EvaluatedBatch(NamedTuple):
    """A batch with the outputs of a network.

    Attributes:
        outputs: Outputs of the network.
        batch: Inputs and targets.
        original_outputs: Outputs of the original; None if the metric does not need them.
    """

    outputs: Sequence[Array]
    batch: Batch
    original_outputs: Sequence[Array] | None


class Task(Protocol):
    """All that depends on what the network is for."""

    @property
    def metric(self) -> Metric:
        """The metric."""

    @property
    def outputs(self) -> tuple[TaskOutput, ...]:
        """The outputs that are evaluated, in the order that losses and statistics expect."""

    @property
    def is_distilled(self) -> bool:
        """Whether the loss needs the original's outputs."""

    @property
    def is_relative(self) -> bool:
        """Whether the metric compares with the original's outputs."""

    @property
    def has_unbounded_gradient(self) -> bool:
        """Whether the gradient of the loss may have any norm, so that it must be clipped."""

    @property
    def is_per_sample(self) -> bool:
        """Whether statistics have a row per sample, so that ranks can share the samples."""

    @property
    def without_interval(self) -> Task:
        """The task without work that only a confidence interval needs."""

    def describe_output(self) -> TaskSummary:
        """Return the summary of the task for the report."""

    def compute_loss(
        self,
        outputs: Sequence[Tensor],
        targets: Mapping[str, Tensor],
        teacher_outputs: Sequence[Tensor] | None,
    ) -> Tensor:
        """Return the loss of a batch.

        Args:
            outputs: Outputs of the network.
            targets: Targets of the batch, by name.
            teacher_outputs: Outputs of the original; None unless `is_distilled`.
        """

    def compute_scales(self, originals: Iterable[EvaluatedBatch], samples: int) -> Sequence[float]:
        """Return what errors on a split are divided by, one number per output.

        Args:
            originals: All batches of the split, with outputs of the original.
            samples: Number of samples in the split.
        """

    def sample_statistics(
        self, batches: Iterable[EvaluatedBatch], scales: Sequence[float]
    ) -> Array:
        """Return the statistics that metric and interval need, usually a row per sample."""

    def compute_metric(self, statistics: Array, split: str) -> AccuracyResult:
        """Return the metric and further figures; `split` is the name of the split."""

    def correct_samples(self, statistics: Array) -> Array | None:
        """Return which samples are correct; None if the metric does not count samples."""

    def compute_drop_interval(
        self, before: Array, after: Array, confidence: float = 0.95
    ) -> tuple[float, float] | None:
        """Return the confidence interval of the metric's drop between two networks.

        Args:
            before: Statistics of the first network.
            after: Statistics of the second network on the same samples.
            confidence: Confidence level.

        Returns:
            Lowest and highest drop, positive if the second network is worse; None if undefined.
        """

    def get_original_result(self, samples: int, split: str) -> tuple[AccuracyResult, Array] | None:
        """Return metric and statistics of the original if they need no measurement, else None."""

    def chance_level(self, split: Split) -> float | None:
        """Return the metric of the best constant prediction; None if there is none."""
