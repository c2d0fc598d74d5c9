"""What a network is asked to do: the words in which stages speak of samples, outputs, losses and scores.

A task knows the loss of a batch, how each sample did, and the metric of them all (metric.py). What computes the
outputs, torch or onnxruntime, is a function from inputs to arrays; so both are judged alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from ltp_pipeline.results.metric import Figure, Metric

if TYPE_CHECKING:
    from torch import Tensor

    from ltp_pipeline.data.dataset import Batch
    from ltp_pipeline.results.records import Accuracy
    from ltp_pipeline.results.schema_parts import Asked
    from ltp_pipeline.system.arrays import Array

    Inputs = Mapping[str, Array]
    Run = Callable[[Inputs], Sequence[Array]]  # from the inputs of a batch to the judged outputs

__all__ = ["Figure", "Judged", "Kind", "Labels", "Metric", "Output", "Task"]

Kind = Literal["scores", "values"]


@dataclass(frozen=True)
class Output:
    """An output that is judged: class scores, whose largest counts, or values, whose distance counts."""

    position: int
    name: str
    kind: Kind
    maybe_scores: bool = False  # its shape is that of class scores, whatever it is taken for

    @property
    def has_argmax(self) -> bool:
        """Whether the place of its largest number may mean a class."""
        return self.kind == "scores" or self.maybe_scores


class Labels(Protocol):
    """What a task needs to know of a split to guess."""

    @property
    def labels(self) -> Array | None:
        """The class number of each sample; None where samples have none."""

    @property
    def some_targets(self) -> Array:
        """What outputs should be, of all samples or of some."""


class Judged(NamedTuple):
    """What a network makes of a batch; `originals` is what the original makes of it, where scores are relative."""

    outputs: Sequence[Array]
    batch: Batch
    originals: Sequence[Array] | None


class Task(Protocol):
    """Everything that depends on what the network is for."""

    @property
    def metric(self) -> Metric:
        """What is measured."""

    @property
    def asked(self) -> Asked:
        """What the network is for, and how it tells its answer."""

    @property
    def outputs(self) -> tuple[Output, ...]:
        """The outputs that are judged, in the order in which losses and scores get them."""

    @property
    def is_taught(self) -> bool:
        """Whether the loss needs the original's outputs."""

    @property
    def is_relative(self) -> bool:
        """Whether a score needs the original's outputs."""

    @property
    def is_steep(self) -> bool:
        """Whether the loss may have a gradient of any size."""

    @property
    def is_by_sample(self) -> bool:
        """Whether evidence has a row for each sample, so that several processes can share the samples."""

    @property
    def quick(self) -> Task:
        """The same, without what only intervals need: networks are chosen by it."""

    def loss(
        self,
        outputs: Sequence[Tensor],
        targets: Mapping[str, Tensor],
        taught: Sequence[Tensor] | None,
    ) -> Tensor:
        """Loss of a batch; `taught` are the original's outputs where the task is taught."""

    def scale(self, originals: Iterable[Judged], samples: int) -> Sequence[float]:
        """What scores of a split are relative to, from what the original makes of all its batches."""

    def evidence(self, judged: Iterable[Judged], scale: Sequence[float]) -> Array:
        """How each sample did, in rows of numbers: all that the metric and its interval need."""

    def accuracy(self, evidence: Array, split: str) -> Accuracy:
        """The metric, and what is told beside it."""

    def right(self, evidence: Array) -> Array | None:
        """Whether each sample is right; None where the metric is no share of samples that are right or wrong."""

    def interval(
        self, before: Array, after: Array, confidence: float = 0.95
    ) -> tuple[float, float] | None:
        """How sure the drop from one network to another is, by the evidence of both on the same samples.

        Positive is worse. None where that is not known (intervals.UNDEFINED).
        """

    def of_the_original(self, samples: int, split: str) -> tuple[Accuracy, Array] | None:
        """The original's own accuracy and evidence, where that needs no measuring."""

    def guess(self, split: Labels) -> float | None:
        """The metric of the best answer that does not look at the input; None where there is no such thing."""
