"""Settings: one frozen class per section of ltp.toml, unknown keys refused.

Later sources win: defaults < preset < ltp.toml < options of the command line.
"""

import json
import os
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_serializer,
    model_validator,
)

from ltp_pipeline.errors import InputError
from ltp_pipeline.files import AnyPath, read_text
from ltp_pipeline.formats import EXACT, FAST, GRAPHS, INT8, ROUNDED, Rounding, find_format
from ltp_pipeline.strict_toml import MOST_BYTES, parse_toml

LONGEST_LINE = 1000  # characters that are looked through for what is wrong in them
CONFIG_NAME = "ltp.toml"
Imitate = Literal["auto", "scores", "values"]  # what outputs are, where there are no labels
Mode = Literal["auto", "curve", "quick", "none"]  # how much of the baseline is measured
TaskKind = Literal["classify", "multilabel", "regress", "segment", "imitate"]
OptimizerName = Literal["sgd", "adamw"]
# Settings of an export that change its graphs.
GRAPH_KEYS = ("int8_weights", "int8_samples", "int8_max_drop", "int8_trials", "fast_from")
SUREST = 1 - 1e-6  # confidence; nearer to 1 an interval says nothing
SPARE_CLASSIFIER = False  # which of the two baselines is the default


def _no_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a number is wanted, not true or false")
    return value


def _no_percent(value: Any) -> Any:
    if isinstance(_no_bool(value), int | float) and abs(value) > 1:
        raise ValueError(f"{value:g} is no fraction; if {value:g} % is meant, write {value / 100:g}")
    return value


def _path(value: Any) -> Any:
    path = os.fspath(value) if isinstance(value, os.PathLike) else value  # pydantic knows no other kind than Path
    if isinstance(path, str) and "\0" in path:
        raise ValueError("no path has a zero byte in it")
    if isinstance(path, str) and any("\ud800" <= sign <= "\udfff" for sign in path):  # as Python reads other bytes
        raise ValueError("its name is no UTF-8, and no report could hold it; rename it")
    return path


def _several(value: Any) -> Any:
    return (value,) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _quoted(value: Any) -> Any:
    """Refuse a section inside the section of an input: TOML reads it into a name with dots that is not quoted."""
    for name, own in value.items() if isinstance(value, Mapping) else ():
        whole, inner = name, own
        while isinstance(inner, Mapping):
            key, inner = next(((key, part) for key, part in inner.items() if isinstance(part, Mapping)), ("", None))
            whole = f"{whole}.{key}" if inner is not None else whole
        if whole != name:
            raise ValueError(f"a name with dots must be quoted: {_input_section(whole)}")
    return value


def _input_section(name: str) -> str:
    return f"[data.inputs.{json.dumps(name, ensure_ascii=False)}]"


def _rounded(value: Any) -> Any:
    kinds = (value,) if isinstance(value, str) else value
    return tuple(k for k in kinds if k != EXACT) if isinstance(kinds, list | tuple) else value


def _by_name(value: Any) -> Any:
    """Limits as the command line has them: a number, or `int8=0.5` and more of these."""
    if not isinstance(value, list | tuple):
        return _no_bool(value)
    named = [str(one).rpartition("=") for one in value]
    if len(named) == 1 and not named[0][1]:
        return named[0][2]
    if not all(name and equal for name, equal, _ in named):
        raise ValueError("give one limit for all files, or a limit for each by its name, such as int8=0.5")
    return {name: limit for name, _, limit in named}


def _full_name(value: str) -> str:
    return find_format(value).name


def _once(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))


FormatName = Annotated[str, AfterValidator(_full_name)]
Share = Annotated[float, BeforeValidator(_no_percent)]
Fraction = Annotated[Share, Field(ge=0, le=1)]
InMetric = Annotated[float, BeforeValidator(_no_bool)]  # in the metric's unit; limits.py tells more once that is known
Positive = Annotated[float, Field(gt=0)]
Single = Annotated[float, Field(ge=-(2.0**127), le=2.0**127)]  # samples are prepared in single precision
Compression = Annotated[float, Field(ge=1, lt=2**63)]  # no model has more weights
Count = Annotated[int, Field(ge=1, lt=2**63)]
Natural = Annotated[int, Field(ge=0, lt=2**63)]
Pixels = Annotated[int, Field(ge=1, le=2**16)]
ClassNumber = Annotated[int, Field(ge=0, lt=10**6)]


