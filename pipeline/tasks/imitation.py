"""Data without labels: the network learns from the original's outputs, and nearness to them counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ltp_pipeline.errors import InputError
from ltp_pipeline.intervals import paired_interval
from ltp_pipeline.records import Accuracy
from ltp_pipeline.task import Kind, Metric, Output, Scores
from ltp_pipeline.tasks.outputs import SCORING, SQUASHED, from_softmax, is_score, makers

if TYPE_CHECKING:
    from onnx import GraphProto
    from torch import Tensor

    from ltp_pipeline.config import Imitate
    from ltp_pipeline.records import Array
    from ltp_pipeline.task import Batch

AGREEMENT = Metric("agreement")  # share of samples with the same class as the original's, where all outputs are scores
EXPLAINED = Metric("explained")  # share of the variance of the original's outputs that is met, where any is values
LARGEST_ERROR = 1e6  # error of a sample, in variances; more, or no number at all, counts as this


@dataclass(frozen=True)
class Imitation:
    """Every output of floating point with a row per sample is learned from the original and compared with it."""

    outputs: tuple[Output, ...]
    probabilities: frozenset[int] = frozenset()  # positions of outputs that come out of a Softmax

    is_taught = is_relative = True

    @classmethod
    def of(
        cls,
        graph: GraphProto,
        shapes: Sequence[tuple[int, ...] | None],
        samples: int,
        imitate: Imitate = "auto",
    ) -> Imitation:
        """The task of a graph; an error where no output can be compared."""
        made = makers(graph)
        found = []
        for position, shape in enumerate(shapes):
            name = graph.output[position].name
            if shape is None or not shape or shape[0] != samples:
                continue
            shaped = is_score(shape, samples)
            meant = imitate == "scores" or (imitate == "auto" and made[position] in SCORING)
            kind: Kind = "scores" if shaped and meant else "values"
            found.append(Output(position, name, kind, shaped and made[position] not in SQUASHED))
        if not found:
            raise InputError(
                "no output of the model is a tensor of numbers with one row per sample",
                "cut the graph before the nodes that select or sort (such as NonMaxSuppression)",
            )
        if imitate == "scores" and all(output.kind == "values" for output in found):
            named = ", ".join(repr(output.name) for output in found)
            raise InputError(f"no output has the shape of class scores: {named}", 'set train.imitate to "auto"')
        return cls(tuple(found), from_softmax(graph))

    @property
    def metric(self) -> Metric:
        """Agreement of classes, or variance explained."""
        return EXPLAINED if self.is_steep else AGREEMENT

    @property
    def is_steep(self) -> bool:
        """An error in values has a gradient with their inverse unit."""
        return any(output.kind == "values" for output in self.outputs)

    def loss(
        self,
        outputs: Sequence[Tensor],
        targets: Mapping[str, Tensor],  # noqa: ARG002 - the shape of a Task
        taught: Sequence[Tensor] | None,
    ) -> Tensor:
        """Distance from the original's outputs."""
        import torch

        from ltp_pipeline.tasks.losses import divergence, log_probabilities, relative_error

        assert taught is not None  # noqa: S101 - the original teaches
        terms = []
        for output, found, wanted in zip(self.outputs, outputs, taught, strict=True):
            if output.kind == "scores":
                is_probability = output.position in self.probabilities
                terms.append(divergence(*(log_probabilities(y, is_probability) for y in (found, wanted))))
            else:
                terms.append(relative_error(found.float(), wanted.float()))
        return torch.stack(terms).mean()

    def scale(self, originals: Iterable[Sequence[Array]], samples: int) -> Sequence[float]:
        """For every output, how far the original's rows lie from their mean, squared and averaged."""
        if not self.is_steep:
            return ()
        sums: list[Array | float] = [0.0] * len(self.outputs)
        squares = [0.0] * len(self.outputs)
        for outputs in originals:
            for i, y in enumerate(_flat(y) for y in outputs):
                sums[i] = sums[i] + y.sum(0)
                squares[i] += float(np.square(y).sum())
        energies = [square / samples for square in squares]
        # an output that is the same for all samples has no variance to explain: then rounding errors are forgiven
        return [
            max(energy - float(np.square(total / samples).sum()), 1e-6 * energy)
            for energy, total in zip(energies, sums, strict=True)
        ]

    def score(
        self,
        outputs: Sequence[Array],
        batch: Batch,  # noqa: ARG002 - the shape of a Task
        originals: Sequence[Array] | None,
        scale: Sequence[float],
    ) -> Scores:
        """Variance explained or equal class of each sample; and whether the arg-max is the original's."""
        assert originals is not None  # noqa: S101 - whoever asks for nearness says to what
        same = _same_class(outputs, originals, self.outputs)
        return Scores(_explained(outputs, originals, scale) if self.is_steep else same, same)

    def summary(self, scores: Sequence[Scores], split: str) -> tuple[Accuracy, Array]:
        """The mean; a network that is farther away than the original's mean explains nothing."""
        each, equal = (np.concatenate(parts) for parts in ([s.each for s in scores], [s.beside for s in scores]))
        share = float(equal.mean()) if self.is_steep and equal.size else None
        return Accuracy(max(float(each.mean()), 0.0), None, None, len(each), split, share), each

    def of_the_original(self, samples: int, split: str) -> tuple[Accuracy, Array]:
        """The original is the nearest to itself; that needs no measuring."""
        same = 1.0 if self.is_steep and any(o.has_argmax for o in self.outputs) else None
        whole = not self.is_steep and len(self.outputs) == 1
        return Accuracy(1.0, None, None, samples, split, same), np.ones(samples, bool if whole else float)

    def interval(self, before: Array, after: Array, confidence: float = 0.95) -> tuple[float, float]:
        """Of a mean of differences."""
        return paired_interval(before, after, confidence)


def _flat(y: Array) -> Array:
    return y.reshape(len(y), -1).astype(np.float64)


def _same_class(found: Sequence[Array], wanted: Sequence[Array], outputs: Sequence[Output]) -> Array:
    """For each sample, whether the largest score is the original's; the mean over outputs that could be scores."""
    parts: list[Array] = []
    for y, original, output in zip(found, wanted, outputs, strict=True):
        if output.has_argmax:
            flat, goal = (a.reshape(len(a), -1) for a in (y, original))
            parts.append((flat.argmax(1) == goal.argmax(1)) & ~np.isnan(flat).any(1))
    if len(parts) == 1:
        return parts[0]
    return np.stack(parts).mean(0, dtype=np.float64) if parts else np.empty(0)


def _explained(found: Sequence[Array], wanted: Sequence[Array], scale: Sequence[float]) -> Array:
    """For each sample, what it adds to the share of the original's variance that is met; the mean over outputs.

    Over all samples the mean of these is 1 - squared error / variance, the coefficient of determination.
    """
    parts: list[Array] = []
    for y, original, spread in zip(found, wanted, scale, strict=True):
        missed = np.square(_flat(y) - _flat(original)).sum(1) / max(spread, 1e-30)
        parts.append(1 - np.where(np.isfinite(missed), np.minimum(missed, LARGEST_ERROR), LARGEST_ERROR))
    mean: Array = np.stack(parts).mean(0)
    return mean
