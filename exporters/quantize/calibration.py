"""What quantising needs beside a model: samples to run it on, and a judge of what comes out."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ltp_pipeline.config import ExportSettings
from ltp_pipeline.graph import Array
from ltp_pipeline.metric import Metric

Feeds = Mapping[str, Array]


class Judgement(NamedTuple):
    """How good a file is on the validation split, and its judged outputs for a few of its samples."""

    value: float
    outputs: Sequence[Array]


@dataclass(frozen=True)
class Calibration:
    """Samples of the training split, and how files are judged on the validation split."""

    feeds: Callable[[int], Iterator[Feeds]]  # so many samples of the training split, in batches a model takes
    judge: Callable[[Path], Judgement]
    metric: Metric
    settings: ExportSettings
    say: Callable[[str], None] = lambda _: None