class Section(BaseModel):
    """A section of ltp.toml."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, populate_by_name=True)


class InputSettings(Section):
    """How a stored sample becomes an input of the model: x * scale, then (x - mean) / std; ragged ones are padded."""

    scale: Single | None = None
    mean: Annotated[tuple[Single, ...], BeforeValidator(_several)] = ()
    std: Annotated[tuple[Annotated[Single, Field(ge=2.0**-126)], ...], BeforeValidator(_several)] = ()
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    resize: tuple[Pixels, Pixels] | None = None
    pad: Single = 0.0


class DataSettings(InputSettings):
    """Where the samples are; how they become inputs, for all of these, and for each by its name."""

    path: Annotated[Path, BeforeValidator(_path)] | None = None
    inputs: Annotated[dict[str, InputSettings], BeforeValidator(_quoted)] = Field(default_factory=dict)
    classes: dict[str, ClassNumber] | None = None
    validation_share: Annotated[float, Field(gt=0, lt=1)] = 0.1
    augment: bool = False
    crop: Annotated[float, Field(gt=0, le=1)] | None = None
    workers: Annotated[int, Field(ge=0, le=1024)] = 0
    max_broken: Natural = 100
    max_bytes: Count | None = None  # that data may hold; None: by rule (data/guards.py)
    max_pixels: Annotated[int, Field(ge=1, le=178_956_970)] = 80_000_000  # of an image; Pillow opens no larger ones

    @field_serializer("inputs")
    def _as_given(self, inputs: dict[str, InputSettings]) -> dict[str, dict[str, Any]]:
        """What is said of an input and no more: the rest is what holds for all, also when it is read again."""
        return {name: own.model_dump(mode="json", exclude_unset=True) for name, own in inputs.items()}

    def section_of(self, name: str, alone: bool) -> str:
        """Where the settings of an input stand, or would; an input that is alone needs no section of its own."""
        return "[data]" if alone and name not in self.inputs else _input_section(name)

    def of(self, name: str) -> InputSettings:
        """Those of one input: its own, and for the rest those of all."""
        shared = {key: getattr(self, key) for key in InputSettings.model_fields}
        own = self.inputs.get(name)
        return InputSettings(**{**shared, **({} if own is None else own.model_dump(exclude_unset=True))})


class TaskSettings(Section):
    """What the network is for, where labels and outputs do not tell: which output is meant, which column the target."""

    kind: TaskKind | None = None
    output: str | None = None
    target: str | None = None
    ignored_label: Annotated[int, Field(ge=-(2**63), lt=2**63)] = -100
    error: Literal["squared", "absolute"] = "squared"  # that regression trains by


class BudgetSettings(Section):
    """What is asked for: one of a compression, a sparsity, or the largest drop, in the metric's unit.

    With none of them, and without λ, it is a drop that depends on the metric (Metric.default_budget).
    """

    target_compression: Annotated[Compression, Field(gt=1)] | None = None
    target_sparsity: Annotated[Share, Field(gt=0, lt=1)] | None = None
    accuracy_budget: Annotated[InMetric, Field(ge=0)] | None = None

    @property
    def wanted_compression(self) -> float | None:
        """Target as a compression; None when there is none."""
        return 1 / (1 - self.target_sparsity) if self.target_sparsity is not None else self.target_compression

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
    lr: Positive | None = None  # None: the optimizer's usual, as for the next three
    weight_decay: Annotated[float, Field(ge=0)] | None = None
    warmup: Annotated[Share, Field(ge=0, lt=1)] | None = None
    clip: Annotated[float, Field(ge=0)] | None = None
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    label_smoothing: Annotated[Share, Field(ge=0, lt=1)] = 0.0
    distill: Fraction | None = None  # None: by rule
    imitate: Imitate = "auto"
    trust_labels: bool = False
    seed: Natural = 0
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    precision: Literal["fp32", "bf16"] = "fp32"
    threads: Annotated[int, Field(ge=1, le=4096)] | None = None
    quantize: bool = False  # train int8 files in 8 bits, after fine-tuning


class MethodSettings(Section):
    """Learned Threshold Pruning itself; with `lambda` given, the paper's own procedure."""

    lambda_: Annotated[float | None, Field(alias="lambda", ge=0)] = None
    threshold_lr_ratio: Positive = 1e-5
    t0: Positive = 1e-3
    t0_end: Positive | None = None
    weight_gradient: Literal["4", "20", "10"] = "4"
    regulariser: Literal["l0", "l2", "none"] = "l0"
    block: Literal["4x1"] | None = None  # weights that are pruned together; None: each by itself
    floor: Annotated[float, Field(ge=0, lt=1)] = 0.002
    floor_weights: Count = 4


