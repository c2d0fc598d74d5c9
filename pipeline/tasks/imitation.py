"""Data without labels: the network learns from the original's outputs, and nearness to them counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ltp_pipeline.errors import InputError
from ltp_pipeline.results.intervals import paired_interval
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.results.records import AccuracyResult
from ltp_pipeline.results.schema_parts import TaskSummary
from ltp_pipeline.tasks.outputs import (
    SCORING,
    SQUASHED,
    find_producers,
    has_score_shape,
    softmax_outputs,
)
from ltp_pipeline.tasks.protocol import EvaluatedBatch, OutputKind, TaskOutput

if TYPE_CHECKING:
    from onnx import GraphProto
    from torch import Tensor

    from ltp_pipeline.settings.schema import DistillOutputs
    from ltp_pipeline.system.arrays import Array
    from ltp_pipeline.tasks.protocol import SplitLabels

AGREEMENT = Metric(
    "agreement"
)  # share of samples with the same class as the original's, where all outputs are scores
EXPLAINED = Metric(
    "r2_vs_original"
)  # share of the variance of the original's outputs that is met, where any is values
LARGEST_ERROR = 1e6  # error of a sample, in variances; more, or no number at all, counts as this


@dataclass(frozen=True)
class DistillationTask:
    """Every output of floating point with a row per sample is learned from the original and compared with it."""

    outputs: tuple[TaskOutput, ...]
    probabilities: frozenset[int] = frozenset()  # positions of outputs that come out of a Softmax

    is_distilled = is_relative = is_per_sample = True

    @classmethod
    def of(
        cls,
        graph: GraphProto,
        shapes: Sequence[tuple[int, ...] | None],
        samples: int,
        imitate: DistillOutputs = "auto",
        only: str | None = None,
    ) -> DistillationTask:
        """The task of a graph, of one output if `only` that is meant; an error where none can be compared."""
        made = find_producers(graph)
        found = []
        for position, shape in enumerate(shapes):
            name = graph.output[position].name
            if shape is None or not shape or shape[0] != samples or only not in (None, name):
                continue
            shaped = has_score_shape(shape, samples)
            meant = imitate == "logits" or (imitate == "auto" and made[position] in SCORING)
            kind: OutputKind = "scores" if shaped and meant else "values"
            found.append(
                TaskOutput(position, name, kind, shaped and made[position] not in SQUASHED)
            )
        if not found:
            raise InputError(
                "no output of the model is a tensor of numbers with one row per sample",
                "cut the graph before the nodes that select or sort (such as NonMaxSuppression)",
            )
        if imitate == "logits" and all(output.kind == "values" for output in found):
            named = ", ".join(repr(output.name) for output in found)
            raise InputError(
                f"no output has the shape of class scores: {named}",
                'set train.distill_outputs_as to "auto"',
            )
        return cls(tuple(found), softmax_outputs(graph))

    @property
    def without_interval(self) -> DistillationTask:
        """Intervals need nothing more."""
        return self

    def describe_output(self) -> TaskSummary:
        """What the original does."""
        if len(self.outputs) > 1:
            return TaskSummary("distillation")
        (output,) = self.outputs
        return TaskSummary(
            "distillation", output.name, class_axis=1 if output.kind == "scores" else None
        )

    @property
    def metric(self) -> Metric:
        """Agreement of classes, or variance explained."""
        return EXPLAINED if self.has_unbounded_gradient else AGREEMENT

    @property
    def has_unbounded_gradient(self) -> bool:
        """An error in values has a gradient with their inverse unit."""
        return any(output.kind == "values" for output in self.outputs)

    def compute_loss(
        self,
        outputs: Sequence[Tensor],
        targets: Mapping[str, Tensor],  # noqa: ARG002 - the shape of a Task
        taught: Sequence[Tensor] | None,
    ) -> Tensor:
        """Distance from the original's outputs."""
        import torch

        from ltp_pipeline.tasks.losses import (
            flat_log_probabilities,
            relative_error,
            softened_divergence,
        )

        assert taught is not None  # noqa: S101 - the original teaches
        terms = []
        for output, found, wanted in zip(self.outputs, outputs, taught, strict=True):
            if output.kind == "scores":
                is_probability = output.position in self.probabilities
                terms.append(
                    softened_divergence(
                        *(flat_log_probabilities(y, is_probability) for y in (found, wanted))
                    )
                )
            else:
                terms.append(relative_error(found.float(), wanted.float()))
        return torch.stack(terms).mean()

    def compute_scales(self, originals: Iterable[EvaluatedBatch], samples: int) -> Sequence[float]:
        """For every output, how far the original's rows lie from their mean, squared and averaged."""
        if not self.has_unbounded_gradient:
            return ()
        sums: list[Array | float] = [0.0] * len(self.outputs)
        squares = [0.0] * len(self.outputs)
        for outputs, *_ in originals:
            for i, y in enumerate(_flatten_rows(y) for y in outputs):
                sums[i] = _add_padded(sums[i], y.sum(0))
                squares[i] += float(np.square(y).sum())
        energies = [square / samples for square in squares]
        # an output that is the same for all samples has no variance to explain: then rounding errors are forgiven
        return [
            max(energy - float(np.square(total / samples).sum()), 1e-6 * energy)
            for energy, total in zip(energies, sums, strict=True)
        ]

    def sample_statistics(self, judged: Iterable[EvaluatedBatch], scale: Sequence[float]) -> Array:
        """Variance explained or equal class of each sample; beside it, where it may be told, equal classes."""
        parts = []
        for outputs, _, originals in judged:
            assert originals is not None  # noqa: S101 - whoever asks for nearness says to what
            same = _equal_argmax(outputs, originals, self.outputs)
            parts.append(
                np.stack([_explained_variance(outputs, originals, scale), *same], axis=1)
                if self.has_unbounded_gradient
                else same[0]
            )
        return np.concatenate(parts)

    def compute_metric(self, evidence: Array, split: str) -> AccuracyResult:
        """The mean; a network that is farther away than the original's mean explains nothing."""
        if not self.has_unbounded_gradient:
            return AccuracyResult(float(evidence.mean()), None, None, len(evidence), split)
        share = float(evidence[:, 1].mean()) if evidence.shape[1] > 1 else None
        return AccuracyResult(
            max(float(evidence[:, 0].mean()), 0.0), None, None, len(evidence), split, share
        )

    def get_original_result(self, samples: int, split: str) -> tuple[AccuracyResult, Array]:
        """The original is the nearest to itself; that needs no measuring."""
        columns = 1 + any(o.has_argmax for o in self.outputs)
        whole = len(self.outputs) == 1
        evidence = (
            np.ones((samples, columns))
            if self.has_unbounded_gradient
            else np.ones(samples, bool if whole else float)
        )
        return self.compute_metric(evidence, split), evidence

    def correct_samples(self, evidence: Array) -> Array | None:
        """Where the class is the original's, of one output; of several, a sample may be right in parts."""
        return evidence if evidence.dtype == np.bool_ else None

    def compute_drop_interval(
        self, before: Array, after: Array, confidence: float = 0.95
    ) -> tuple[float, float]:
        """Of a mean of differences."""
        first, second = (e[:, 0] if self.has_unbounded_gradient else e for e in (before, after))
        return paired_interval(first, second, confidence)

    def chance_level(self, split: SplitLabels) -> None:
        """Nobody guesses an original."""


