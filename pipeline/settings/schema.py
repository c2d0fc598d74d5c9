"""Settings: one frozen class per section of ltp.toml, unknown keys refused."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_serializer,
    model_validator,
)

from ltp_pipeline.errors import InputError
from ltp_pipeline.settings.file_names import (
    FAST,
    GRAPHS,
    INT8,
    ROUNDABLE_ENCODINGS,
    RoundedStorage,
    find_format,
)
from ltp_pipeline.settings.types import (
    ClassIndex,
    CompressionRatio,
    Float32Value,
    FormatName,
    Fraction,
    MetricValue,
    NonNegativeInt,
    PixelCount,
    PositiveFloat,
    PositiveInt,
    UnboundedFraction,
    check_input_names,
    check_path,
    drop_duplicates,
    drop_exact_storage,
    input_section,
    parse_file_limits,
    to_tuple,
)

DistillOutputs = Literal["auto", "logits", "values"]  # what outputs are, where there are no labels
BaselineMode = Literal["auto", "curve", "quick", "none"]  # how much of the baseline is measured
TaskKind = Literal["classification", "multilabel", "regression", "segmentation", "distillation"]
OptimizerName = Literal["sgd", "adamw"]
# Settings of an export that change its graphs.
GRAPH_SETTINGS = (
    "int8_reduce_range",
    "int8_samples",
    "int8_max_drop",
    "int8_trials",
    "accelerate_min_sparsity",
)
MAX_CONFIDENCE = 1 - 1e-6  # confidence; nearer to 1 an interval says nothing
EXCLUDE_CLASSIFIER = False  # which of the two baselines is the default


class Section(BaseModel):
    """A section of ltp.toml."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, populate_by_name=True
    )


class InputSettings(Section):
    """How a stored sample becomes an input of the model: x * scale, then (x - mean) / std; ragged ones are padded."""

    scale: Float32Value | None = None
    mean: Annotated[tuple[Float32Value, ...], BeforeValidator(to_tuple)] = ()
    std: Annotated[
        tuple[Annotated[Float32Value, Field(ge=2.0**-126)], ...], BeforeValidator(to_tuple)
    ] = ()
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    resize: tuple[PixelCount, PixelCount] | None = None
    padding_value: Float32Value = 0.0


class DataSettings(InputSettings):
    """Where the samples are; how they become inputs, for all of these, and for each by its name."""

    path: Annotated[Path, BeforeValidator(check_path)] | None = None
    inputs: Annotated[dict[str, InputSettings], BeforeValidator(check_input_names)] = Field(
        default_factory=dict
    )
    classes: dict[str, ClassIndex] | None = None
    validation_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.1
    augment: bool = False
    crop: Annotated[float, Field(gt=0, le=1)] | None = None
    num_workers: Annotated[int, Field(ge=0, le=1024)] = 0
    max_corrupt_images: NonNegativeInt = 100
    max_bytes: PositiveInt | None = None  # that data may hold; None: by rule (data/guards.py)
    max_pixels: Annotated[int, Field(ge=1, le=178_956_970)] = (
        80_000_000  # of an image; Pillow opens no larger ones
    )

    @field_serializer("inputs")
    def _as_given(self, inputs: dict[str, InputSettings]) -> dict[str, dict[str, Any]]:
        """What is said of an input and no more: the rest is what holds for all, also when it is read again."""
        return {
            name: own.model_dump(mode="json", exclude_unset=True) for name, own in inputs.items()
        }

    def section_name(self, name: str, alone: bool) -> str:
        """Where the settings of an input stand, or would; an input that is alone needs no section of its own."""
        return "[data]" if alone and name not in self.inputs else input_section(name)

    def for_input(self, name: str) -> InputSettings:
        """Those of one input: its own, and for the rest those of all."""
        shared = {key: getattr(self, key) for key in InputSettings.model_fields}
        own = self.inputs.get(name)
        return InputSettings(
            **{**shared, **({} if own is None else own.model_dump(exclude_unset=True))}
        )