class ModelSettings(Section):
    """How the model is read: when onnxsim may rewrite the graph, and whether folded norms come back for training."""

    simplify: Literal["auto", "always", "never"] = "auto"
    restore_bn: bool = True


class KernelSettings(Section):
    """Which kernels may be pruned: shell-style patterns of initializer names."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


class ExportSettings(Section):
    """Which files are written: `formats` names graph and encoding, `values` adds packed files with rounded values.

    A file holds all its tensors, unless it is over 2 GB or `external_data` asks for a second one.
    """

    formats: Annotated[tuple[FormatName, ...], Field(min_length=1), AfterValidator(_once)] = ("sparse", "packed")
    values: Annotated[tuple[Rounding, ...], BeforeValidator(_rounded), AfterValidator(_once)] = ()
    external_data: bool = False
    int8_weights: Literal[7, 8] = 7  # bits; 8 may overflow on x86 without VNNI
    int8_samples: Count = 256  # of the training split, by which ranges of activations are chosen
    int8_max_drop: Annotated[InMetric, Field(ge=0)] | None = None  # None: 0.3 points of a share
    int8_trials: Natural = 16  # of graphs in which layers stay float
    # The sparsity from which layers of the fast graph are turned over; None: where that is faster on this machine.
    fast_from: Annotated[Share, Field(ge=0, le=1)] | None = None

    @model_validator(mode="after")
    def _rounded_where_possible(self) -> Self:
        if self.values and not any(find_format(name).can_be_rounded for name in self.formats):
            able = " or ".join(ROUNDED)
            raise ValueError(f"values = {self.values[0]!r} is for {able} files; add {able} to the formats")
        return self

    @property
    def compared(self) -> str:
        """The format by which networks are compared: the first of the plainest graph; int8 only where it is alone."""
        order = list(GRAPHS)
        return min(self.formats, key=lambda name: order.index(find_format(name).graph))

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
            and set(other.values) == set(self.values)
            and other.external_data == self.external_data
            and all(getattr(other, key) == getattr(self, key) for key in GRAPH_KEYS)
        )


class BaselineSettings(Section):
    """How much of global magnitude pruning is measured for comparison.

    `quick` is one point, at LTP's compression; `curve` adds points until LTP's accuracy lies between two of them;
    `auto` is the curve where one training takes less than ten minutes, else quick.
    """

    mode: Mode = "auto"
    spare_classifier: bool = SPARE_CLASSIFIER  # leave the kernel that makes a judged output unpruned


class LogSettings(Section):
    """Where progress is written beside log.jsonl."""

    tensorboard: bool = False


class GateSettings(Section):
    """Limits below which a result does not ship; None asks for nothing.

    `min_accuracy`, `max_drop` and `by` are in the metric's unit and follow its direction. `max_bytes` and
    `max_latency_ratio` hold for the smallest and the slowest file, or by name for single files.
    """

    min_accuracy: InMetric | None = None
    max_drop: InMetric | None = None
    min_sparsity: Annotated[Share, Field(ge=0, lt=1)] | None = None
    min_compression: Compression | None = None
    min_model_compression: Compression | None = None
    beat_baseline: bool = False
    by: Annotated[InMetric, Field(ge=0)] | None = None
    min_gain: Positive | None = None
    max_bytes: Annotated[Count | dict[FormatName, Count] | None, BeforeValidator(_by_name)] = None
    max_latency_ratio: Annotated[Positive | dict[FormatName, Positive] | None, BeforeValidator(_by_name)] = None
    per_layer_floor: Fraction | None = None
    confidence: Annotated[Share, Field(gt=0, le=SUREST)] | None = None

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.by is not None and not self.beat_baseline:
            raise ValueError("by says how far to beat the baseline; give beat_baseline with it")
        most = 1 - (self.per_layer_floor or 0)
        if self.min_sparsity is not None and self.min_sparsity > most:
            raise ValueError("min_sparsity and per_layer_floor contradict each other: no result can keep both")
        if self.min_compression is not None and self.min_compression * (1 - most) > 1:
            raise ValueError("min_compression and per_layer_floor contradict each other: no result can keep both")
        return self


class Settings(Section):
    """Everything a run depends on."""

    data: DataSettings = DataSettings()
    task: TaskSettings = TaskSettings()
    budget: BudgetSettings = BudgetSettings()
    train: TrainSettings = TrainSettings()
    method: MethodSettings = MethodSettings()
    model: ModelSettings = ModelSettings()
    kernels: KernelSettings = KernelSettings()
    export: ExportSettings = ExportSettings()
    baseline: BaselineSettings = BaselineSettings()
    log: LogSettings = LogSettings()
    gates: GateSettings = GateSettings()

    @property
    def wanted_baseline(self) -> Mode:
        """How much of the baseline is asked for: a gate on the gain asks for the curve."""
        mode = self.baseline.mode
        return "curve" if mode == "auto" and self.gates.min_gain is not None else mode

    @property
    def wants_default_budget(self) -> bool:
        """Whether nothing was said of the outcome."""
        return self.method.lambda_ is None and self.budget == BudgetSettings()


def check_reachable(settings: Settings) -> None:
    """Refuse what the budget, the missing baseline or a missing file makes impossible, before anything is trained."""
    gates, wanted = settings.gates, settings.budget.wanted_compression
    require_baseline(settings)
    _require_int8(settings)
    least = max(gates.min_compression or 1.0, 1 / (1 - (gates.min_sparsity or 0.0)))
    if wanted is not None and wanted < least * (1 - 1e-9):
        raise InputError(
            f"the budget asks for {wanted:g}×, and gates.min_compression or gates.min_sparsity for {least:g}×",
            "ask for more, or lower the gate",
        )


def _require_int8(settings: Settings) -> None:
    """Refuse to train in 8 bits where no file is in 8 bits, or nothing is trained after pruning."""
    if not settings.train.quantize:
        return
    if not settings.export.has_int8:
        what = "train.quantize trains for int8 files, and none is asked for"
        raise InputError(what, "add int8 to --export (export.formats), or leave train.quantize out")
    if settings.train.finetune_epochs == 0:
        what = "train.quantize trains for half of the epochs of fine-tuning, and train.finetune_epochs is 0"
        raise InputError(what, "give some, or leave train.quantize out")


def require_baseline(settings: Settings) -> None:
    """Refuse a gate on the baseline where it is not to be measured, or not as far as the gate needs."""
    gates, mode = settings.gates, settings.baseline.mode
    if gates.beat_baseline and mode == "none":
        what = 'gates.beat_baseline asks to beat the baseline, and baseline.mode is "none"'
        raise InputError(what, "drop one of the two")
    if gates.min_gain is not None and mode in ("quick", "none"):
        what = f'gates.min_gain needs the curve of the baseline, and baseline.mode is "{mode}"'
        raise InputError(what, "drop the gate, or ask for the curve: --baseline curve")


_SECTIONS: dict[str, type[Section]] = {name: type(field.default) for name, field in Settings.model_fields.items()}


def load_settings(
    model: AnyPath | None,
    config: AnyPath | None = None,
    preset: str | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> Settings:
    """Merge preset, ltp.toml (given, or beside the model) and options into one checked whole."""
    merged: dict[str, dict[str, Any]] = {}
    if preset is not None:
        _merge(merged, _read_preset(preset))
    beside = None if model is None else Path(model).parent / CONFIG_NAME
    if config is None and beside is not None and beside.is_file():
        config = beside
    if config is not None:
        _merge(merged, read_settings(Path(config)))
    _merge(merged, options or {})
    try:
        settings = Settings.model_validate(merged)
    except ValidationError as error:
        raise InputError(*_complaint(error)) from None
    check_budget(settings)
    return settings


def read_settings(path: Path) -> dict[str, Any]:
    """What a file of settings says, unchecked; the path of the data is relative to it."""
    return _relative_to(path.parent, _read_toml(path))


def changed_export(had: ExportSettings, **changes: Any) -> ExportSettings:
    """Export settings with some changed, checked as those of ltp.toml are."""
    return load_settings(None, options={"export": {**had.model_dump(), **changes}}).export


def check_budget(settings: Settings) -> None:
    """Refuse what cannot stand beside λ: a budget, and blocks."""
    if settings.method.lambda_ is not None and settings.method.block is not None:
        raise InputError(
            "method.block and method.lambda contradict each other: the paper's equations are about single weights",
            "give a budget instead of lambda, or leave block out",
        )
    if settings.method.lambda_ is not None and settings.budget != BudgetSettings():
        raise InputError("a budget and method.lambda contradict each other", "give one: lambda decides the outcome")


def _merge(into: dict[str, dict[str, Any]], more: Mapping[str, Any]) -> None:
    if _decides_outcome(more):  # what a weaker source says of the outcome, by a budget or by λ, is replaced
        into.pop("budget", None)
        into.get("method", {}).pop("lambda", None)
    for section, values in more.items():
        if not isinstance(values, Mapping):
            raise InputError(
                f"setting {section!r} stands outside a section", "put it under its section, such as [data] or [train]"
            )
        join(into.setdefault(section, {}), values)


def join(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Put what is said into a section, or into a table of one; None says nothing."""
    for key, value in more.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            join(into[key], value)
        elif value is not None:
            into[key] = dict(value) if isinstance(value, Mapping) else value


