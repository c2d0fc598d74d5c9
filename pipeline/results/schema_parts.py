"""Parts of a report that do not contain files or networks: gates, accuracy, model, data, layers."""

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ltp_pipeline.results.metric import ExtraMetric, Metric
from ltp_pipeline.results.values import (
    Count,
    CountPair,
    Fraction,
    NonNegative,
    NumberType,
    RelativePath,
    TrailPath,
)
from ltp_pipeline.system.files import DATA_SUFFIX
from ltp_pipeline.system.text import format_value, make_printable

MAX_DIMENSIONS = 64  # of a layer weight
FILE_REASON_PREFIX = "files."  # prefix of the key of a reason why a file was not written
STRICT_CONFIG = ConfigDict(
    extra="allow",
    strict=True,
    frozen=True,
    allow_inf_nan=False,
    json_schema_serialization_defaults_required=True,
)


def list_hashes(path: str, sha256: str | None, data_sha256: str | None) -> dict[str, str | None]:
    """Return the hash of a file by its path, and of its external data, if it has any."""
    hashes = {path: sha256}
    if data_sha256:
        hashes[path + DATA_SUFFIX] = data_sha256
    return hashes


class ReportPart(BaseModel):
    """An object of the report. Its types are strict: a number is never text."""

    model_config = STRICT_CONFIG

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some values replaced. The new values are not validated."""
        return self.model_copy(update=changes)


@dataclass(frozen=True)
class GateResult:
    """The result of a gate.

    Attributes:
        name: Name of the gate.
        limit: Its limit; for a file, the expected hash.
        value: The value that was compared with the limit; None if it was not measured.
        passed: Whether the value is within the limit.
        detail: Further information about the value.
        advice: What to do if the gate failed.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT_CONFIG

    name: str = ""
    limit: int | float | bool | str | None = None
    value: int | float | None = None
    passed: bool = False
    detail: str = ""
    advice: str = ""

    @property
    def is_hash(self) -> bool:
        """Whether the hash of a file was checked, instead of a number."""
        return isinstance(self.limit, str)

    @property
    def line(self) -> str:
        """Name, limit and value in one line. A hash is left out, because nobody reads it."""
        if self.is_hash:
            return make_printable(f"{self.name}: {self.detail}")
        detail = f" ({self.detail})" if self.detail else ""
        limit, value = map(format_value, (self.limit, self.value))
        return make_printable(f"{self.name}: limit {limit}, value {value}{detail}")


