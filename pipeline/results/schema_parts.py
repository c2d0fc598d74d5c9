"""The parts of a report that stand for themselves: a verdict, an accuracy, the model, the data, the layers."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from ltp_pipeline.results.metric import Figure
from ltp_pipeline.results.values import Inside, NameOfTrail, Number, Pair, Share, Whole
from ltp_pipeline.system.files import DATA
from ltp_pipeline.system.text import printable, shown

MOST_AXES = 64  # of a tensor
OF_FILE = "files."  # begins the key of a reason why a file was not written
STRICT = ConfigDict(
    extra="allow",
    strict=True,
    frozen=True,
    allow_inf_nan=False,
    json_schema_serialization_defaults_required=True,
)


def hashes_of(name: str, sha256: str | None, data_sha256: str | None) -> dict[str, str | None]:
    """A file and its hash, and those of the data beside it, where there are any."""
    return {name: sha256, **({name + DATA: data_sha256} if data_sha256 else {})}


class Part(BaseModel):
    """An object of the report: numbers are numbers, never text."""

    model_config = STRICT


@dataclass(frozen=True)
class Verdict:
    """One gate, judged; `detail` adds what a reader wants to know beside limit and value, `advice` what would help."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    name: str = ""
    limit: int | float | bool | str | None = None
    value: int | float | None = None
    passed: bool = False
    detail: str = ""
    advice: str = ""

    @property
    def is_hash(self) -> bool:
        """Whether a file was judged, by the hash that the report has of it; empty where it has none."""
        return isinstance(self.limit, str)

    @property
    def line(self) -> str:
        """Name, limit and value in one line."""
        if self.is_hash:  # which tells nobody anything
            return printable(f"{self.name}: {self.detail}")
        detail = f" ({self.detail})" if self.detail else ""
        return printable(
            f"{self.name}: limit {shown(self.limit)}, value {shown(self.value)}{detail}"
        )


@dataclass(frozen=True)
class Asked:
    """What a network is for, and how the output that is judged tells its answer."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    kind: Annotated[str | None, Field(description="as [task] kind, or own")] = None
    output: Annotated[str | None, Field(description="null where several are judged")] = None
    axis: Annotated[
        int | None, Field(description="along which the largest number tells the class")
    ] = None
    threshold: Annotated[
        float | None,
        Field(description="above which a number tells class 1, not 0, or that a label is there"),
    ] = None


class Accuracy(Part):
    """Measured in onnxruntime on one split; top1 and top5 are null where it is no classifier."""

    value: Annotated[float | None, Field(description="of the metric")] = None
    top1: Share | None = None
    top5: Share | None = None
    samples: Whole | None = None
    split: str | None = None
    equal_argmax: Annotated[
        Share | None,
        Field(
            description="beside explained: share of samples whose largest output is the original's"
        ),
    ] = None
    beside: Annotated[
        tuple[Figure, ...], Field(description="what else the task tells of the network")
    ] = ()


class Quantization(Part):
    """How the graph of a file was quantised."""

    method: Annotated[
        str,
        Field(
            description="how fixed ranges of activations were chosen; dynamic: they are found at every run"
        ),
    ] = ""
    weight_bits: Whole | None = None
    samples: Annotated[
        Whole | None, Field(description="of the training split, by which ranges were chosen")
    ] = None
    kernels: Annotated[Whole | None, Field(description="in 8 bits")] = None
    left_float: Annotated[
        dict[str, str], Field(description="kernels that are not in 8 bits, and why")
    ] = Field(default_factory=dict)
    validation_drop: Annotated[float | None, Field(description="against the float graph")] = None
    trained_epochs: Annotated[
        Whole, Field(description="that the network was trained in 8 bits, after fine-tuning")
    ] = 0


class SparseKernels(Part):
    """Which layers of a file the library of sparse kernels computes, where it is registered."""

    path: Annotated[str, Field(description="the instructions that it took on this processor")] = ""
    library_sha256: str | None = None
    turned_over: Annotated[tuple[str, ...], Field(description="kernels that it computes")] = ()
    left_dense: Annotated[
        dict[str, str], Field(description="kernels that it does not, and why")
    ] = Field(default_factory=dict)
    ratio: Annotated[
        float | None,
        Field(
            gt=0,
            description="of the dense deploy graph's time, by which the file was written; null: it was not asked",
        ),
    ] = None
    largest_difference: Annotated[
        float | None,
        Field(
            ge=0,
            description="between outputs with and without the library on the test split / the largest output",
        ),
    ] = None


class Tensor(Part):
    """An input or output; a dimension is a number, a symbol's name, or null where nothing is said."""

    name: str = ""
    type: str = ""
    shape: tuple[int | str | None, ...] | None = None


class Weight(Part):
    """A float weight."""

    name: str = ""
    elements: Whole = 0


class Model(Part):
    """The file that was pruned."""

    name: str | None = None
    path: str | None = None
    sha256: str | None = None
    opset: Whole | None = None
    kernels: Whole | None = None
    kernel_elements: Whole | None = None
    float_elements: Annotated[
        Whole | None, Field(description="of all float weights, kernels among them")
    ] = None
    other_weights: Annotated[
        tuple[Weight, ...], Field(description="the largest float weights that are no kernels")
    ] = ()
    data: Annotated[
        tuple[Inside, ...],
        Field(description="files beside it that hold weights; the hash covers them"),
    ] = ()
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()

    @property
    def title(self) -> str:
        """What people call it."""
        return self.name or self.path or "model"