class TaskSettings(Section):
    """What the network is for, where labels and outputs do not tell: which output is meant, which column the target."""

    kind: TaskKind | None = None
    output: str | None = None
    target: str | None = None
    ignore_index: Annotated[int, Field(ge=-(2**63), lt=2**63)] = -100
    loss: Literal["squared_error", "absolute_error"] = "squared_error"  # that regression trains by


class BudgetSettings(Section):
    """What is asked for: one of a compression, a sparsity, or the largest drop, in the metric's unit.

    With none of them, and without λ, it is a drop that depends on the metric (Metric.default_budget).
    """

    target_compression: Annotated[CompressionRatio, Field(gt=1)] | None = None
    target_sparsity: Annotated[UnboundedFraction, Field(gt=0, lt=1)] | None = None
    accuracy_budget: Annotated[MetricValue, Field(ge=0)] | None = None

    @property
    def requested_compression(self) -> float | None:
        """Target as a compression; None when there is none."""
        return (
            1 / (1 - self.target_sparsity)
            if self.target_sparsity is not None
            else self.target_compression
        )

    @model_validator(mode="after")
    def _one_only(self) -> Self:
        given = [name for name, value in self if value is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} contradict each other; give one")
        return self


class TrainSettings(Section):
    """How the network is trained while thresholds are learned and afterwards."""

    epochs: Annotated[int, Field(ge=1, le=10**6)] | None = None  # None: by the schedule
    finetune_epochs: Annotated[int, Field(ge=0, le=10**6)] | None = None
    batch_size: Annotated[int, Field(ge=2, lt=2**31)] = 128
    optimizer: OptimizerName | None = None  # None: by the network
    lr: PositiveFloat | None = None  # None: the optimizer's usual, as for the next three
    weight_decay: Annotated[float, Field(ge=0)] | None = None
    warmup_fraction: Annotated[UnboundedFraction, Field(ge=0, lt=1)] | None = None
    max_grad_norm: Annotated[float, Field(ge=0)] | None = None
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    label_smoothing: Annotated[UnboundedFraction, Field(ge=0, lt=1)] = 0.0
    distillation_weight: Fraction | None = None  # None: by rule
    distill_outputs_as: DistillOutputs = "auto"
    skip_label_check: bool = False
    seed: NonNegativeInt = 0
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    precision: Literal["fp32", "bf16"] = "fp32"
    threads: Annotated[int, Field(ge=1, le=4096)] | None = None
    quantization_aware: bool = False  # train int8 files in 8 bits, after fine-tuning


class MethodSettings(Section):
    """Learned Threshold Pruning itself; with `lambda` given, the paper's own procedure."""

    lambda_: Annotated[float | None, Field(alias="lambda", ge=0)] = None
    threshold_lr_ratio: PositiveFloat = 1e-5
    t0: PositiveFloat = 1e-3
    t0_end: PositiveFloat | None = None
    weight_gradient: Literal["approximate", "clamped", "exact"] = "approximate"
    regularizer: Literal["l0", "l2", "none"] = "l0"
    block: Literal["4x1"] | None = None  # weights that are pruned together; None: each by itself
    min_layer_density: Annotated[float, Field(ge=0, lt=1)] = 0.002
    min_layer_weights: PositiveInt = 4


class ModelSettings(Section):
    """How the model is read: when onnxsim may rewrite the graph, and whether folded norms come back for training."""

    simplify: Literal["auto", "always", "never"] = "auto"
    restore_bn: bool = True


