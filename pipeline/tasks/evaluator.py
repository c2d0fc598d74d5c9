"""How good a network is on a split, whatever computes its outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ltp_pipeline.data.dataset import Split
from ltp_pipeline.data.prefetch import iter_batches
from ltp_pipeline.results.values import PairedCounts
from ltp_pipeline.tasks.protocol import EvaluatedBatch

if TYPE_CHECKING:
    from ltp_pipeline.results.records import AccuracyResult
    from ltp_pipeline.system.arrays import Array
    from ltp_pipeline.tasks.protocol import ComputeOutputs, Task

BATCH = 64


class Evaluator:
    """Evaluates networks by a task; `original` runs the one that scores are relative to, where they are."""

    def __init__(self, task: Task, original: ComputeOutputs | None = None) -> None:
        self.task = task
        self._original = original if task.is_relative else None
        self._scales: dict[str, Sequence[float]] = {}

    def __call__(
        self, run: ComputeOutputs, split: Split, rows: Array | None = None
    ) -> tuple[AccuracyResult, Array]:
        """Evaluate on all samples of a split, or on some `rows`; also the evidence."""
        evidence = self.sample_statistics(run, split, rows)
        return self.task.compute_metric(evidence, split.name), evidence

    def sample_statistics(
        self, run: ComputeOutputs, split: Split, rows: Array | None = None
    ) -> Array:
        """How each sample did."""
        return self.task.sample_statistics(
            self._iter_batches(run, split, rows), self._get_scales(split)
        )

    def evaluate_original(self, run: ComputeOutputs, split: Split) -> tuple[AccuracyResult, Array]:
        """The original's own; measured only where it can be anything else than perfect."""
        return self.task.get_original_result(len(split), split.name) or self(run, split)

    def _iter_batches(
        self, run: ComputeOutputs, split: Split, rows: Array | None
    ) -> Iterator[EvaluatedBatch]:
        original = self._original
        for batch in iter_batches(split, BATCH, rows):
            yield EvaluatedBatch(
                run(batch.inputs), batch, None if original is None else original(batch.inputs)
            )

    def _get_scales(self, split: Split) -> Sequence[float]:
        if self._original is None:
            return ()
        if split.name not in self._scales:
            outputs = self._iter_batches(self._original, split, None)
            self._scales[split.name] = self.task.compute_scales(outputs, len(split))
        return self._scales[split.name]


def count_pairs(task: Task, before: Array, after: Array) -> PairedCounts | None:
    """Two networks on the same samples, by their evidence; None where samples are not just right or wrong."""
    first, second = task.correct_samples(before), task.correct_samples(after)
    if first is None or second is None:
        return None
    counts = ((first & second), (first & ~second), (~first & second), (~first & ~second))
    return PairedCounts(*(int(one.sum()) for one in counts))
