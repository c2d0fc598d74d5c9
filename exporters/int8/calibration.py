"""Data that quantization needs: samples to choose ranges by, and an evaluation of files."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ltp_pipeline.exporters.files.run_proof import Feeds
from ltp_pipeline.exporters.int8.layers import QuantizableLayer
from ltp_pipeline.exporters.int8.training_graph import FakeQuantGraph, QatResult
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.settings.schema import ExportSettings
from ltp_pipeline.system.arrays import Array


class FileEvaluation(NamedTuple):
    """Result of a file on the validation split."""

    value: float  # of the metric
    outputs: Sequence[Array]  # for some samples, those outputs that the metric uses


@dataclass(frozen=True)
class Calibration:
    """Samples of the training split, and the evaluation of files on the validation split."""

    read_samples: Callable[[int], Iterator[Feeds]]  # yields this number of samples, in batches
    evaluate: Callable[[Path], FileEvaluation]
    metric: Metric
    settings: ExportSettings
    say: Callable[[str], None] = lambda _: None  # shows a line of progress
    # Quantization-aware training; None without.
    train: Callable[[FakeQuantGraph, Sequence[QuantizableLayer]], QatResult] | None = None
