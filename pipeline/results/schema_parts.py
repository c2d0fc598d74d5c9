"""Parts of a report: gate results, accuracies, model, data and layers."""

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
    """Result of one gate.

    Attributes:
        name: Name of the gate as in [gates]. The name of a file follows if the limit is for one
            file.
        limit: Limit of the gate; for a check of a file, its expected SHA-256.
        value: Value that is compared with the limit; null if it was not measured.
        passed: True if the gate passed.
        detail: Details such as the confidence interval, or the reason why the value is null.
        advice: Suggestion for passing the gate; empty if it passed.
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
        """True if the gate checked the hash of a file."""
        return isinstance(self.limit, str)

    @property
    def line(self) -> str:
        """Name, limit and value in one line."""
        if self.is_hash:  # a reader cannot compare hashes
            return make_printable(f"{self.name}: {self.detail}")
        detail = f" ({self.detail})" if self.detail else ""
        return make_printable(
            f"{self.name}: limit {format_value(self.limit)}, "
            f"value {format_value(self.value)}{detail}"
        )


@dataclass(frozen=True)
class TaskSummary:
    """Kind of a task, and how its measured output encodes the prediction.

    Attributes:
        kind: Kind of the task as in [task], or `custom`.
        output: Name of the measured output; null if the metric covers several outputs.
        class_axis: Axis of the output along which the index of the largest number is the class;
            null for other tasks.
        threshold: Score above which the output means class 1, or above which a label is present;
            null for other tasks.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    kind: str | None = None
    output: str | None = None
    class_axis: int | None = None
    threshold: float | None = None


class AccuracyResult(ReportPart):
    """The metric of a file on one split. Only classifiers have top1 and top5."""

    value: Annotated[float, Field(description="Value of the metric, in its unit.")]
    top1: Fraction | None = make_field(
        None, "Top-1 accuracy; null if the model is not a classifier."
    )
    top5: Fraction | None = make_field(
        None, "Top-5 accuracy; null if the model is not a classifier of more than five classes."
    )
    samples: Count | None = make_field(None, "Number of samples that were measured.")
    split: str | None = make_field(None, "Name of the split that was measured.")
    argmax_agreement: Fraction | None = make_field(
        None,
        "Fraction of samples whose largest output has the same index as in the original; "
        "null unless the metric is r2_vs_original.",
    )
    extra_metrics: tuple[ExtraMetric, ...] = make_field(
        (), "Further metrics that the task computes."
    )

    @model_validator(mode="after")
    def _check_top5(self) -> Self:
        if self.top1 is not None and self.top5 is not None and self.top5 < self.top1:
            raise ValueError(f"top5 must be at least top1, {self.top1:g}, got {self.top5:g}")
        return self


class LearningRateTrial(ReportPart):
    """A short training with one learning rate."""

    lr: Annotated[float, Field(gt=0, description="Highest learning rate of the training.")]
    value: float | None = make_field(
        None, "Metric on the validation split after the training; null if it diverged."
    )


class LearningRateInfo(ReportPart):
    """Learning rate of a training, and how it was chosen."""

    lr: Annotated[float, Field(gt=0, description="Highest learning rate of the training.")]
    source: Literal["given", "searched", "default"] = make_field(
        "default",
        "Origin of the rate: `given` by the user, `searched` if a trial was ahead of the default "
        "beyond noise, else `default`.",
    )
    reason: str = make_field("", "Reason for this origin.")
    trial_steps: Count = make_field(0, "Number of steps of each trial; 0 without trials.")
    trials: tuple[LearningRateTrial, ...] = make_field((), "Trials of the search, by rate.")

    @model_validator(mode="after")
    def _check_rate(self) -> Self:
        rates = [trial.lr for trial in self.trials]
        if rates and self.lr not in rates:
            raise ValueError(f"lr must be the rate of a trial, got {self.lr:g}")
        return self


class QuantizationInfo(ReportPart):
    """Quantization of an int8 graph."""

    method: str = make_field(
        "",
        "Method that chose the ranges of activations. With `dynamic`, the file computes "
        "them at every run.",
    )
    weight_bits: Count | None = make_field(None, "Number of bits of a quantized weight: 7 or 8.")
    samples: Count | None = make_field(
        None, "Number of training samples that the ranges were chosen on; null with `dynamic`."
    )
    num_layers: Count | None = make_field(None, "Number of layers that compute in 8 bits.")
    float_layers: dict[str, str] = Field(
        default_factory=dict,
        description="Layers that compute in float: the reason, by the name of the layer weight.",
    )
    validation_drop: float | None = make_field(
        None, "Drop of the metric on the validation split, compared with the float graph."
    )
    trained_epochs: Count = make_field(
        0, "Number of epochs of quantization-aware training after fine-tuning."
    )