@dataclass(frozen=True)
class TaskSummary:
    """The task of a network, and how to read its answer from its output."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT_CONFIG

    kind: Annotated[str | None, Field(description="as in [task] kind, or custom")] = None
    output: Annotated[
        str | None, Field(description="the evaluated output; null if there are several")
    ] = None
    class_axis: Annotated[
        int | None, Field(description="axis along which the largest number is the class")
    ] = None
    threshold: Annotated[
        float | None,
        Field(description="a number above it means class 1, or that a label is present"),
    ] = None


class AccuracyResult(ReportPart):
    """The accuracy of a file in onnxruntime on one split; top1 and top5 are for classifiers."""

    value: float = Field(description="of the metric")
    top1: Fraction | None = None
    top5: Fraction | None = None
    samples: Count | None = None
    split: str | None = None
    argmax_agreement: Fraction | None = Field(
        default=None,
        description="with the metric r2_vs_original: fraction of samples whose largest output is "
        "that of the original",
    )
    extra_metrics: tuple[ExtraMetric, ...] = Field(
        default=(), description="further metrics of the task"
    )

    @model_validator(mode="after")
    def _check_top5(self) -> Self:
        if self.top1 is not None and self.top5 is not None and self.top5 < self.top1:
            raise ValueError(f"top5 is {self.top5:g}, less than top1, which is {self.top1:g}")
        return self


class QuantizationInfo(ReportPart):
    """How the graph of a file was quantized."""

    method: str = Field(
        default="", description="how ranges of activations were chosen; dynamic: at every run"
    )
    weight_bits: Count | None = None
    samples: Count | None = Field(
        default=None, description="number of training samples that ranges were computed on"
    )
    num_layers: Count | None = Field(default=None, description="number of layers in 8 bits")
    float_layers: dict[str, str] = Field(
        default_factory=dict, description="layers that are not in 8 bits, with the reason"
    )
    validation_drop: float | None = Field(
        default=None, description="drop of the metric from the float graph"
    )
    trained_epochs: Count = Field(
        default=0, description="epochs of quantization-aware training after fine-tuning"
    )


class SparseKernelInfo(ReportPart):
    """Which layers of a file run on sparse operators, if their library is registered."""

    instruction_set: str = Field(
        default="", description="instruction set that was used on this processor"
    )
    library_sha256: str | None = None
    converted_layers: tuple[str, ...] = Field(
        default=(), description="layers that run on sparse operators"
    )
    dense_layers: dict[str, str] = Field(
        default_factory=dict, description="layers that do not, with the reason"
    )
    latency_ratio: float | None = Field(
        default=None,
        gt=0,
        description="latency / that of the dense deploy graph when the file was written; null if "
        "it was not measured",
    )
    largest_difference: float | None = Field(
        default=None,
        ge=0,
        description="largest difference between outputs with and without the library on the test "
        "split / the largest output",
    )


class ModelTensorInfo(ReportPart):
    """An input or output; a dimension is a number, the name of a symbol, or null if unknown."""

    name: str = ""
    type: str = ""
    shape: tuple[int | str | None, ...] | None = None


class WeightInfo(ReportPart):
    """A float weight."""

    name: str = ""
    elements: Count = 0


class ModelInfo(ReportPart):
    """The original model."""

    name: str | None = None
    path: str | None = None
    sha256: str | None = None
    opset: Count | None = None
    num_layers: Count | None = None
    layer_elements: Count | None = None
    float_elements: Count | None = Field(
        default=None, description="of all float weights, including layer weights"
    )
    largest_other_weights: tuple[WeightInfo, ...] = Field(
        default=(), description="the largest float weights that are not layer weights"
    )
    data: tuple[RelativePath, ...] = Field(
        default=(), description="files with external weights, which the hash covers"
    )
    inputs: tuple[ModelTensorInfo, ...] = ()
    outputs: tuple[ModelTensorInfo, ...] = ()

    @property
    def title(self) -> str:
        """Name of the model for people."""
        return self.name or self.path or "model"

    @model_validator(mode="after")
    def _check_elements(self) -> Self:
        if self.float_elements is None or self.layer_elements is None:
            return self
        others = sum(weight.elements for weight in self.largest_other_weights)
        if self.float_elements < self.layer_elements + others:
            raise ValueError(
                f"float_elements is {self.float_elements}, less than layer_elements and "
                f"largest_other_weights together, which are {self.layer_elements + others}"
            )
        return self


class LayerResult(WeightInfo):
    """A layer weight. Elements, or blocks, with a mean w² below the threshold were pruned."""

    op: str = ""
    shape: Annotated[tuple[Count, ...], Field(max_length=MAX_DIMENSIONS)] = ()
    nonzeros: Count | None = None
    threshold: NonNegative | None = None
    temperature: NonNegative | None = None
    baseline_nonzeros: Count | None = None
    prunable: bool = True
    reason: str | None = None
    block: str | None = Field(
        default=None,
        description="4x1: four neighboring output channels together; null: unstructured",
    )

    @property
    def density(self) -> float | None:
        """Fraction of nonzero elements; None if they were not counted."""
        return self._divide(self.nonzeros)

    @property
    def baseline_density(self) -> float | None:
        """Fraction of nonzero elements in the baseline; None if they were not counted."""
        return self._divide(self.baseline_nonzeros)

    def _divide(self, count: int | None) -> float | None:
        return None if count is None or not self.elements else count / self.elements

    @model_validator(mode="after")
    def _check_nonzeros(self) -> Self:
        for nonzeros in (self.nonzeros, self.baseline_nonzeros):
            if nonzeros is not None and self.elements < nonzeros:
                raise ValueError(f"{nonzeros} nonzeros are more than {self.elements} elements")
        return self


class TrailEntry(ReportPart):
    """One of the progressively sparser networks that a run met, as a file."""

    entry: Count = 0
    epoch: Count = 0
    compression: NonNegative | None = None
    accuracy: float | None = Field(
        default=None, description="on the validation split, before fine-tuning"
    )
    file: TrailPath = ""
    model_compression: NonNegative | None = None
    sha256: str | None = None
    data_sha256: str | None = Field(
        default=None, description="of FILE.data, if the weights are external"
    )
    selected: bool = False

    @property
    def hashes(self) -> dict[str, str | None]:
        """Hashes of the file and of its external data, by path."""
        return list_hashes(self.file, self.sha256, self.data_sha256)


class LearnedEntry(TrailEntry):
    """A trail entry as its run recorded it, with the thresholds on w² of its layers."""

    model_config = ConfigDict(extra="forbid")

    compression: NonNegative
    accuracy: float
    thresholds: dict[str, float] = Field(default_factory=dict, repr=False)
    temperatures: dict[str, float] = Field(default_factory=dict, repr=False)

    def __hash__(self) -> int:
        return hash(self.entry)  # the number identifies an entry in its trail


class TrailEntryInfo(LearnedEntry):
    """A trail entry as `trail` lists it, with its file relative to the run that was passed."""

    metric: Metric = Field(default=Metric(), description="meaning of the accuracy")
    pareto: bool = Field(
        default=False,
        description="no other entry is better in both compression and accuracy",
    )


class EnvironmentInfo(ReportPart):
    """The machine of the run and its software."""

    versions: dict[str, str | None] = Field(default_factory=dict)
    platform: str | None = None
    processor: str | None = None
    threads: Count | None = None
    device: str | None = None
    seed: int | None = None


class StoredSamplesInfo(ReportPart):
    """Samples before preprocessing; images after decoding."""

    type: str | None = None
    shape: tuple[Count | None, ...] | None = Field(
        default=None, description="null for an axis whose length differs between samples"
    )
    lengths: CountPair | None = Field(
        default=None, description="shortest and longest of sequences of uneven length"
    )
    range: tuple[int | float, int | float] | None = Field(
        default=None, description="smallest and largest value"
    )


class ImageInfo(ReportPart):
    """How image files are decoded."""

    mode: Literal["L", "RGB", "RGBA"] | None = None
    size: CountPair | None = None
    crop: float | None = Field(
        default=None, description="fraction of the shorter side that the center crop keeps"
    )


class PreprocessingInfo(ReportPart):
    """Steps from stored samples to the input of the model, in this order."""

    stored: StoredSamplesInfo | None = None
    image: ImageInfo | None = Field(default=None, description="for image files")
    add_channel: bool = False
    channels_to_front: bool = False
    resize: Annotated[CountPair | None, Field(description="height and width")] = None
    type: NumberType = "float32"
    scale: float | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    channels_to_back: bool = False
    flatten: bool = False
    pad: float | None = Field(
        default=None, description="value that fills up sequences of uneven length"
    )
    mask_of: str | None = Field(
        default=None, description="input whose values this mask marks; a mask is not stored"
    )
    marks_padding: bool = Field(
        default=False, description="whether a mask marks padding instead of values"
    )


class InputInfo(ReportPart):
    """What one input of the model received."""

    sample_shape: tuple[Count | None, ...] | None = Field(
        default=None, description="shape of one sample as the model takes it"
    )
    preprocessing_steps: tuple[str, ...] | None = Field(
        default=None, description="for people, without scale, mean and std"
    )
    preprocessing: PreprocessingInfo | None = Field(
        default=None, description="for programs, with scale, mean and std"
    )


class DataInfo(ReportPart):
    """The data of training and evaluation."""

    path: str | None = None
    classes: Count | None = None
    splits: dict[str, Count | None] = Field(
        default_factory=dict, description="number of samples of each split"
    )
    inputs: dict[str, InputInfo] = Field(
        default_factory=dict, description="by the names of the model's inputs"
    )
    notes: tuple[str, ...] = ()
    class_names: tuple[str, ...] | None = Field(
        default=None, description="by class number, if the data have names"
    )


class CustomTaskInfo(ReportPart):
    """The custom task of training and evaluation."""

    name: str = Field(default="", description="of its file, or a name for the object")
    sha256: str | None = Field(default=None, description="of its file; null for an object")
    fingerprint: str | None = Field(default=None, description="that the task declares")

    @property
    def label(self) -> str:
        """Name and hash of the task for people."""
        return f"{self.name} (SHA-256 {self.sha256})" if self.sha256 else self.name


class WeightHistogram(ReportPart):
    """Counts of |w| in one layer before and after pruning. The threshold belongs to w²."""

    name: str = ""
    threshold: NonNegative | None = None
    edges: tuple[float, ...] = ()
    before: tuple[Count, ...] = ()
    after: tuple[Count, ...] = ()

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        num_bins = max(len(self.edges) - 1, 0)
        if not num_bins == len(self.before) == len(self.after):
            raise ValueError(f"before and after must have {num_bins} counts, one for each bin")
        return self


class WeightScatter(ReportPart):
    """w² of the same weights before and after pruning. The threshold belongs to w²."""

    name: str = ""
    threshold: NonNegative | None = None
    before: tuple[NonNegative, ...] = ()
    after: tuple[NonNegative, ...] = ()

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        lengths = len(self.before), len(self.after)
        if lengths[0] != lengths[1]:
            raise ValueError(f"before and after must have the same length, got {lengths}")
        return self
