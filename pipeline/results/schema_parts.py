"""Parts of a report that stand for themselves: gate results, accuracies, model, data and layers."""

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
    make_field,
)
from ltp_pipeline.system.files import DATA_SUFFIX
from ltp_pipeline.system.text import format_value, make_printable

MOST_AXES = 64  # of a tensor
FILE_REASON_PREFIX = "files."  # begins the key of a reason why a file was not written
STRICT = ConfigDict(
    extra="allow",
    strict=True,
    frozen=True,
    allow_inf_nan=False,
    json_schema_serialization_defaults_required=True,
)


def list_hashes(name: str, sha256: str | None, data_sha256: str | None) -> dict[str, str | None]:
    """Return the hashes of a file and of its external data, by name."""
    hashes = {name: sha256}
    if data_sha256:
        hashes[name + DATA_SUFFIX] = data_sha256
    return hashes


class ReportPart(BaseModel):
    """An object of the report. Numbers are numbers, never text."""

    model_config = STRICT

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some values replaced. The new values are not validated."""
        return self.model_copy(update=changes)


@dataclass(frozen=True)
class GateResult:
    """The result of one gate.

    Attributes:
        detail: What a reader needs to know in addition to limit and value.
        advice: What would help.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    name: str = ""
    limit: int | float | bool | str | None = None
    value: int | float | None = None
    passed: bool = False
    detail: str = ""
    advice: str = ""

    @property
    def is_hash(self) -> bool:
        """Whether the gate checked a file by its hash in the report."""
        return isinstance(self.limit, str)

    @property
    def line(self) -> str:
        """Name, limit and value in one line."""
        if self.is_hash:  # which tells nobody anything
            return make_printable(f"{self.name}: {self.detail}")
        detail = f" ({self.detail})" if self.detail else ""
        return make_printable(
            f"{self.name}: limit {format_value(self.limit)}, "
            f"value {format_value(self.value)}{detail}"
        )