class Layer(Weight):
    """A kernel; weights with w² below the threshold were pruned, in blocks those whose mean w² is."""

    op: str = ""
    shape: Annotated[tuple[Whole, ...], Field(max_length=MOST_AXES)] = ()
    nonzeros: Whole | None = None
    threshold: Number | None = None
    temperature: Number | None = None
    baseline_nonzeros: Whole | None = None
    prunable: bool = True
    reason: str | None = None
    block: Annotated[
        str | None,
        Field(description="4x1: four neighbouring output channels together; null: single weights"),
    ] = None

    @property
    def kept(self) -> float | None:
        """The share of its weights that is left."""
        return (
            self.nonzeros / self.elements if self.elements and self.nonzeros is not None else None
        )

    @property
    def baseline_kept(self) -> float | None:
        """The share that the baseline leaves."""
        return (
            self.baseline_nonzeros / self.elements
            if self.elements and self.baseline_nonzeros is not None
            else None
        )


class Entry(Part):
    """One of the progressively sparser networks; accuracy is of the validation split, before fine-tuning."""

    entry: Whole = 0
    epoch: Whole = 0
    compression: Number | None = None
    accuracy: float | None = None
    file: NameOfTrail = ""
    model_compression: Number | None = None
    sha256: str | None = None
    data_sha256: Annotated[
        str | None, Field(description="of FILE.data, where the weights are outside")
    ] = None
    chosen: bool = False

    @property
    def hashes(self) -> dict[str, str | None]:
        """Its file and hash, and those of the data beside it."""
        return hashes_of(self.file, self.sha256, self.data_sha256)


class Environment(Part):
    """Where it ran."""

    versions: dict[str, str | None] = Field(default_factory=dict)
    platform: str | None = None
    processor: str | None = None
    threads: Whole | None = None
    device: str | None = None
    seed: int | None = None


class StoredSamples(Part):
    """Samples before they are prepared; those that are images, once decoded."""

    type: str | None = None
    shape: Annotated[
        tuple[Whole | None, ...] | None,
        Field(description="null for an axis of which samples have more or less"),
    ] = None
    lengths: Annotated[
        Pair | None, Field(description="shortest and longest, of sequences of uneven length")
    ] = None
    range: Annotated[
        tuple[int | float, int | float] | None, Field(description="smallest and largest value")
    ] = None


class Image(Part):
    """What image files are decoded to; `crop` is the share of the shorter side that the centre keeps."""

    mode: Literal["L", "RGB", "RGBA"] | None = None
    size: Pair | None = None
    crop: float | None = None


class Recipe(Part):
    """From stored samples to the model's input, in this order; `image` where they are files of images."""

    stored: StoredSamples | None = None
    image: Image | None = None
    add_channel: bool = False
    channels_to_front: bool = False
    resize: Pair | None = None
    type: str | None = None
    scale: float | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    channels_to_back: bool = False
    flatten: bool = False
    pad: Annotated[
        float | None, Field(description="what sequences of uneven length are filled up with")
    ] = None
    mask_of: Annotated[
        str | None, Field(description="the input whose values it marks; it is not stored")
    ] = None
    marks_padding: Annotated[
        bool, Field(description="of a mask: it marks where there is no value")
    ] = False


class InputData(Part):
    """What one input of the model was fed with."""

    sample_shape: Annotated[
        tuple[Whole | None, ...] | None, Field(description="of one sample as the model takes it")
    ] = None
    preparation: Annotated[
        tuple[str, ...] | None,
        Field(description="from a stored sample to the input, but for scale, mean and std"),
    ] = None
    recipe: Annotated[
        Recipe | None, Field(description="the same for machines, with scale, mean and std")
    ] = None


class Data(Part):
    """What it was trained and measured on."""

    path: str | None = None
    classes: Whole | None = None
    splits: dict[str, Whole | None] = Field(default_factory=dict)
    inputs: Annotated[dict[str, InputData], Field(description="by the model's inputs")] = Field(
        default_factory=dict
    )
    notes: tuple[str, ...] = ()
    class_names: Annotated[
        tuple[str, ...] | None, Field(description="by number, where the data have names")
    ] = None


class UserTask(Part):
    """The user's own task, by which it was trained and measured."""

    name: Annotated[str, Field(description="of its file, or what messages call the object")] = ""
    sha256: Annotated[str | None, Field(description="of its file; null for an object")] = None
    fingerprint: Annotated[str | None, Field(description="that the task gives itself")] = None

    @property
    def words(self) -> str:
        """What people are told of it."""
        return f"{self.name} (SHA-256 {self.sha256})" if self.sha256 else self.name


class Histogram(Part):
    """Counts of |w| in one kernel before and after; the threshold belongs to w²."""

    name: str = ""
    threshold: Number | None = None
    edges: tuple[float, ...] = ()
    before: tuple[Whole, ...] = ()
    after: tuple[Whole, ...] = ()


class Scatter(Part):
    """w² of the same weights before and after; the threshold belongs to w²."""

    name: str = ""
    threshold: Number | None = None
    before: tuple[Number, ...] = ()
    after: tuple[Number, ...] = ()