class SparseKernelInfo(ReportPart):
    """Layers that run on sparse operators if the library is registered."""

    instruction_set: str = make_field(
        "", "Instruction set that the library used on the processor of the run."
    )
    library_sha256: str | None = make_field(None, "SHA-256 of the library of sparse operators.")
    converted_layers: tuple[str, ...] = make_field(
        (), "Names of the layer weights that sparse operators read."
    )
    dense_layers: dict[str, str] = Field(
        default_factory=dict,
        description="Layers that stay dense: the reason, by the name of the layer weight.",
    )
    latency_ratio: float | None = make_field(
        None,
        "Latency divided by that of the dense deploy graph; null if it was not measured.",
        gt=0,
    )
    largest_difference: float | None = make_field(
        None,
        "Largest difference between outputs with and without the library, divided by the "
        "largest output.",
        ge=0,
    )


class ModelTensorInfo(ReportPart):
    """An input or output of the model."""

    name: str = make_field("", "Name of the tensor.")
    type: str = make_field("", "Type of its elements.")
    shape: tuple[int | str | None, ...] | None = make_field(
        None, "Sizes of its dimensions: a number, a symbolic name, or null for an unknown size."
    )


class WeightInfo(ReportPart):
    """A float weight."""

    name: str = make_field("", "Name of the weight in the model.")
    elements: Count = make_field(0, "Number of elements.")


class ModelInfo(ReportPart):
    """The model that was pruned."""

    name: str | None = make_field(None, "File name of the model.")
    path: str | None = make_field(None, "Path of the model, relative to the report where possible.")
    sha256: str | None = make_field(None, "SHA-256 of the model and its external data.")
    opset: Count | None = make_field(None, "Version of the default ONNX operator set.")
    num_layers: Count | None = make_field(None, "Number of layer weights.")
    layer_elements: Count | None = make_field(None, "Number of elements of all layer weights.")
    macs: Count | None = make_field(
        None,
        "Number of multiply-adds of all layer weights in one sample, including those by zeros; "
        "null if the uses of a layer are unknown.",
    )
    float_elements: Count | None = make_field(
        None, "Number of elements of all float weights, including layer weights."
    )
    largest_other_weights: tuple[WeightInfo, ...] = make_field(
        (), "Largest float weights that are not layer weights."
    )
    data: tuple[RelativePath, ...] = make_field(
        (), "Files of external data next to the model. The hash covers them."
    )
    inputs: tuple[ModelTensorInfo, ...] = make_field((), "Inputs of the model.")
    outputs: tuple[ModelTensorInfo, ...] = make_field((), "Outputs of the model.")

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
                    f"float_elements must be at least {parts}, the sum of layer_elements and "
                    f"largest_other_weights, got {self.float_elements}"
                )
        return self


class LayerResult(WeightInfo):
    """A layer weight."""

    op: str = make_field("", "Operator that reads the weight, such as Conv.")
    shape: Annotated[tuple[Count, ...], Field(max_length=MOST_AXES)] = make_field(
        (), "Shape of the weight."
    )
    nonzeros: Count | None = make_field(
        None, "Number of nonzeros after pruning, in the exported file with the most nonzeros."
    )
    threshold: NonNegative | None = make_field(
        None,
        "Threshold on w² below which weights, or means of w² over blocks, were pruned; "
        "null if the weight was not pruned.",
    )
    temperature: NonNegative | None = make_field(
        None, "Temperature T of soft pruning; null if the weight was not pruned."
    )
    baseline_nonzeros: Count | None = make_field(
        None, "Number of nonzeros in the baseline; null without a baseline."
    )
    gradual_nonzeros: Count | None = make_field(
        None, "Number of nonzeros in the gradual baseline; null without one."
    )
    ltp_nonzeros: Count | None = make_field(
        None, "Number of nonzeros in the network of `ltp`; null without one."
    )
    uses: Count | None = make_field(
        None,
        "Number of multiplications by each of its weights in one sample; null if it could not be "
        "counted.",
    )
    prunable: bool = make_field(True, "True if the weight could be pruned.")
    reason: str | None = make_field(
        None, "Reason why the weight could not be pruned; null if it could."
    )
    block: str | None = make_field(
        None,
        "`4x1` if blocks of four neighboring output channels were pruned together; null "
        "for unstructured pruning.",
    )

    @property
    def density(self) -> float | None:
        """Fraction of nonzeros in the layer weight."""
        return self._compute_density(self.nonzeros)

    @property
    def baseline_density(self) -> float | None:
        """Fraction of nonzeros in the layer weight of the baseline."""
        return self._compute_density(self.baseline_nonzeros)

    @property
    def gradual_density(self) -> float | None:
        """Fraction of nonzeros in the layer weight of the gradual baseline."""
        return self._compute_density(self.gradual_nonzeros)

    def _compute_density(self, nonzeros: int | None) -> float | None:
        return None if nonzeros is None or not self.elements else nonzeros / self.elements

    @model_validator(mode="after")
    def _check_nonzeros(self) -> Self:
        others = (self.baseline_nonzeros, self.gradual_nonzeros, self.ltp_nonzeros)
        for nonzeros in (self.nonzeros, *others):
            if nonzeros is not None and self.elements < nonzeros:
                raise ValueError(
                    f"nonzeros must be at most {self.elements}, the elements, got {nonzeros}"
                )
        return self


