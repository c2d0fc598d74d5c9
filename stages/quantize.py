"""What quantising needs of the data: samples to choose ranges by, and the validation split to judge by."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ltp_pipeline.exporters.quantize.calibration import Calibration, Feeds, Judgement
from ltp_pipeline.stages.import_model.parity_inputs import as_input
from ltp_pipeline.stages.validate import Session

if TYPE_CHECKING:
    from ltp_pipeline.config import ExportSettings
    from ltp_pipeline.data import Data, Split
    from ltp_pipeline.records import TensorInfo
    from ltp_pipeline.tasks.evaluator import Evaluator

BATCH = 8  # samples at once, whose activations are all in memory
MOST_JUDGED = 2000  # samples of the validation split
SHOWN = 64  # of these, whose outputs are compared


def calibration(
    inputs: Sequence[TensorInfo],
    data: Data,
    evaluator: Evaluator,
    settings: ExportSettings,
    say: Callable[[str], None] = lambda _: None,
) -> Calibration:
    """Samples of the training split, evenly taken, and a judge that measures files as the run measures them."""
    rows = None if len(data.val) <= MOST_JUDGED else _even(len(data.val), MOST_JUDGED)
    positions = [output.position for output in evaluator.task.outputs]

    def judge(path: Path) -> Judgement:
        session = Session(path, positions=positions)
        value = evaluator(session.outputs, data.val, rows)[0].value
        return Judgement(value, session.outputs(data.val.first(SHOWN).inputs))

    return Calibration(lambda count: _batches(inputs, data.train, count), judge, evaluator.task.metric, settings, say)


def _batches(inputs: Sequence[TensorInfo], split: Split, count: int) -> Iterator[Feeds]:
    """So many samples, in batches that the model takes; of a fixed size, the last one is filled up."""
    rows = _even(len(split), min(count, len(split)))
    step = next((i.shape[0] for i in inputs if i.shape and isinstance(i.shape[0], int) and i.shape[0] > 0), BATCH)
    for start in range(0, len(rows), step):
        batch = split.read(rows[start : start + step]).inputs
        yield {i.name: as_input(i, batch[i.name]) for i in inputs}


def _even(size: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """So many row numbers, evenly over all."""
    return np.arange(count, dtype=np.int64) * size // count
