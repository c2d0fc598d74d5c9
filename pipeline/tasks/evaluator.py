"""Evaluate networks on a split by a task, in torch or onnxruntime."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ltp_pipeline.data.dataset import Split
from ltp_pipeline.data.loader import iter_batches
from ltp_pipeline.results.schema_parts import AccuracyResult
from ltp_pipeline.results.values import PairedCounts
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.tasks.protocol import ComputeOutputs, EvaluatedBatch, Task

BATCH = 64  # samples in a batch of an evaluation


class Evaluator:
    """Evaluates networks by a task."""

    def __init__(self, task: Task, original: ComputeOutputs | None = None) -> None:
        """Evaluate by `task`; `original` computes the outputs that a relative metric needs."""
        self.task = task
        self._original = original if task.is_relative else None
        self._scales: dict[str, Sequence[float]] = {}

    def __call__(
        self, compute: ComputeOutputs, split: Split, rows: Array | None = None
    ) -> tuple[AccuracyResult, Array]:
        """Return metric and statistics of a network.

        Args:
            compute: Computes the network's outputs.
            split: The split.
            rows: Numbers of samples within the split; None for all.
        """
        statistics = self.sample_statistics(compute, split, rows)
        return self.task.compute_metric(statistics, split.name), statistics

    def sample_statistics(
        self, compute: ComputeOutputs, split: Split, rows: Array | None = None
    ) -> Array:
        """Return the statistics of a network; the arguments are those of a call."""
        evaluated = self._iter_batches(compute, split, rows)
        return self.task.sample_statistics(evaluated, self._get_scales(split))

    def evaluate_original(
        self, compute: ComputeOutputs, split: Split
    ) -> tuple[AccuracyResult, Array]:
        """Return metric and statistics of the original, measured only if they are not known."""
        return self.task.get_original_result(len(split), split.name) or self(compute, split)

    def _iter_batches(
        self, compute: ComputeOutputs, split: Split, rows: Array | None
    ) -> Iterator[EvaluatedBatch]:
        """Yield the batches of a split with outputs of the network and of the original."""
        for batch in iter_batches(split, BATCH, rows):
            outputs = compute(batch.inputs)
            original_outputs = None if self._original is None else self._original(batch.inputs)
            yield EvaluatedBatch(outputs, batch, original_outputs)

    def _get_scales(self, split: Split) -> Sequence[float]:
        """Return what errors are divided by; it is computed once for each split."""
        if self._original is None:
            return ()
        if split.name not in self._scales:
            evaluated = self._iter_batches(self._original, split, None)
            self._scales[split.name] = self.task.compute_scales(evaluated, len(split))
        return self._scales[split.name]


def count_pairs(task: Task, before: Array, after: Array) -> PairedCounts | None:
    """Return how many samples each of two networks has correct; None if samples are not counted.

    `before` and `after` are the statistics of both networks on the same samples.
    """
    first = task.correct_samples(before)
    second = task.correct_samples(after)
    if first is None or second is None:
        return None
    return PairedCounts(
        both_correct=int((first & second).sum()),
        only_first_correct=int((first & ~second).sum()),
        only_second_correct=int((~first & second).sum()),
        both_incorrect=int((~first & ~second).sum()),
    )
