"""Data with class numbers: the first output scores the classes, the share of right answers counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ltp_pipeline.data import check_labels
from ltp_pipeline.errors import InputError
from ltp_pipeline.intervals import paired_interval
from ltp_pipeline.records import Accuracy
from ltp_pipeline.task import LABEL, Metric, Output, Scores
from ltp_pipeline.tasks.outputs import from_softmax, is_score

if TYPE_CHECKING:
    from onnx import GraphProto
    from torch import Tensor

    from ltp_pipeline.data import Data
    from ltp_pipeline.records import Array
    from ltp_pipeline.task import Batch

TOP1 = Metric("top-1")


@dataclass(frozen=True)
class Classification:
    """Cross-entropy on the labels; a share of the loss may be learned from the original (`distill`)."""

    output: Output
    classes: int
    is_probability: bool = False  # the output comes out of a Softmax
    distill: float = 0.0
    label_smoothing: float = 0.0  # share of a label that is spread over all classes

    is_relative = is_steep = False
    metric = TOP1

    @classmethod
    def of(
        cls,
        graph: GraphProto,
        shapes: Sequence[tuple[int, ...] | None],
        samples: int,
        data: Data,
    ) -> Classification:
        """The task of a graph; an error when its first output is no class score, or labels are out of range."""
        shape, name = shapes[0], graph.output[0].name
        if shape is None or not is_score(shape, samples):
            raise InputError(
                f"output {name!r} of shape {shape} for {samples} samples is no class score",
                "give a classifier whose first output is (batch, classes), or data without labels to learn from the "
                "original's own outputs",
            )
        check_labels(data, shape[1])
        return cls(Output(0, name, "scores"), shape[1], 0 in from_softmax(graph))

    @property
    def outputs(self) -> tuple[Output, ...]:
        """The first one."""
        return (self.output,)

    @property
    def is_taught(self) -> bool:
        """Whether the original is learned from."""
        return self.distill > 0

    def loss(self, outputs: Sequence[Tensor], targets: Mapping[str, Tensor], taught: Sequence[Tensor] | None) -> Tensor:
        """Error on the labels, mixed with the distance from the original where it is learned from."""
        import torch.nn.functional as F

        from ltp_pipeline.tasks.losses import divergence, log_probabilities

        scores = log_probabilities(outputs[0], self.is_probability)
        errors = F.cross_entropy(scores, targets[LABEL], label_smoothing=self.label_smoothing)
        if taught is None:
            return errors
        distance = divergence(scores, log_probabilities(taught[0], self.is_probability))
        return (1 - self.distill) * errors + self.distill * distance

    def scale(self, originals: Iterable[Sequence[Array]], samples: int) -> Sequence[float]:  # noqa: ARG002 - a Task's
        """Right is right, whatever the original says."""
        return ()

    def score(
        self,
        outputs: Sequence[Array],
        batch: Batch,
        originals: Sequence[Array] | None,  # noqa: ARG002 - the shape of a Task
        scale: Sequence[float],  # noqa: ARG002 - the shape of a Task
    ) -> Scores:
        """Whether the label has the largest score, and whether one of the five largest."""
        scores, y = outputs[0].reshape(len(batch), -1), batch.targets[LABEL]
        of_label = np.take_along_axis(scores, y[:, None], axis=1)
        # A tie counts by position, as argmax does; NaN never wins.
        better = (scores > of_label).sum(1) + ((scores == of_label) & (np.arange(scores.shape[1]) < y[:, None])).sum(1)
        better = np.where(np.isnan(of_label[:, 0]), scores.shape[1], better)
        return Scores(better == 0, better < 5)

    def summary(self, scores: Sequence[Scores], split: str) -> tuple[Accuracy, Array]:
        """Top-1 and top-5; the latter says nothing of five classes or fewer."""
        correct = np.concatenate([s.each for s in scores])
        top5 = float(np.concatenate([s.beside for s in scores]).mean()) if self.classes > 5 else None
        top1 = float(correct.mean())
        return Accuracy(top1, top1, top5, len(correct), split), correct

    def of_the_original(self, samples: int, split: str) -> None:
        """It has to be measured."""

    def interval(self, before: Array, after: Array, confidence: float = 0.95) -> tuple[float, float]:
        """Of a difference of two shares, paired."""
        return paired_interval(before, after, confidence)
