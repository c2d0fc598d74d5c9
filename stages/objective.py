"""What training minimises: the error on the labels, the distance from the original's outputs, or both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from ltp_pipeline import ranks
from ltp_pipeline.stages.metric import Metric, makers

if TYPE_CHECKING:
    from onnx import GraphProto

SOFTNESS = 4.0  # temperature of distillation
LONGEST = 1.0  # norm to which a steep objective's gradient is shortened


@dataclass(frozen=True)
class Objective:
    """The loss of a batch; `share` of it is learned from the original, all of it where there are no labels."""

    metric: Metric
    probabilities: frozenset[int]  # outputs that come out of a Softmax
    share: float

    @property
    def taught(self) -> bool:
        """Whether the original's outputs are needed."""
        return self.metric.name != "top-1" or self.share > 0

    @property
    def steep(self) -> bool:
        """Whether the gradient may be of any size: that of an error in values has their inverse unit."""
        return any(output.kind == "values" for output in self.metric.outputs)

    def __call__(self, outputs: Sequence[Tensor], labels: Tensor | None, taught: Sequence[Tensor] | None) -> Tensor:
        """Loss of the outputs of `metric.positions`, beside the original's on the same batch."""
        if labels is None:
            assert taught is not None  # noqa: S101 - without labels the original teaches
            return self._distance(outputs, taught)
        errors = F.cross_entropy(self._scores(outputs, 0), labels)
        if taught is None:
            return errors
        return (1 - self.share) * errors + self.share * self._distance(outputs, taught)

    def _distance(self, outputs: Sequence[Tensor], taught: Sequence[Tensor]) -> Tensor:
        terms = []
        for i, output in enumerate(self.metric.outputs):
            if output.kind == "scores":
                terms.append(divergence(self._scores(outputs, i), self._scores(taught, i)))
            else:
                terms.append(relative_error(outputs[i].float(), taught[i].float()))
        return torch.stack(terms).mean()

    def _scores(self, outputs: Sequence[Tensor], i: int) -> Tensor:
        """Scores of the classes; a graph that ends in Softmax gives probabilities, whose logarithm serves."""
        scores = outputs[i].float().flatten(1)
        return scores.clamp_min(1e-12).log() if self.metric.outputs[i].position in self.probabilities else scores


def divergence(scores: Tensor, taught: Tensor) -> Tensor:
    """Divergence from a teacher's softened outputs (Hinton et al., 2015)."""
    soft, wanted = (F.log_softmax(s / SOFTNESS, 1) for s in (scores, taught))
    return F.kl_div(soft, wanted, reduction="batchmean", log_target=True) * SOFTNESS**2


def relative_error(values: Tensor, taught: Tensor) -> Tensor:
    """Mean squared error in units of the teacher's own variance in the whole batch: no scale has to be tuned."""
    centred = taught - ranks.average(taught.mean(0))
    spread, energy = ranks.average(torch.stack([centred.square().mean(), taught.square().mean()])).unbind()
    return F.mse_loss(values, taught) / spread.clamp_min(1e-6 * energy + 1e-30)


def from_softmax(graph: GraphProto) -> frozenset[int]:
    """Outputs of the graph that a Softmax makes."""
    return frozenset(i for i, maker in enumerate(makers(graph)) if maker == "Softmax")