def _flatten_rows(y: Array) -> Array:
    return y.reshape(len(y), -1).astype(np.float64)


def _add_padded(total: Array | float, more: Array) -> Array:
    """The sum of two rows; batches of sequences may be of other lengths, of which the rest counts as zero."""
    before = np.atleast_1d(np.asarray(total))
    size = max(before.size, more.size)
    summed: Array = np.pad(before, (0, size - before.size)) + np.pad(more, (0, size - more.size))
    return summed


def _equal_argmax(
    found: Sequence[Array], wanted: Sequence[Array], outputs: Sequence[TaskOutput]
) -> list[Array]:
    """For each sample, whether the largest score is the original's; the mean over outputs that could be scores.

    A list of one, or of none where no output could be scores.
    """
    parts: list[Array] = []
    for y, original, output in zip(found, wanted, outputs, strict=True):
        if output.has_argmax:
            flat, goal = (a.reshape(len(a), -1) for a in (y, original))
            parts.append((flat.argmax(1) == goal.argmax(1)) & ~np.isnan(flat).any(1))
    return parts if len(parts) < 2 else [np.stack(parts).mean(0, dtype=np.float64)]


def _explained_variance(
    found: Sequence[Array], wanted: Sequence[Array], scale: Sequence[float]
) -> Array:
    """For each sample, what it adds to the share of the original's variance that is met; the mean over outputs.

    Over all samples the mean of these is 1 - squared error / variance, the coefficient of determination.
    """
    parts: list[Array] = []
    for y, original, spread in zip(found, wanted, scale, strict=True):
        missed = np.square(_flatten_rows(y) - _flatten_rows(original)).sum(1) / max(spread, 1e-30)
        parts.append(
            1 - np.where(np.isfinite(missed), np.minimum(missed, LARGEST_ERROR), LARGEST_ERROR)
        )
    mean: Array = np.stack(parts).mean(0)
    return mean
