"""Settings of a run: one frozen class for each section of ltp.toml, one field for each key.

A field holds everything about a setting: type, limits, default, description and option. The
command line and the documentation take them from here.
"""

import math
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

from ltp_pipeline.settings.file_names import (
    FAST,
    FORMAT_HELP,
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
    parse_file_limits,
    reject_bool,
    setting,
    to_tuple,
)
from ltp_pipeline.settings.write import format_section_name

TaskKind = Literal["classification", "multilabel", "regression", "segmentation", "distillation"]
DistillOutputs = Literal["auto", "logits", "values"]
OptimizerName = Literal["sgd", "adamw"]
BaselineMode = Literal["auto", "curve", "quick", "gradual", "none"]
BaselineScore = Literal["magnitude", "lamp"]
CostKind = Literal["multiply-adds", "bytes", "latency"]
COST_KINDS: dict[str, CostKind] = {
    "target_macs": "multiply-adds",
    "target_bytes": "bytes",
    "target_latency": "latency",
}  # what a budget counts instead of weights, by its key

MAX_CONFIDENCE = 1 - 1e-6  # closer to 1, intervals are too wide to be useful
PILLOW_MAX_PIXELS = 178_956_970  # Pillow does not open larger images


class Section(BaseModel):
    """A section of ltp.toml. Unknown keys are rejected."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, populate_by_name=True
    )


class InputSettings(Section):
    """Preprocessing from stored samples to an input of the model."""

    scale: Float32Value | None = setting(
        None, "Multiply the stored values by this number. Default: 1."
    )
    mean: Annotated[tuple[Float32Value, ...], BeforeValidator(to_tuple)] = setting(
        (), "Subtract this mean after scaling: one number, or one per channel."
    )
    std: Annotated[
        tuple[Annotated[Float32Value, Field(ge=2.0**-126)], ...], BeforeValidator(to_tuple)
    ] = setting(
        (),
        "Divide by this standard deviation after subtracting the mean: one number, or one per"
        " channel.",
    )
    layout: Literal["NCHW", "NHWC"] = setting(
        "NCHW", "Read the stored samples in this layout. NHWC is transposed."
    )
    resize: tuple[PixelCount, PixelCount] | None = setting(
        None, "Resize images to this height and width, in pixels. Default: the size of the input."
    )
    padding_value: Float32Value = setting(0.0, "Fill up shorter sequences with this value.")


class DataSettings(InputSettings):
    """Path of the samples, and their preprocessing for all inputs and for single inputs."""

    path: Annotated[Path, BeforeValidator(check_path)] | None = setting(
        None,
        "Read samples from this .npz or Parquet file, or from a folder of .npy files, IDX files,"
        " tar shards or classes of images.",
        option="--data",
    )
    inputs: Annotated[dict[str, InputSettings], BeforeValidator(check_input_names)] = setting(
        {}, 'Set the preprocessing of one input, in a section `[data.inputs."NAME"]`.'
    )
    classes: dict[str, ClassIndex] | None = setting(
        None,
        "Map names of class folders, or stored numbers, to class numbers of the model."
        " Default: folders are numbered in the order of their names, and stored numbers are kept.",
    )
    validation_fraction: float = setting(
        0.1,
        "Split off this fraction of the training split if there is no validation split.",
        gt=0,
        lt=1,
    )
    augment: bool | Literal["auto"] = setting(
        False,
        "Crop and flip training images at random. auto shifts and flips them if the original is"
        " much better on training samples than on validation samples.",
    )
    crop: float | None = setting(
        None,
        "Evaluate on the center of each image, cropped to this fraction of its shorter side."
        " Default: images are not cropped.",
        gt=0,
        le=1,
    )
    num_workers: int | None = setting(
        None,
        "Read image files in this number of processes; 0 reads them in threads of the main process."
        " Default: up to 4 for images that do not fit into memory, and 0 outside of Linux.",
        ge=0,
        le=1024,
    )
    max_corrupt_images: NonNegativeInt = setting(
        100, "Replace at most this number of images that cannot be decoded, and at most 10 %."
    )
    max_bytes: PositiveInt | None = setting(
        None,
        "Reject data that unpack to more than this number of bytes."
        " Default: 100 times their size on disk, at least 256 MiB.",
    )
    max_pixels: int = setting(
        80_000_000,
        "Reject images with more than this number of pixels.",
        ge=1,
        le=PILLOW_MAX_PIXELS,
    )

    @field_serializer("inputs")
    def _serialize_inputs(self, inputs: dict[str, InputSettings]) -> dict[str, dict[str, Any]]:
        """Leave out what is not set, so that `for_input` returns the same when it is read again."""
        return {
            name: section.model_dump(mode="json", exclude_unset=True)
            for name, section in inputs.items()
        }

    def section_name(self, name: str, is_only_input: bool) -> str:
        """Return the header of the section where the settings of an input stand, or should."""
        if is_only_input and name not in self.inputs:
            return "[data]"
        return format_section_name("data", "inputs", name)

    def for_input(self, name: str) -> InputSettings:
        """Return the settings of one input; those that its section does not set are shared."""
        values = {key: getattr(self, key) for key in InputSettings.model_fields}
        if name in self.inputs:
            values |= self.inputs[name].model_dump(exclude_unset=True)
        return InputSettings(**values)


class TaskSettings(Section):
    """Task of the network, if it cannot be inferred from labels and outputs."""

    kind: TaskKind | None = setting(
        None, "Train and measure for this kind of task. Default: inferred from the labels."
    )
    output: str | None = setting(None, "Measure the output with this name. Default: inferred.")
    target: str | None = setting(
        None, "Read labels from the column with this name. Default: y, label or labels."
    )
    ignore_index: int = setting(
        -100, "Ignore positions that have this label.", ge=-(2**63), lt=2**63
    )
    loss: Literal["squared_error", "absolute_error"] = setting(
        "squared_error", "Train regression with this loss."
    )


class BudgetSettings(Section):
    """Budget of pruning: compression, sparsity, a cost, or the largest drop of the metric.

    Without a budget and without λ, the largest drop follows from the metric (`default_budget`).
    """

    target_compression: CompressionRatio | None = setting(
        None,
        "Prune to this ratio of elements to nonzeros of all layer weights.",
        option="--target-compression",
        gt=1,
    )
    target_sparsity: UnboundedFraction | None = setting(
        None,
        "Prune to this fraction of zeros in all layer weights.",
        option="--target-sparsity",
        gt=0,
        lt=1,
    )
    target_macs: UnboundedFraction | None = setting(
        None,
        "Prune to this fraction of the multiply-adds of all layer weights.",
        option="--target-macs",
        gt=0,
        lt=1,
    )
    target_bytes: Annotated[float, BeforeValidator(reject_bool)] | None = setting(
        None,
        "Prune until the packed file has at most this number of bytes, or this fraction of the"
        " original's if it is less than 1.",
        option="--target-bytes",
        gt=0,
        lt=2**63,
    )
    target_latency: UnboundedFraction | None = setting(
        None,
        "Prune until the fast file takes this fraction of the original's time, for one sample on"
        " one thread of this machine.",
        option="--target-latency",
        gt=0,
        lt=1,
    )
    accuracy_budget: MetricValue | None = setting(
        None,
        "Prune until the metric drops by at most this on the validation split, in its unit."
        " Default without a target: 0.01 of a fraction, else 1 % of the original's value.",
        option="--accuracy-budget",
        ge=0,
    )

    @property
    def cost_key(self) -> str | None:
        """Key of the budget that counts something else than weights; None without one."""
        for key in COST_KINDS:
            if getattr(self, key) is not None:
                return key
        return None

    def count_bytes(self, original: int) -> int | None:
        """Return target_bytes as a number of bytes; None if it is not set.

        Args:
            original: Bytes of the original file.
        """
        if self.target_bytes is None:
            return None
        return math.floor(self.target_bytes * (original if self.target_bytes < 1 else 1))

    @property
    def requested_compression(self) -> float | None:
        """Target as a compression ratio; None without a target that counts weights."""
        if self.target_sparsity is not None:
            return 1 / (1 - self.target_sparsity)
        return self.target_compression

    @model_validator(mode="after")
    def _check_single_budget(self) -> Self:
        names = [name for name, value in self if value is not None]
        if len(names) > 1:
            raise ValueError(f"{' and '.join(names)} contradict each other; set one of them")
        return self


class TrainSettings(Section):
    """Training, while thresholds are learned and afterwards."""

    epochs: int | None = setting(
        None,
        "Learn thresholds for this number of epochs."
        " Default: 1 to 12, more for a harder target or few samples.",
        option="--epochs",
        ge=1,
        le=10**6,
    )
    finetune_epochs: int | None = setting(
        None,
        "Fine-tune with fixed masks for this number of epochs."
        " Default: half of epochs if that is set, else the rest of 18 or more.",
        option="--finetune-epochs",
        ge=0,
        le=10**6,
    )
    batch_size: int = setting(
        128,
        "Train with this number of samples per step, over all processes.",
        option="--batch-size",
        ge=2,
        lt=2**31,
    )
    optimizer: OptimizerName | None = setting(
        None,
        "Train with this optimizer."
        " Default: adamw for networks with layer normalization or attention, else sgd.",
    )
    lr: PositiveFloat | None = setting(
        None,
        "Train with this highest learning rate. Default: searched from 0.03 with sgd, 1e-4 with"
        " adamw.",
        option="--lr",
    )
    lr_search: bool = setting(
        True,
        "Search for the learning rates of LTP and of the baseline in a few short trainings, if lr"
        " is not set.",
    )
    weight_decay: float | None = setting(
        None,
        "Decay weights at this rate; thresholds never. Default: 0 with sgd, 0.01 with adamw.",
        ge=0,
    )
    warmup_fraction: UnboundedFraction | None = setting(
        None,
        "Raise the learning rate during this fraction of all steps."
        " Default: 0 with sgd, 0.06 with adamw.",
        ge=0,
        lt=1,
    )
    max_grad_norm: float | None = setting(
        None,
        "Clip gradients to this norm; 0 does not clip. Default: 0 with sgd, 1 with adamw.",
        ge=0,
    )
    momentum: float = setting(0.9, "Train with this momentum of sgd, or β₁ of adamw.", ge=0, lt=1)
    label_smoothing: UnboundedFraction = setting(
        0.0, "Spread this fraction of each class label over all classes.", ge=0, lt=1
    )
    distillation_weight: Fraction | None = setting(
        None,
        "Weight the distillation loss by this, and the loss on labels by 1 minus this."
        " Default: 0.5 for most classifiers, else 0.",
        option="--distillation-weight",
    )
    distill_outputs_as: DistillOutputs = setting(
        "auto", "Treat the outputs as logits or as values if there are no labels."
    )
    skip_label_check: bool = setting(
        False,
        "Train even if the original model scores no better than chance.",
        option="--skip-label-check",
    )
    seed: NonNegativeInt = setting(0, "Seed all random numbers with this.", option="--seed")
    device: Literal["auto", "cpu", "cuda", "mps"] = setting(
        "auto", "Train on this device.", option="--device"
    )
    precision: Literal["fp32", "bf16"] = setting(
        "fp32", "Compute forward and backward passes in this precision.", option="--precision"
    )
    threads: int | None = setting(
        None,
        "Compute in this number of threads. Default: the cores that the process may use.",
        option="--threads",
        ge=1,
        le=4096,
    )
    quantization_aware: bool = setting(
        False, "Continue with quantization-aware training for int8 files after fine-tuning."
    )


class MethodSettings(Section):
    """Learned Threshold Pruning. With `lambda`, it follows the procedure of the paper."""

    lambda_: float | None = setting(
        None,
        "Weight the regularizer by this λ of the paper, instead of a budget.",
        alias="lambda",
        ge=0,
    )
    threshold_lr_ratio: PositiveFloat = setting(
        1e-5, "Set the learning rate of thresholds to this ratio of the weights' rate, with lambda."
    )
    t0: PositiveFloat = setting(1e-3, "Set the temperature T0 of the paper, with lambda.")
    t0_end: PositiveFloat | None = setting(
        None, "Change T0 exponentially to this value at the end, with lambda. Default: constant."
    )
    weight_gradient: Literal["approximate", "clamped", "exact"] = setting(
        "approximate",
        "Compute ∂v/∂w by eq. (4), by eq. (20) clamped, or by eq. (10) of the paper, with lambda.",
    )
    regularizer: Literal["l0", "l2", "none"] = setting(
        "l0", "Regularize the number of weights, their squares, or nothing, with lambda."
    )
    block: Literal["4x1"] | None = setting(
        None, "Prune four neighboring output channels together. Default: each weight by itself."
    )
    min_layer_density: float = setting(
        0.002, "Retain at least this fraction of the weights in every layer.", ge=0, lt=1
    )
    min_layer_weights: PositiveInt = setting(
        4, "Retain at least this number of weights in every layer."
    )


class ModelSettings(Section):
    """Import of the model."""

    simplify: Literal["auto", "always", "never"] = setting(
        "auto", "Let onnxsim rewrite the graph: if the import needs it, always or never."
    )
    restore_bn: bool = setting(True, "Restore folded BatchNormalization for training.")


class PruneSettings(Section):
    """Choice of the layer weights that may be pruned, by shell patterns of their names."""

    include: tuple[str, ...] = setting(
        (), "Prune only layer weights whose name matches this pattern.", option="--include"
    )
    exclude: tuple[str, ...] = setting(
        (), "Do not prune layer weights whose name matches this pattern.", option="--exclude"
    )


class ExportSettings(Section):
    """Files to write, and how their graphs are made."""

    formats: Annotated[
        tuple[FormatName, ...], Field(min_length=1), AfterValidator(drop_duplicates)
    ] = setting(("sparse", "packed"), f"Write this file: {FORMAT_HELP}.", option="--export")
    weight_storage: Annotated[
        tuple[RoundedStorage, ...],
        BeforeValidator(drop_exact_storage),
        AfterValidator(drop_duplicates),
    ] = setting(
        (),
        f"Also write {' and '.join(ROUNDABLE_ENCODINGS)} files with rounded weights: fp16, int8.",
        option="--weight-storage",
    )
    best: bool = setting(
        False,
        "Export a baseline instead of LTP's network if it is better on the validation split beyond"
        " noise.",
        option="--best",
    )
    external_data: bool = setting(
        False, "Store large tensors in a second file, as files over 2 GB always do."
    )
    int8_reduce_range: bool = setting(
        True, "Round weights of int8 files to 7 bits; 8 bits may overflow on x86 without VNNI."
    )
    int8_samples: PositiveInt = setting(
        256, "Choose ranges of activations on this number of training samples."
    )
    int8_max_drop: MetricValue | None = setting(
        None,
        "Compute layers of int8 files in float until the metric drops by at most this, in its unit."
        " Default: 0.003 of a fraction.",
        ge=0,
    )
    int8_trials: NonNegativeInt = setting(
        16, "Try at most this number of int8 graphs with layers in float."
    )
    accelerate_min_sparsity: UnboundedFraction | None = setting(
        None,
        "Convert layers from this sparsity on to sparse operators, whether or not they are faster"
        " on this machine. Default: the layers that are faster.",
        ge=0,
        le=1,
    )

    @model_validator(mode="after")
    def _check_weight_storage(self) -> Self:
        can_be_rounded = any(find_format(name).can_be_rounded for name in self.formats)
        if self.weight_storage and not can_be_rounded:
            encodings = " or ".join(ROUNDABLE_ENCODINGS)
            raise ValueError(
                f"weight_storage = {self.weight_storage[0]!r} needs a file with the encoding"
                f" {encodings}; add {encodings} to formats"
            )
        return self

    @property
    def comparison_format(self) -> str:
        """Format by which networks are compared: the first one of the plainest graph."""
        order = list(GRAPHS)
        return min(self.formats, key=lambda name: order.index(find_format(name).graph))

    @property
    def int8_weight_bits(self) -> int:
        """Number of bits of a weight in int8 files."""
        return 7 if self.int8_reduce_range else 8

    @property
    def has_int8(self) -> bool:
        """True if an int8 file is requested."""
        return any(find_format(name).graph == INT8 for name in self.formats)

    @property
    def has_fast(self) -> bool:
        """True if a file with sparse operators is requested."""
        return any(find_format(name).graph == FAST for name in self.formats)

    def has_all_files(self, other: "ExportSettings") -> bool:
        """Return True if these settings write every file that the other settings write.

        Rounded files must be the same ones. The accuracy of a network is that of its worst file,
        which may be a rounded one.
        """
        choices = {"formats", "weight_storage"}  # the other settings change what is in a file
        return (
            set(other.formats) <= set(self.formats)
            and set(other.weight_storage) == set(self.weight_storage)
            and other.model_dump(exclude=choices) == self.model_dump(exclude=choices)
        )


class BaselineSettings(Section):
    """Comparison with magnitude pruning."""

    mode: BaselineMode = setting(
        "auto",
        "Measure global magnitude pruning at one point (quick), at up to four points (curve), at"
        " one point next to gradual magnitude pruning (gradual), or not (none); auto measures the"
        " curve if one training takes less than ten minutes.",
        option="--baseline",
    )
    score: BaselineScore = setting(
        "magnitude", "Compare weights of the baselines by their squares, or by their LAMP scores."
    )
    exclude_classifier: bool = setting(
        False, "Leave the layer weight that computes the measured output unpruned in the baseline."
    )


class LogSettings(Section):
    """Logs in addition to log.jsonl."""

    tensorboard: bool = setting(False, "Write TensorBoard files.")


class GateSettings(Section):
    """Limits of the gates; None sets no limit.

    Values of the metric are in its unit and follow its direction.
    """

    min_accuracy: MetricValue | None = setting(
        None, "Fail if the metric is worse than this, in its unit.", option="--min-accuracy"
    )
    max_drop: MetricValue | None = setting(
        None,
        "Fail if the metric drops by more than this, in its unit; 0.01 is one percentage point.",
        option="--max-drop",
    )
    min_sparsity: UnboundedFraction | None = setting(
        None,
        "Fail if the fraction of zeros in all layer weights is less than this.",
        option="--min-sparsity",
        ge=0,
        lt=1,
    )
    min_compression: CompressionRatio | None = setting(
        None,
        "Fail if the compression of the layer weights is less than this.",
        option="--min-compression",
    )
    min_model_compression: CompressionRatio | None = setting(
        None,
        "Fail if the compression of all float weights is less than this.",
        option="--min-model-compression",
    )
    max_macs: Fraction | None = setting(
        None,
        "Fail if more than this fraction of the multiply-adds of all layer weights is left.",
        option="--max-macs",
    )
    beat_baseline: bool = setting(
        False,
        "Fail if the metric is not better than that of global magnitude pruning.",
        option="--beat-baseline",
    )
    baseline_margin: MetricValue | None = setting(
        None,
        "Fail if the metric is better than the baseline's by less than this, in its unit.",
        option="--baseline-margin",
        ge=0,
    )
    min_gain: PositiveFloat | None = setting(
        None,
        "Fail if the compression divided by that of global magnitude pruning at equal accuracy is"
        " less than this.",
        option="--min-gain",
    )
    max_bytes: Annotated[
        PositiveInt | dict[FormatName, PositiveInt] | None, BeforeValidator(parse_file_limits)
    ] = setting(
        None,
        "Fail if the smallest file, or the file of this name, has more bytes than this.",
        option="--max-bytes",
    )
    max_latency_ratio: Annotated[
        PositiveFloat | dict[FormatName, PositiveFloat] | None, BeforeValidator(parse_file_limits)
    ] = setting(
        None,
        "Fail if the slowest file, or the file of this name, takes more than this fraction of the"
        " original's time.",
        option="--max-latency-ratio",
    )
    min_layer_density: Fraction | None = setting(
        None,
        "Fail if a layer retains less than this fraction of its weights.",
        option="--min-layer-density",
    )
    confidence: UnboundedFraction | None = setting(
        None,
        "Compare the unfavorable end of the interval at this confidence, for example 0.95, in"
        " gates on the metric.",
        option="--confidence",
        gt=0,
        le=MAX_CONFIDENCE,
    )

    @model_validator(mode="after")
    def _check_contradictions(self) -> Self:
        if self.baseline_margin is not None and not self.beat_baseline:
            raise ValueError("baseline_margin needs beat_baseline; set both")
        max_sparsity = 1 - (self.min_layer_density or 0)
        if self.min_sparsity is not None and self.min_sparsity > max_sparsity:
            raise ValueError("min_sparsity and min_layer_density contradict each other; lower one")
        if self.min_compression is not None and self.min_compression * (1 - max_sparsity) > 1:
            raise ValueError(
                "min_compression and min_layer_density contradict each other; lower one"
            )
        # Every layer keeps this fraction of its multiply-adds at least.
        if self.max_macs is not None and self.max_macs < 1 - max_sparsity:
            raise ValueError(
                "max_macs and min_layer_density contradict each other; raise max_macs or lower"
                " min_layer_density"
            )
        return self


class Settings(Section):
    """All settings of a run."""

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
        """Mode of the baseline; a gate on the gain needs the curve.

        The curve compares numbers of weights, so a budget of another cost has only one point.
        """
        mode = self.baseline.mode
        if mode == "auto" and self.budget.cost_key is not None:
            return "quick"
        return "curve" if mode == "auto" and self.gates.min_gain is not None else mode

    @property
    def has_default_budget(self) -> bool:
        """True if neither a budget nor λ is set."""
        return self.method.lambda_ is None and self.budget == BudgetSettings()