class TrailEntry(ReportPart):
    """A file with one of the progressively sparser networks of threshold learning."""

    entry: Count = make_field(0, "Number of the entry, which `pick` takes.")
    epoch: Count = make_field(
        0, "Number of epochs of threshold learning before the entry was saved."
    )
    compression: NonNegative | None = make_field(None, "Compression ratio of the layer weights.")
    accuracy: float | None = make_field(None, "Metric on the validation split, before fine-tuning.")
    file: TrailPath = make_field("", "Path of the file, relative to the report.")
    model_compression: NonNegative | None = make_field(
        None, "Compression ratio of all float weights."
    )
    macs_left: Fraction | None = make_field(
        None,
        "Multiply-adds of the nonzero layer weights divided by those of all layer weights; "
        "null if the uses of a layer are unknown.",
    )
    sha256: str | None = make_field(None, "SHA-256 of the file.")
    data_sha256: str | None = make_field(
        None, "SHA-256 of FILE.data; null if the file has no external data."
    )
    selected: bool = make_field(False, "True for the entry that was fine-tuned and exported.")

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
    # What the nonzeros cost, if the budget counts something else than weights.
    cost: Count | None = None

    def __hash__(self) -> int:
        return hash(self.entry)  # the number identifies an entry in its trail


class TrailEntryInfo(LearnedEntry):
    """A trail entry as `trail` lists it, with its file relative to the run that was passed."""

    metric: Metric = make_field(Metric(), "Name, unit and direction of the accuracy.")
    pareto: bool = make_field(
        False, "True if no other entry is better in both compression and accuracy."
    )


class EnvironmentInfo(ReportPart):
    """Machine and libraries of the run."""

    versions: dict[str, str | None] = Field(
        default_factory=dict,
        description="Versions of Python and libraries; null for a library that is not installed.",
    )
    platform: str | None = make_field(None, "Operating system and its version.")
    processor: str | None = make_field(None, "Name of the processor.")
    threads: Count | None = make_field(None, "Number of threads of torch.")
    device: str | None = make_field(None, "Device that trained the network: cpu, cuda or mps.")
    seed: int | None = make_field(None, "Seed of all random numbers.")


class StoredSamples(ReportPart):
    """Samples as they are stored; image files after decoding."""

    type: NumberType = make_field("float32", "Type of the stored numbers, such as uint8.")
    shape: tuple[Count | None, ...] | None = make_field(
        None, "Shape of one sample; null for an axis of variable length."
    )
    lengths: CountPair | None = make_field(
        None, "Lengths of the shortest and of the longest sequence; null unless lengths vary."
    )
    range: tuple[int | float, int | float] | None = make_field(
        None, "Smallest and largest stored value."
    )