@dataclass(frozen=True)
class TaskSummary:
    """What a network is for, and how its evaluated output states the answer."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    kind: Annotated[str | None, Field(description="as [task] kind, or custom")] = None
    output: Annotated[str | None, Field(description="null where several are judged")] = None
    class_axis: Annotated[
        int | None, Field(description="along which the largest number tells the class")
    ] = None
    threshold: Annotated[
        float | None,
        Field(description="above which a number tells class 1, not 0, or that a label is there"),
    ] = None


class AccuracyResult(ReportPart):
    """The metric of a file on one split. Only classifiers have top1 and top5."""

    value: Annotated[float, Field(description="of the metric")]
    top1: Fraction | None = None
    top5: Fraction | None = None
    samples: Count | None = None
    split: str | None = None
    argmax_agreement: Fraction | None = make_field(
        None, "beside explained: share of samples whose largest output is the original's"
    )
    extra_metrics: tuple[ExtraMetric, ...] = make_field(
        (), "what else the task tells of the network"
    )

    @model_validator(mode="after")
    def _check_top5(self) -> Self:
        if self.top1 is not None and self.top5 is not None and self.top5 < self.top1:
            raise ValueError(f"top5 is {self.top5:g}, less than top1, which is {self.top1:g}")
        return self


class QuantizationInfo(ReportPart):
    """How the graph of a file was quantized."""

    method: str = make_field("", "how ranges of activations were chosen; dynamic: at every run")
    weight_bits: Count | None = None
    samples: Count | None = make_field(None, "of the training split, by which ranges were chosen")
    num_layers: Count | None = make_field(None, "in 8 bits")
    float_layers: Annotated[
        dict[str, str], Field(description="kernels that are not in 8 bits, and why")
    ] = Field(default_factory=dict)
    validation_drop: float | None = make_field(None, "against the float graph")
    trained_epochs: Count = make_field(
        0, "that the network was trained in 8 bits, after fine-tuning"
    )


class SparseKernelInfo(ReportPart):
    """Which layers of a file run on sparse operators if the library is registered."""

    instruction_set: str = make_field("", "the instructions that it took on this processor")
    library_sha256: str | None = None
    converted_layers: tuple[str, ...] = make_field((), "kernels that it computes")
    dense_layers: Annotated[
        dict[str, str], Field(description="kernels that it does not, and why")
    ] = Field(default_factory=dict)
    latency_ratio: float | None = make_field(
        None, "time / that of the dense deploy graph; null: it was not measured", gt=0
    )
    largest_difference: float | None = make_field(
        None, "difference of outputs with and without the library / the largest output", ge=0
    )


class ModelTensorInfo(ReportPart):
    """An input or output. A dimension is a number, the name of a symbol, or null if it is open."""

    name: str = ""
    type: str = ""
    shape: tuple[int | str | None, ...] | None = None


class WeightInfo(ReportPart):
    """A float weight."""

    name: str = ""
    elements: Count = 0


class ModelInfo(ReportPart):
    """The model that was pruned."""

    name: str | None = None
    path: str | None = None
    sha256: str | None = None
    opset: Count | None = None
    num_layers: Count | None = None
    layer_elements: Count | None = None
    float_elements: Count | None = make_field(None, "of all float weights, kernels among them")
    largest_other_weights: tuple[WeightInfo, ...] = make_field(
        (), "the largest float weights that are no kernels"
    )
    data: tuple[RelativePath, ...] = make_field(
        (), "files beside it that hold weights; the hash covers them"
    )
    inputs: tuple[ModelTensorInfo, ...] = ()
    outputs: tuple[ModelTensorInfo, ...] = ()

    @property
    def title(self) -> str:
        """Name of the model for people."""
        return self.name or self.path or "model"

    @model_validator(mode="after")
    def _check_elements(self) -> Self:
        if self.float_elements is not None and self.layer_elements is not None:
            parts = self.layer_elements + sum(w.elements for w in self.largest_other_weights)
            if self.float_elements < parts:
                raise ValueError(
                    f"float_elements is {self.float_elements}, less than layer_elements and "
                    f"largest_other_weights together, which are {parts}"
                )
        return self


class LayerResult(WeightInfo):
    """A layer weight.

    Weights with w² below the threshold were pruned; in blocks, those whose mean w² is below it.
    """

    op: str = ""
    shape: Annotated[tuple[Count, ...], Field(max_length=MOST_AXES)] = ()
    nonzeros: Count | None = None
    threshold: NonNegative | None = None
    temperature: NonNegative | None = None
    baseline_nonzeros: Count | None = None
    prunable: bool = True
    reason: str | None = None
    block: str | None = make_field(
        None, "4x1: four neighbouring output channels together; null: single weights"
    )

    @property
    def density(self) -> float | None:
        """Fraction of its weights that remain."""
        return self._compute_density(self.nonzeros)

    @property
    def baseline_density(self) -> float | None:
        """Fraction of its weights that remain in the baseline."""
        return self._compute_density(self.baseline_nonzeros)

    def _compute_density(self, nonzeros: int | None) -> float | None:
        return None if nonzeros is None or not self.elements else nonzeros / self.elements

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
    accuracy: float | None = make_field(None, "on the validation split, before fine-tuning")
    file: TrailPath = ""
    model_compression: NonNegative | None = None
    sha256: str | None = None
    data_sha256: str | None = make_field(None, "of FILE.data, if the weights are outside")
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
    thresholds: Annotated[dict[str, float], Field(repr=False)] = Field(default_factory=dict)
    temperatures: Annotated[dict[str, float], Field(repr=False)] = Field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self.entry)  # the number identifies an entry in its trail


class TrailEntryInfo(LearnedEntry):
    """A trail entry as `trail` lists it, with its file relative to the run that was passed."""

    metric: Metric = make_field(Metric(), "meaning of the accuracy")
    pareto: bool = make_field(False, "no other entry is better in both compression and accuracy")


class EnvironmentInfo(ReportPart):
    """Where the run was made."""

    versions: dict[str, str | None] = Field(default_factory=dict)
    platform: str | None = None
    processor: str | None = None
    threads: Count | None = None
    device: str | None = None
    seed: int | None = None


class StoredSamples(ReportPart):
    """Samples before they are prepared; image files, once they are decoded."""

    type: NumberType = "float32"
    shape: tuple[Count | None, ...] | None = make_field(
        None, "of one sample; null for the axis of sequences of uneven length"
    )
    lengths: CountPair | None = make_field(
        None, "shortest and longest, of sequences of uneven length"
    )
    range: tuple[int | float, int | float] | None = make_field(None, "smallest and largest value")


class ImageForm(ReportPart):
    """Form into which image files are decoded."""

    mode: Literal["L", "RGB", "RGBA"]
    size: Annotated[CountPair, Field(description="height and width")]
    crop: float | None = make_field(None, "fraction of the shorter side that the center crop keeps")

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of a decoded image."""
        return (*self.size, len(self.mode))

    @property
    def num_bytes(self) -> int:
        """Size of a decoded image in bytes."""
        return math.prod(self.shape)


