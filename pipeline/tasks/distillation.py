"""Training without labels: a network imitates the original's outputs and is compared with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ltp_pipeline.data.dataset import Split
from ltp_pipeline.errors import InputError
from ltp_pipeline.results.intervals import paired_interval
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.results.schema_parts import AccuracyResult, TaskSummary
from ltp_pipeline.settings.schema import DistillOutputs
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.tasks.protocol import EvaluatedBatch, OutputKind, TaskOutput
from ltp_pipeline.tasks.shapes import (
    SCORE_PRODUCERS,
    SOFTMAX,
    SQUASHING,
    Shapes,
    find_outputs,
    has_score_shape,
)

if TYPE_CHECKING:
    from onnx import GraphProto
    from torch import Tensor

AGREEMENT = Metric("agreement")  # fraction of samples with the original's class; for class scores
R2_VS_ORIGINAL = Metric("r2_vs_original")  # R² with the original's outputs as targets
MAX_ERROR = 1e6  # larger errors of a sample, infinite ones and NaN count as this, in variances
MIN_RELATIVE_VARIANCE = 1e-6  # of an output; smaller variances are rounding errors


@dataclass(frozen=True)
class DistillationTask:
    """A task without labels: outputs are trained towards the original's and compared with them.

    Attributes:
        outputs: All floating-point outputs with a row per sample, or the one that is meant.
        probabilities: Positions of outputs that are computed by Softmax.
    """

    outputs: tuple[TaskOutput, ...]
    probabilities: frozenset[int] = frozenset()

    is_distilled = is_relative = is_per_sample = True

    @classmethod
    def from_graph(
        cls,
        graph: GraphProto,
        shapes: Shapes,
        num_samples: int,
        outputs_as: DistillOutputs = "auto",
        only: str | None = None,
    ) -> DistillationTask:
        """Return the task of a model.

        Args:
            graph: The model.
            shapes: Shapes of all outputs for some samples.
            num_samples: Number of these samples.
            outputs_as: `train.distill_outputs_as` of the settings.
            only: Name of the only output to compare; None for all.

        Raises:
            InputError: No output can be compared.
        """
        outputs = []
        probabilities = set()
        for spec in find_outputs(graph, shapes, num_samples, only):
            is_score_shape = has_score_shape(spec.shape)
            asks_scores = outputs_as == "logits"
            asks_scores |= outputs_as == "auto" and spec.producer in SCORE_PRODUCERS
            kind: OutputKind = "scores" if is_score_shape and asks_scores else "values"
            may_be_scores = is_score_shape and spec.producer not in SQUASHING
            outputs.append(TaskOutput(spec.position, spec.name, kind, may_be_scores))
            if spec.producer in SOFTMAX:
                probabilities.add(spec.position)
        if not outputs:
            raise InputError(
                "no output of the model is a floating-point tensor with one row per sample",
                "cut the graph before the nodes that select or sort, such as NonMaxSuppression",
            )
        if outputs_as == "logits" and all(output.kind == "values" for output in outputs):
            names = ", ".join(repr(output.name) for output in outputs)
            raise InputError(
                f"no output has the shape of class scores: {names}",
                'set train.distill_outputs_as to "auto"',
            )
        return cls(tuple(outputs), frozenset(probabilities))

    @property
    def metric(self) -> Metric:
        """Agreement if all outputs are class scores, else R² with the original as target."""
        return R2_VS_ORIGINAL if self.has_values else AGREEMENT

    @property
    def has_values(self) -> bool:
        """Whether any output is compared by distance."""
        return any(output.kind == "values" for output in self.outputs)

    @property
    def has_unbounded_gradient(self) -> bool:
        """Whether any output is compared by distance: its gradient has the inverse of its unit."""
        return self.has_values

    @property
    def without_interval(self) -> DistillationTask:
        """The task itself: its interval needs no further work."""
        return self

    def describe_output(self) -> TaskSummary:
        """Return the summary of the task for the report."""
        if len(self.outputs) > 1:
            return TaskSummary("distillation")
        (output,) = self.outputs
        class_axis = 1 if output.kind == "scores" else None
        return TaskSummary("distillation", output.name, class_axis=class_axis)

    def compute_loss(
        self,
        outputs: Sequence[Tensor],
        targets: Mapping[str, Tensor],  # noqa: ARG002 - required by Task
        teacher_outputs: Sequence[Tensor] | None,
    ) -> Tensor:
        """Return the mean distance from the original's outputs; see `Task.compute_loss`."""
        import torch

        assert teacher_outputs is not None  # noqa: S101 - `is_distilled` is True
        pairs = zip(self.outputs, outputs, teacher_outputs, strict=True)
        distances = [self._distance(spec, y.float(), teacher.float()) for spec, y, teacher in pairs]
        return torch.stack(distances).mean()

    def _distance(self, spec: TaskOutput, output: Tensor, teacher_output: Tensor) -> Tensor:
        """Return the distance of an output from the original's: divergence or relative error."""
        from ltp_pipeline.tasks.losses import relative_error, softened_divergence, to_logits

        if spec.kind == "values":
            return relative_error(output, teacher_output)
        is_probability = spec.position in self.probabilities
        logits = to_logits(output.reshape(len(output), -1), is_probability)
        teacher_logits = to_logits(teacher_output.reshape(len(teacher_output), -1), is_probability)
        return softened_divergence(logits, teacher_logits)

    def compute_scales(self, originals: Iterable[EvaluatedBatch], samples: int) -> Sequence[float]:
        """Return the variance of each of the original's outputs; see `Task.compute_scales`."""
        if not self.has_values:
            return ()
        sums: list[Array] = [np.zeros(1)] * len(self.outputs)
        squares = [0.0] * len(self.outputs)
        for batch in originals:
            for i, output in enumerate(batch.outputs):
                rows = _flatten_rows(output)
                sums[i] = _add_padded(sums[i], rows.sum(0))
                squares[i] += float(np.square(rows).sum())
        variances = []
        for total, square in zip(sums, squares, strict=True):
            energy = square / samples
            variance = energy - float(np.square(total / samples).sum())
            # An output that is equal for all samples has only the variance of rounding errors.
            variances.append(max(variance, MIN_RELATIVE_VARIANCE * energy))
        return variances

    def sample_statistics(
        self, batches: Iterable[EvaluatedBatch], scales: Sequence[float]
    ) -> Array:
        """Return the R² term of each sample and, if outputs may be scores, its agreement.

        If all outputs are scores, only the agreement is returned, as a vector.
        """
        parts: list[Array] = []
        for outputs, _, original_outputs in batches:
            assert original_outputs is not None  # noqa: S101 - `is_relative` is True
            agreement = self._compare_argmax(outputs, original_outputs)
            if self.has_values:
                terms = _r2_terms(outputs, original_outputs, scales)
                parts.append(np.stack([terms, *agreement], axis=1))
            else:
                parts += agreement
        return np.concatenate(parts)

    def _compare_argmax(self, outputs: Sequence[Array], originals: Sequence[Array]) -> list[Array]:
        """Return one array with whether the argmax of each sample equals the original's.

        With several outputs that may be scores, it has the fraction of them that agree. If there
        are none, no array is returned.
        """
        parts: list[Array] = []
        for spec, output, original in zip(self.outputs, outputs, originals, strict=True):
            if spec.has_argmax:
                scores = output.reshape(len(output), -1)
                original_scores = original.reshape(len(original), -1)
                is_equal = scores.argmax(1) == original_scores.argmax(1)
                parts.append(is_equal & ~np.isnan(scores).any(1))
        return [np.stack(parts).mean(0, dtype=np.float64)] if len(parts) > 1 else parts

    def compute_metric(self, statistics: Array, split: str) -> AccuracyResult:
        """Return agreement, or R² together with agreement; R² is at least 0."""
        samples = len(statistics)
        if not self.has_values:
            return AccuracyResult(value=float(statistics.mean()), samples=samples, split=split)
        value = max(float(statistics[:, 0].mean()), 0.0)
        agreement = float(statistics[:, 1].mean()) if statistics.shape[1] > 1 else None
        return AccuracyResult(value=value, samples=samples, split=split, argmax_agreement=agreement)

    def get_original_result(self, samples: int, split: str) -> tuple[AccuracyResult, Array]:
        """Return the metric of the original, which is 1 without any measurement."""
        is_counted = not self.has_values and len(self.outputs) == 1
        num_columns = 1 + any(output.has_argmax for output in self.outputs)
        shape = (samples, num_columns) if self.has_values else (samples,)
        statistics: Array = np.ones(shape, np.bool_ if is_counted else np.float64)
        return self.compute_metric(statistics, split), statistics

    def correct_samples(self, statistics: Array) -> Array | None:
        """Return which samples have the original's class; None if there are several outputs."""
        return statistics if statistics.dtype == np.bool_ else None

    def compute_drop_interval(
        self, before: Array, after: Array, confidence: float = 0.95
    ) -> tuple[float, float]:
        """Return the interval of a mean of paired differences."""
        if self.has_values:
            before, after = before[:, 0], after[:, 0]
        return paired_interval(before, after, confidence)

    def chance_level(self, split: Split) -> None:
        """Return None: there are no labels that a constant could predict."""


def _flatten_rows(output: Array) -> Array:
    """Return an output as float64 of shape (samples, values)."""
    return output.reshape(len(output), -1).astype(np.float64)


def _add_padded(first: Array, second: Array) -> Array:
    """Return the sum of two vectors; the shorter one, of shorter sequences, is padded with 0."""
    size = max(first.size, second.size)
    total: Array = np.pad(first, (0, size - first.size)) + np.pad(second, (0, size - second.size))
    return total


def _r2_terms(
    outputs: Sequence[Array], originals: Sequence[Array], scales: Sequence[float]
) -> Array:
    """Return for each sample 1 - squared error / variance, averaged over outputs.

    The mean over all samples is the coefficient of determination, R². `scales` are the variances.
    """
    parts: list[Array] = []
    for output, original, scale in zip(outputs, originals, scales, strict=True):
        squares = np.square(_flatten_rows(output) - _flatten_rows(original)).sum(1)
        errors = squares / max(scale, 1e-30)
        parts.append(1 - np.nan_to_num(errors, nan=MAX_ERROR).clip(max=MAX_ERROR))
    mean: Array = np.stack(parts).mean(0)
    return mean
