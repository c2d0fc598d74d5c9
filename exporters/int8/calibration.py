"""What quantising needs beside a model: samples to run it on, and a judge of what comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ltp_pipeline.results.metric import Metric
from ltp_pipeline.settings.schema import ExportSettings
from ltp_pipeline.system.arrays import Array

if TYPE_CHECKING:
    from ltp_pipeline.exporters.int8.layers import QuantizableLayer
    from ltp_pipeline.exporters.int8.training_graph import FakeQuantGraph, QatResult

Feeds = Mapping[str, Array]


class FileEvaluation(NamedTuple):
    """How good a file is on the validation split, and its judged outputs for a few of its samples."""

    value: float
    outputs: Sequence[Array]


@dataclass(frozen=True)
class Calibration:
    """Samples of the training split, and how files are judged on the validation split."""

    read_samples: Callable[
        [int], Iterator[Feeds]
    ]  # so many samples of the training split, in batches a model takes
    evaluate: Callable[[Path], FileEvaluation]
    metric: Metric
    settings: ExportSettings
    say: Callable[[str], None] = lambda _: None
    train: Callable[[FakeQuantGraph, Sequence[QuantizableLayer]], QatResult] | None = (
        None  # in 8 bits, if that is asked for
    )