class InputRecipe(ReportPart):
    """Preprocessing of one input: steps from stored samples to the model's input, in this order."""

    stored: StoredSamples | None = None
    image: ImageForm | None = make_field(None, "null if samples are arrays")
    add_channel: bool = False
    channels_to_front: bool = False
    resize: CountPair | None = make_field(None, "height and width")
    type: NumberType = "float32"
    scale: float | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    channels_to_back: bool = False
    flatten: bool = False
    pad: float | None = make_field(None, "value that fills up sequences of uneven length")
    mask_of: str | None = make_field(
        None, "input whose padding this mask marks; masks are computed, not stored"
    )
    marks_padding: bool = make_field(False, "a mask is 1 at padding, instead of at values")


class InputInfo(ReportPart):
    """Samples of one input of the model."""

    sample_shape: tuple[Count | None, ...] | None = make_field(
        None, "of one sample as the model takes it"
    )
    preprocessing_steps: tuple[str, ...] | None = make_field(
        None, "from a stored sample to the input, but for scale, mean and std"
    )
    preprocessing: InputRecipe | None = make_field(
        None, "all steps for machines, with scale, mean and std"
    )


class DataInfo(ReportPart):
    """The data that the network was trained and measured on."""

    path: str | None = None
    classes: Count | None = None
    splits: dict[str, Count | None] = Field(default_factory=dict)
    inputs: Annotated[dict[str, InputInfo], Field(description="by the model's inputs")] = Field(
        default_factory=dict
    )
    notes: tuple[str, ...] = ()
    class_names: tuple[str, ...] | None = make_field(None, "by number, where the data have names")


class CustomTaskInfo(ReportPart):
    """The custom task that the network was trained and measured with."""

    name: str = make_field("", "of its file, or what messages call the object")
    sha256: str | None = make_field(None, "of its file; null for an object")
    fingerprint: str | None = make_field(None, "that the task gives itself")

    @property
    def label(self) -> str:
        """Name of the task for people."""
        return f"{self.name} (SHA-256 {self.sha256})" if self.sha256 else self.name


class WeightHistogram(ReportPart):
    """Counts of |w| in one layer before and after pruning. The threshold is one on w²."""

    name: str = ""
    threshold: NonNegative | None = None
    edges: tuple[float, ...] = ()
    before: tuple[Count, ...] = ()
    after: tuple[Count, ...] = ()

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        bins = max(len(self.edges) - 1, 0)
        if not bins == len(self.before) == len(self.after):
            raise ValueError(f"before and after must have {bins} values, one between two edges")
        return self


class WeightScatter(ReportPart):
    """w² of the same weights before and after pruning. The threshold is one on w²."""

    name: str = ""
    threshold: NonNegative | None = None
    before: tuple[NonNegative, ...] = ()
    after: tuple[NonNegative, ...] = ()

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        if len(self.before) != len(self.after):
            raise ValueError(
                f"before and after must have the same length, got {len(self.before)} and "
                f"{len(self.after)}"
            )
        return self
