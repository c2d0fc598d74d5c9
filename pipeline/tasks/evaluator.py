"""How good a network is on a split, whatever computes its outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ltp_pipeline.data import Split, batches

if TYPE_CHECKING:
    from ltp_pipeline.records import Accuracy, Array
    from ltp_pipeline.task import Run, Task

BATCH = 64


class Evaluator:
    """Evaluates networks by a task; `original` runs the one that scores are relative to, where they are."""

    def __init__(self, task: Task, original: Run | None = None) -> None:
        self.task = task
        self._original = original
        self._scales: dict[str, Sequence[float]] = {}

    def __call__(self, run: Run, split: Split, rows: Array | None = None) -> tuple[Accuracy, Array]:
        """Evaluate on all samples of a split, or on some `rows`; also the score of each sample."""
        original, scale = (self._original, self._scale(split)) if self.task.is_relative else (None, ())
        scores = [
            self.task.score(run(batch.inputs), batch, None if original is None else original(batch.inputs), scale)
            for batch in batches(split, BATCH, rows)
        ]
        return self.task.summary(scores, split.name)

    def of_the_original(self, run: Run, split: Split) -> tuple[Accuracy, Array]:
        """The original's own; measured only where it can be anything else than perfect."""
        return self.task.of_the_original(len(split), split.name) or self(run, split)

    def _scale(self, split: Split) -> Sequence[float]:
        if split.name not in self._scales:
            original = self._original
            assert original is not None  # noqa: S101 - whoever asks for nearness says to what
            outputs = (original(batch.inputs) for batch in batches(split, BATCH))
            self._scales[split.name] = self.task.scale(outputs, len(split))
        return self._scales[split.name]