class ImageForm(ReportPart):
    """Form in which image files are decoded."""

    mode: Annotated[
        Literal["L", "RGB", "RGBA"],
        Field(description="Color mode of the decoded image: L (gray), RGB or RGBA."),
    ]
    size: Annotated[
        CountPair, Field(description="Height and width of the decoded image, in pixels.")
    ]
    crop: float | None = make_field(
        None, "Fraction of the shorter side that the center crop retains; null without a crop."
    )

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of a decoded image."""
        return (*self.size, len(self.mode))

    @property
    def num_bytes(self) -> int:
        """Size of a decoded image in bytes."""
        return math.prod(self.shape)


class InputRecipe(ReportPart):
    """Preprocessing of one input: the steps from stored samples to the input, in this order."""

    stored: StoredSamples | None = make_field(None, "Samples as they are stored.")
    image: ImageForm | None = make_field(
        None, "Form in which image files are decoded; null if samples are arrays."
    )
    add_channel: bool = make_field(False, "True if a channel axis is added in front.")
    channels_to_front: bool = make_field(
        False, "True if the last axis moves to the front as the channel axis."
    )
    resize: CountPair | None = make_field(
        None, "Height and width after resizing, in pixels; null without resizing."
    )
    type: NumberType = make_field("float32", "Type of the numbers of the input.")
    scale: float | None = make_field(
        None, "Number that values are multiplied by; null if they are not scaled."
    )
    mean: tuple[float, ...] | None = make_field(
        None, "Mean that is subtracted after scaling, one number or one per channel; null for none."
    )
    std: tuple[float, ...] | None = make_field(
        None,
        "Standard deviation to divide by after that, one number or one per channel; null for none.",
    )
    channels_to_back: bool = make_field(False, "True if the channel axis moves to the end.")
    flatten: bool = make_field(False, "True if each sample is flattened to one axis.")
    pad: float | None = make_field(
        None, "Value that fills up shorter sequences; null without padding."
    )
    mask_of: str | None = make_field(
        None, "Input whose padding this mask marks; null if the input is stored, not computed."
    )
    marks_padding: bool = make_field(
        False, "True if the mask is 1 at padding, false if it is 1 at values."
    )


class InputInfo(ReportPart):
    """Samples of one input of the model."""

    sample_shape: tuple[Count | None, ...] | None = make_field(
        None, "Shape of one sample in the model's input; null for an axis of variable length."
    )
    preprocessing_steps: tuple[str, ...] | None = make_field(
        None, "Steps from a stored sample to the input as text, without scale, mean and std."
    )
    preprocessing: InputRecipe | None = make_field(
        None, "All steps from a stored sample to the input, for programs."
    )


class AugmentationInfo(ReportPart):
    """Changes of training images, chosen by the accuracy of the original."""

    moves: tuple[Literal["flip", "shift"], ...] = make_field(
        (), "Changes that training images get at random."
    )
    gap: float | None = make_field(
        None, "Metric of the original on training samples minus that on validation samples."
    )
    flip_drop: float | None = make_field(
        None, "Drop of the original's metric if half of the validation samples are flipped."
    )
    reason: str = make_field("", "Reason for the choice.")


class DataInfo(ReportPart):
    """The data that the network was trained and measured on."""

    path: str | None = make_field(None, "Path of the data; null if they were not read from a path.")
    classes: Count | None = make_field(
        None, "Number of classes; null unless the metric is top-1 accuracy."
    )
    splits: dict[str, Count | None] = Field(
        default_factory=dict, description="Number of samples, by split."
    )
    inputs: dict[str, InputInfo] = Field(
        default_factory=dict, description="Samples and their preprocessing, by input of the model."
    )
    notes: tuple[str, ...] = make_field((), "Notes about the data.")
    augmentation: AugmentationInfo | None = make_field(
        None, 'Changes of training images; null unless data.augment is "auto".'
    )
    class_names: tuple[str, ...] | None = make_field(
        None, "Names of the classes in the order of their numbers; null if classes have no names."
    )


class CustomTaskInfo(ReportPart):
    """The custom task that the network was trained and measured with."""

    name: str = make_field("", "Name of the task file, or of the task object in messages.")
    sha256: str | None = make_field(None, "SHA-256 of the task file; null for a task object.")
    fingerprint: str | None = make_field(
        None, "Fingerprint that the task declares; null if it declares none."
    )

    @property
    def label(self) -> str:
        """Name of the task for people."""
        return f"{self.name} (SHA-256 {self.sha256})" if self.sha256 else self.name


class WeightHistogram(ReportPart):
    """Histogram of |w| in one layer weight before and after pruning."""

    name: str = make_field("", "Name of the layer weight.")
    threshold: NonNegative | None = make_field(None, "Threshold τ on w²; null if it is unknown.")
    edges: tuple[float, ...] = make_field((), "Edges of the bins of |w|.")
    before: tuple[Count, ...] = make_field((), "Number of weights in each bin before pruning.")
    after: tuple[Count, ...] = make_field(
        (), "Number of nonzero weights in each bin after pruning."
    )

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        bins = max(len(self.edges) - 1, 0)
        if not bins == len(self.before) == len(self.after):
            raise ValueError(
                f"before and after must have {bins} values, one for each pair of neighboring edges,"
                f" got {len(self.before)} and {len(self.after)}"
            )
        return self


class WeightScatter(ReportPart):
    """Sampled weights of one layer weight before and after pruning."""

    name: str = make_field("", "Name of the layer weight.")
    threshold: NonNegative | None = make_field(None, "Threshold τ on w²; null if it is unknown.")
    before: tuple[NonNegative, ...] = make_field((), "w² of each sampled weight before pruning.")
    after: tuple[NonNegative, ...] = make_field((), "w² of each sampled weight after pruning.")

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        if len(self.before) != len(self.after):
            raise ValueError(
                f"before and after must have the same length, got {len(self.before)} and "
                f"{len(self.after)}"
            )
        return self
