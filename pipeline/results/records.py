"""What passes from stage to stage. Frozen; heavy libraries appear only as types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic import ConfigDict

from ltp_pipeline.results.metric import ExtraMetric, Metric
from ltp_pipeline.settings.file_names import EXACT, ExportFormat

if TYPE_CHECKING:
    from torch import Tensor

    from ltp_pipeline.graph.sparsity import Sparsity
    from ltp_pipeline.results.values import PairedCounts
    from ltp_pipeline.system.arrays import Array, StateDict


MOST_WEIGHTS = (
    0.9  # a model whose kernels hold a smaller share of its float weights is warned about
)


@dataclass(frozen=True)
class TrailEntry:
    """One of the progressively sparser networks met on the way; a deployable file."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", strict=True, allow_inf_nan=False
    )

    entry: int
    epoch: int
    compression: float
    accuracy: float  # the metric on the validation split, hard-pruned, not fine-tuned
    file: str
    thresholds: Mapping[str, float] = field(default_factory=dict, compare=False)  # on w², by kernel
    temperatures: Mapping[str, float] = field(default_factory=dict, compare=False)
    model_compression: float | None = None
    sha256: str | None = None
    data_sha256: str | None = None  # of the data beside it


def finetune_key(entry: int) -> str:
    """Name of the checkpoint and the log lines of fine-tuning from an entry of the trail."""
    return f"finetune-{entry:03d}"


@dataclass(frozen=True)
class ThresholdLearningResult:
    """What learning leaves behind: the trail, each entry with its thresholds and temperatures."""

    trail: tuple[TrailEntry, ...]


@dataclass(frozen=True)
class PrunedNetwork:
    """A hard-pruned network and the masks that hold over it."""

    state: StateDict = field(repr=False)
    masks: Mapping[str, Tensor] = field(repr=False)  # True where a weight is kept
    nonzeros: int  # of all kernels
    epochs: Mapping[str, int]  # how long it was trained: {"prune": …, "finetune": …}


@dataclass(frozen=True)
class QuantizationInfo:
    """How a graph was quantised."""

    method: str  # min-max, percentile or entropy: how fixed ranges of activations were chosen; dynamic: at every run
    weight_bits: int
    samples: int | None  # of the training split, by which ranges were chosen
    num_layers: int  # that are in 8 bits
    float_layers: Mapping[str, str]  # kernels that are not, and why
    validation_drop: float  # against the float graph
    trained_epochs: int = 0  # in 8 bits, with the masks held


@dataclass(frozen=True)
class SparseKernelInfo:
    """Which layers of a graph the library of sparse kernels computes."""

    instruction_set: str  # the instructions that the library took on this processor
    library_sha256: str
    converted_layers: tuple[str, ...]  # kernels
    dense_layers: Mapping[str, str]  # kernels that are not, and why
    latency_ratio: (
        float | None
    )  # of the dense deploy graph's time, for one sample on one thread; None: not asked for


@dataclass(frozen=True)
class ExportedFile:
    """A file on disk that was read back and says what the weights say; `name` is relative to the run directory."""

    path: Path
    name: str
    graph: str
    encoding: str
    sha256: str
    bytes: int
    data_sha256: str | None = None  # of the data beside it
    weight_storage: str = EXACT  # or "fp16", "int8": rounded, as was asked for
    notes: tuple[str, ...] = ()
    quantization: QuantizationInfo | None = None
    sparse_kernels: SparseKernelInfo | None = None

    @property
    def is_exact(self) -> bool:
        """Whether it holds the network's weights as they are: not in 8 bits, and not rounded."""
        return self.weight_storage == EXACT and self.quantization is None

    @property
    def format(self) -> str:
        """Graph and encoding in one name, as settings have it: `packed`, `deploy-packed`."""
        return ExportFormat(self.graph, self.encoding).name


@dataclass(frozen=True)
class ExportResult:
    """The files of a network, and by their names why others were left out."""

    files: list[ExportedFile]
    skipped: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class AccuracyResult:
    """Measured in onnxruntime; `value` is the metric's.

    Without labels there is no top1; top5 is None also where there are five classes or fewer. Where the metric is the
    variance explained, `equal_argmax` is the share of samples whose largest output is the original's, for outputs that
    could be class scores. `beside` has what else the task tells of the network.
    """

    value: float
    top1: float | None
    top5: float | None
    samples: int
    split: str
    argmax_agreement: float | None = None
    extra_metrics: tuple[ExtraMetric, ...] = ()


@dataclass(frozen=True)
class LatencyResult:
    """Milliseconds of one batch of so many samples, with so many threads; the original's, measured in turns."""

    batch: int
    threads: int
    ms: float
    original_ms: float | None = None


@dataclass(frozen=True)
class MeasuredOriginal:
    """The original file in onnxruntime; `correct` has the score of each sample of the test split."""

    accuracy: AccuracyResult
    validation_accuracy: float
    scores: Array
    load_ms: float
    latency: tuple[LatencyResult, ...]


@dataclass(frozen=True)
class MeasuredFile:
    """What an exported file does, measured from the file."""

    file: ExportedFile
    accuracy: AccuracyResult
    counted: Sparsity  # over all kernels
    whole: Sparsity  # nonzeros of all its float weights, beside the elements of the original's
    nonzeros: Mapping[str, int]
    parity_max_abs_diff: float
    load_ms: float
    latency: tuple[LatencyResult, ...]  # on one thread first
    paired_counts: PairedCounts | None = None  # beside the original's
    kernels_gap: float | None = (
        None  # how far sparse kernels are from dense ones, as a share of the largest output
    )


@dataclass(frozen=True)
class MeasuredNetwork:
    """A pruned network through all its files."""

    validations: Sequence[MeasuredFile]
    scores: Array  # of the least accurate file
    epochs: Mapping[str, int]
    metric: Metric
    exact_scores: Array | None = None  # of the file by which networks are compared; None: `correct`
    skipped: Mapping[str, str] = field(
        default_factory=dict
    )  # names of files that were not written, and why

    @property
    def least_accurate(self) -> MeasuredFile:
        """The least accurate file, of which rounding and 8 bits make a difference: a promise holds for every file."""
        return self.metric.worst(self.validations, lambda v: v.accuracy.value)

    @property
    def most_nonzeros(self) -> MeasuredFile:
        """The file with the most nonzeros, of which rounding leaves fewer."""
        return max(self.validations, key=lambda v: v.counted.nonzeros)

    @property
    def exact(self) -> MeasuredFile:
        """The file by which networks are compared: the first with exact weights, or the first where none has them."""
        return next((v for v in self.validations if v.file.is_exact), self.validations[0])


@dataclass(frozen=True)
class MeasuredPoint:
    """A network of the baseline, measured; the validation split has chosen its compression."""

    measured: MeasuredNetwork
    validation_accuracy: float


@dataclass(frozen=True)
class MeasuredBaseline:
    """The baseline: its point at LTP's compression first; those after it, if a curve was wanted."""

    points: tuple[MeasuredPoint, ...]
    is_curve: bool
    excludes_classifier: bool = False
    in_blocks: bool = False
    unstructured: MeasuredPoint | None = None  # beside blocks: single weights, as many
