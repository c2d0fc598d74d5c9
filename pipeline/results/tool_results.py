"""What `inspect`, `validate` and `trail` return; other verbs return an `Outcome`, a `Comparison`, verdicts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ltp_pipeline.results.metric import Metric
from ltp_pipeline.results.records import (
    AccuracyResult,
    QuantizationInfo,
    SparseKernelInfo,
    TrailEntry,
)

if TYPE_CHECKING:
    from ltp_pipeline.graph.layer_weights import OtherWeights
    from ltp_pipeline.graph.model_file import TensorInfo


@dataclass(frozen=True)
class InspectedLayer:
    """A kernel of a model as it is in the file; `share` is of the weights in all kernels."""

    name: str
    op: str
    shape: tuple[int, ...]
    elements: int
    fraction: float
    nonzeros: int
    prunable: bool
    reason: str | None  # why it would not be pruned
    block_axis: int | None = (
        None  # of its output channels, where method.block can prune it in blocks
    )


@dataclass(frozen=True)
class InspectedOperator:
    """An operator that a model uses, and how often."""

    name: str
    domain: str
    count: int
    supported: bool


@dataclass(frozen=True)
class InspectionResult:
    """What a model is made of and, in the sentences of `plan`, what `run` would do with it."""

    path: str
    sha256: str
    bytes: int
    format: str | None  # of a file that this program wrote
    opset: int
    ir_version: int
    producer: str | None
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    operators: tuple[InspectedOperator, ...]
    unsupported: tuple[str, ...]
    batch_norms: int
    folded_batch_norms: int
    layers: tuple[InspectedLayer, ...]
    others: tuple[OtherWeights, ...]
    layer_elements: int
    float_elements: int  # of the whole model
    prunable_elements: int
    sparsity: float | None
    unpruned: str | None  # float weights outside kernels
    notes: tuple[str, ...]
    plan: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReferenceResult:
    """The other file of a measurement, and how the two differ on the same samples."""

    path: str
    accuracy: AccuracyResult
    drop: float  # from the other file to the measured one
    drop_interval: (
        tuple[float, float] | None
    )  # None where the metric is undefined on most samples drawn anew
    agreement: (
        float | None
    )  # share of samples with the same arg-max; None where outputs are no scores
    latency_ms: float
    latency_quartiles_ms: tuple[float, float]
    latency_ratio: float
    bytes: int


@dataclass(frozen=True)
class ValidationResult:
    """A file, measured in onnxruntime on the test split; `metric` is what accuracy means."""

    path: str
    metric: Metric
    accuracy: AccuracyResult
    sparsity: float | None  # None: no kernels
    compression: float | None  # of kernels
    model_compression: float | None  # of all float weights
    nonzeros: int | None
    bytes: int
    load_ms: float
    batch: int  # samples by which latency was taken
    threads: int
    provider: str
    notes: tuple[str, ...]
    latency_ms: float
    latency_quartiles_ms: tuple[float, float]
    against: ReferenceResult | None = None


@dataclass(frozen=True)
class QuantizationResult:
    """An int8 file, measured beside the one it was made of, and how it was made."""

    measurement: ValidationResult
    quantization: QuantizationInfo
    notes: tuple[str, ...]


@dataclass(frozen=True)
class AccelerationResult:
    """A file that uses sparse kernels, beside the one it was made of: for one sample on one thread.

    `measurement` has accuracy and more, where data were given; without, the proof was by random inputs.
    """

    path: str
    bytes: int
    sparse_kernels: SparseKernelInfo
    latency_ms: float
    source_latency_ms: float
    latency_ratio: float
    proven_on: str
    notes: tuple[str, ...]
    measurement: ValidationResult | None = None


@dataclass(frozen=True)
class TrailEntryInfo(TrailEntry):
    """An entry of a run's trail; `file` is relative to the run that was asked for, which may have picked the entry."""

    metric: Metric = field(default_factory=Metric)  # what accuracy means
    pareto: bool = False  # no other entry beats it in both compression and accuracy
    selected: bool = False
