"""What a network is asked to do: the words in which stages speak of samples, outputs, losses and scores.

A task knows the loss of a batch, the score of a sample, and the metric that the scores are averaged to (metric.py).
What computes the outputs, torch or onnxruntime, is a function from inputs to arrays; so both are judged alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from ltp_pipeline.metric import Figure, Metric

if TYPE_CHECKING:
    from torch import Tensor

    from ltp_pipeline.records import Accuracy, Array

    Inputs = Mapping[str, Array]
    Run = Callable[[Inputs], Sequence[Array]]  # from the inputs of a batch to the judged outputs

__all__ = ["LABEL", "Batch", "Figure", "Kind", "Metric", "Output", "Scores", "Task"]

LABEL = "label"  # the target of data with class numbers

Kind = Literal["scores", "values"]


@dataclass(frozen=True)
class Batch:
    """Some samples: what the model takes and what it should give, each by its name."""

    inputs: Mapping[str, Array]
    targets: Mapping[str, Array]  # empty where the data have no labels

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))


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


class Task(Protocol):
    """Everything that depends on what the network is for."""

    @property
    def metric(self) -> Metric:
        """What is measured."""

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

    def loss(self, outputs: Sequence[Tensor], targets: Mapping[str, Tensor], taught: Sequence[Tensor] | None) -> Tensor:
        """Loss of a batch; `taught` are the original's outputs where the task is taught."""

    def scale(self, originals: Iterable[Sequence[Array]], samples: int) -> Sequence[float]:
        """What scores of a split are relative to, from the original's outputs on all its batches."""

    def score(
        self, outputs: Sequence[Array], batch: Batch, originals: Sequence[Array] | None, scale: Sequence[float]
    ) -> Scores:
        """How each sample of a batch did."""

    def summary(self, scores: Sequence[Scores], split: str) -> tuple[Accuracy, Array]:
        """The metric over all batches of a split; also the score of each sample, 1 at best."""

    def of_the_original(self, samples: int, split: str) -> tuple[Accuracy, Array] | None:
        """The original's own summary where that needs no measuring."""

    def interval(self, before: Array, after: Array, confidence: float = 0.95) -> tuple[float, float]:
        """How sure the drop from one network's scores to another's is, on the same samples; positive is worse."""


@dataclass(frozen=True)
class Scores:
    """The score of each sample of a batch, and what is told beside the metric."""

    each: Array
    beside: Array