def _decides_outcome(values: Mapping[str, Any]) -> bool:
    budget, method = (part if isinstance(part := values.get(name), Mapping) else {} for name in ("budget", "method"))
    return any(v is not None for v in budget.values()) or method.get("lambda") is not None


def _read_toml(path: Path) -> dict[str, Any]:
    text = read_text(path, "check the path given by --config", MOST_BYTES)
    try:
        return parse_toml(text)
    except ValueError as error:
        remedy = _unquoted(text, str(error)) or "correct the file at that line"
        raise InputError(f"{path} is not valid TOML: {error}", remedy) from None


def _unquoted(text: str, error: str) -> str | None:
    """What to do where TOML stops at a sign in the name of an input that has no quotes; None where it is not that."""
    at = re.search(r"at line (\d+)", error)
    line = text.split("\n")[int(at[1]) - 1][:LONGEST_LINE] if at else ""
    named = re.match(r"\s*\[\s*data\s*\.\s*inputs\s*\.\s*([^\"']+?)\s*\]\s*(#.*)?$", line)
    if named:
        return f"a name with such signs must be quoted: {_input_section(named[1])}"
    key = re.match(r"\s*([^\s\"'=\[#]+)\s*=", line)
    if key and re.search(r"[^A-Za-z0-9_.-]", key[1]):
        return f"a name with such signs must be quoted: {json.dumps(key[1], ensure_ascii=False)} = …"
    return None