class PruneSettings(Section):
    """Which kernels may be pruned: shell-style patterns of initializer names."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


class ExportSettings(Section):
    """Which files are written: `formats` names graph and encoding, `weight_storage` adds packed files with rounded values.

    A file holds all its tensors, unless it is over 2 GB or `external_data` asks for a second one.
    """

    formats: Annotated[
        tuple[FormatName, ...], Field(min_length=1), AfterValidator(drop_duplicates)
    ] = (
        "sparse",
        "packed",
    )
    weight_storage: Annotated[
        tuple[RoundedStorage, ...],
        BeforeValidator(drop_exact_storage),
        AfterValidator(drop_duplicates),
    ] = ()
    external_data: bool = False
    int8_reduce_range: bool = True  # 7 bits for weights; 8 may overflow on x86 without VNNI
    int8_samples: PositiveInt = (
        256  # of the training split, by which ranges of activations are chosen
    )
    int8_max_drop: Annotated[MetricValue, Field(ge=0)] | None = None  # None: 0.3 points of a share
    int8_trials: NonNegativeInt = 16  # of graphs in which layers stay float
    # The sparsity from which layers of the fast graph are turned over; None: where that is faster on this machine.
    accelerate_min_sparsity: Annotated[UnboundedFraction, Field(ge=0, le=1)] | None = None

    @model_validator(mode="after")
    def _rounded_where_possible(self) -> Self:
        if self.weight_storage and not any(
            find_format(name).can_be_rounded for name in self.formats
        ):
            able = " or ".join(ROUNDABLE_ENCODINGS)
            raise ValueError(
                f"weight_storage = {self.weight_storage[0]!r} is for {able} files; add {able} to the formats"
            )
        return self

    @property
    def comparison_format(self) -> str:
        """The format by which networks are compared: the first of the plainest graph; int8 only where it is alone."""
        order = list(GRAPHS)
        return min(self.formats, key=lambda name: order.index(find_format(name).graph))

    @property
    def int8_weight_bits(self) -> int:
        """Number of bits of a weight in int8 files."""
        return 7 if self.int8_reduce_range else 8

    @property
    def has_int8(self) -> bool:
        """Whether any file computes in 8 bits."""
        return any(find_format(name).graph == INT8 for name in self.formats)

    @property
    def has_fast(self) -> bool:
        """Whether any file uses the sparse kernels."""
        return any(find_format(name).graph == FAST for name in self.formats)

    def covers(self, other: "ExportSettings") -> bool:
        """Whether these files are all that the other settings ask for, or more.

        Rounded ones must be the same: accuracy is that of the weakest file, which may be a rounded one.
        """
        return (
            set(other.formats) <= set(self.formats)
            and set(other.weight_storage) == set(self.weight_storage)
            and other.external_data == self.external_data
            and all(getattr(other, key) == getattr(self, key) for key in GRAPH_SETTINGS)
        )


class BaselineSettings(Section):
    """How much of global magnitude pruning is measured for comparison.

    `quick` is one point, at LTP's compression; `curve` adds points until LTP's accuracy lies between two of them;
    `auto` is the curve where one training takes less than ten minutes, else quick.
    """

    mode: BaselineMode = "auto"
    exclude_classifier: bool = (
        EXCLUDE_CLASSIFIER  # leave the kernel that makes a judged output unpruned
    )


class LogSettings(Section):
    """Where progress is written beside log.jsonl."""

    tensorboard: bool = False


class GateSettings(Section):
    """Limits below which a result does not ship; None asks for nothing.

    `min_accuracy`, `max_drop` and `baseline_margin` are in the metric's unit and follow its direction. `max_bytes` and
    `max_latency_ratio` hold for the smallest and the slowest file, or by name for single files.
    """

    min_accuracy: MetricValue | None = None
    max_drop: MetricValue | None = None
    min_sparsity: Annotated[UnboundedFraction, Field(ge=0, lt=1)] | None = None
    min_compression: CompressionRatio | None = None
    min_model_compression: CompressionRatio | None = None
    beat_baseline: bool = False
    baseline_margin: Annotated[MetricValue, Field(ge=0)] | None = None
    min_gain: PositiveFloat | None = None
    max_bytes: Annotated[
        PositiveInt | dict[FormatName, PositiveInt] | None, BeforeValidator(parse_file_limits)
    ] = None
    max_latency_ratio: Annotated[
        PositiveFloat | dict[FormatName, PositiveFloat] | None, BeforeValidator(parse_file_limits)
    ] = None
    min_layer_density: Fraction | None = None
    confidence: Annotated[UnboundedFraction, Field(gt=0, le=MAX_CONFIDENCE)] | None = None

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.baseline_margin is not None and not self.beat_baseline:
            raise ValueError(
                "baseline_margin says how far to beat the baseline; give beat_baseline with it"
            )
        most = 1 - (self.min_layer_density or 0)
        if self.min_sparsity is not None and self.min_sparsity > most:
            raise ValueError(
                "min_sparsity and min_layer_density contradict each other: no result can keep both"
            )
        if self.min_compression is not None and self.min_compression * (1 - most) > 1:
            raise ValueError(
                "min_compression and min_layer_density contradict each other: no result can keep both"
            )
        return self


class Settings(Section):
    """Everything a run depends on."""

    data: DataSettings = DataSettings()
    task: TaskSettings = TaskSettings()
    budget: BudgetSettings = BudgetSettings()
    train: TrainSettings = TrainSettings()
    method: MethodSettings = MethodSettings()
    model: ModelSettings = ModelSettings()
    prune: PruneSettings = PruneSettings()
    export: ExportSettings = ExportSettings()
    baseline: BaselineSettings = BaselineSettings()
    log: LogSettings = LogSettings()
    gates: GateSettings = GateSettings()

    @property
    def requested_baseline(self) -> BaselineMode:
        """How much of the baseline is asked for: a gate on the gain asks for the curve."""
        mode = self.baseline.mode
        return "curve" if mode == "auto" and self.gates.min_gain is not None else mode

    @property
    def has_default_budget(self) -> bool:
        """Whether nothing was said of the outcome."""
        return self.method.lambda_ is None and self.budget == BudgetSettings()


def check_contradictions(settings: Settings) -> None:
    """Refuse what the budget, the missing baseline or a missing file makes impossible, before anything is trained."""
    gates, wanted = settings.gates, settings.budget.requested_compression
    check_baseline_mode(settings)
    _check_quantization(settings)
    least = max(gates.min_compression or 1.0, 1 / (1 - (gates.min_sparsity or 0.0)))
    if wanted is not None and wanted < least * (1 - 1e-9):
        raise InputError(
            f"the budget asks for {wanted:g}×, and gates.min_compression or gates.min_sparsity for {least:g}×",
            "ask for more, or lower the gate",
        )


def _check_quantization(settings: Settings) -> None:
    """Refuse to train in 8 bits where no file is in 8 bits, or nothing is trained after pruning."""
    if not settings.train.quantization_aware:
        return
    if not settings.export.has_int8:
        what = "train.quantization_aware trains for int8 files, and none is asked for"
        raise InputError(
            what, "add int8 to --export (export.formats), or leave train.quantization_aware out"
        )
    if settings.train.finetune_epochs == 0:
        what = "train.quantization_aware trains for half of the epochs of fine-tuning, and train.finetune_epochs is 0"
        raise InputError(what, "give some, or leave train.quantization_aware out")


def check_baseline_mode(settings: Settings) -> None:
    """Refuse a gate on the baseline where it is not to be measured, or not as far as the gate needs."""
    gates, mode = settings.gates, settings.baseline.mode
    if gates.beat_baseline and mode == "none":
        what = 'gates.beat_baseline asks to beat the baseline, and baseline.mode is "none"'
        raise InputError(what, "drop one of the two")
    if gates.min_gain is not None and mode in ("quick", "none"):
        what = f'gates.min_gain needs the curve of the baseline, and baseline.mode is "{mode}"'
        raise InputError(what, "drop the gate, or ask for the curve: --baseline curve")


def check_budget(settings: Settings) -> None:
    """Refuse what cannot stand beside λ: a budget, and blocks."""
    if settings.method.lambda_ is not None and settings.method.block is not None:
        raise InputError(
            "method.block and method.lambda contradict each other: the paper's equations are about single weights",
            "give a budget instead of lambda, or leave block out",
        )
    if settings.method.lambda_ is not None and settings.budget != BudgetSettings():
        raise InputError(
            "a budget and method.lambda contradict each other",
            "give one: lambda decides the outcome",
        )