def _read_preset(name: str) -> dict[str, Any]:
    folder = resources.files("ltp_pipeline.presets")
    known = sorted(f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith(".toml"))
    if name not in known:
        raise InputError(f"there is no preset {name!r}", f"presets: {', '.join(known) or 'none yet'}")
    return parse_toml((folder / f"{name}.toml").read_text(encoding="utf-8"))


def _relative_to(folder: Path, values: dict[str, Any]) -> dict[str, Any]:
    data = values.get("data")
    if isinstance(data, dict) and isinstance(data.get("path"), str):
        values["data"] = {**data, "path": str(folder / data["path"])}
    return values


def _complaint(error: ValidationError) -> tuple[str, str]:
    """What is wrong with which keys, and what could stand there."""
    parts = []
    remedy = "correct the setting in ltp.toml or on the command line"
    wrong = [item["loc"] for item in error.errors()]
    for item in error.errors():
        if item["type"] == "too_short" and any(loc[:-1] == item["loc"] for loc in wrong):
            continue  # what it has is wrong, which is said already
        key = ".".join(str(p) for p in item["loc"])
        if item["type"] == "extra_forbidden":
            parts.append(f"unknown setting {key}")
            section = _SECTIONS.get(str(item["loc"][0])) if len(item["loc"]) > 1 else None
            names = ", ".join(field.alias or name for name, field in (section or Settings).model_fields.items())
            remedy = f"known {'keys' if section else 'sections'}: {names}"
        else:
            said = item["msg"].removeprefix("Value error, ")
            parts.append(f"setting {key}: {said}" if key else said)
    return "; ".join(parts), remedy
