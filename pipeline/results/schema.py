"""The report of a run, with the schema "ltp-report/1".

A report that this program writes has every key. A value that was not measured is null, and
`reasons` of the same object gives the reason under the same key. A report from elsewhere may lack
keys, which count as not measured. Unknown keys are kept, because a newer program may write more;
unknown keys of gates and metrics are ignored.

`python -m ltp_pipeline.results.schema` prints the JSON Schema.
"""

import json
import math
from collections import Counter
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from ltp_pipeline.results.gain import Gain, TradeoffPoint, compute_gain, find_compared_value
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.results.schema_parts import (
    AccuracyResult,
    CustomTaskInfo,
    DataInfo,
    EnvironmentInfo,
    GateResult,
    LayerResult,
    LearningRateInfo,
    ModelInfo,
    QuantizationInfo,
    ReportPart,
    SparseKernelInfo,
    TaskSummary,
    TrailEntry,
    WeightHistogram,
    WeightScatter,
    list_hashes,
)
from ltp_pipeline.results.values import (
    Count,
    Fraction,
    Interval,
    NonNegative,
    PairedCounts,
    PrintablePath,
    make_field,
)
from ltp_pipeline.settings.file_names import EXACT, FAST, INT8, ExportFormat
from ltp_pipeline.settings.schema import COST_KINDS, CostKind
from ltp_pipeline.system.text import quote_name

SCHEMA: Final = "ltp-report/1"
LTP_METHOD, MAGNITUDE_METHOD = "ltp", "global-magnitude"
GRADUAL_METHOD = "gradual-magnitude"
# Variants of a baseline.
IN_BLOCKS, CLASSIFIER_EXCLUDED, LAMP_SCORES = "in blocks", "classifier excluded", "LAMP scores"
IS_BASELINE = "this network is the baseline of its run"  # why it is compared with none
IS_DELIVERED = "only this network of the run was delivered"
IS_PRUNED = "this network is the pruned network of the report"
# Keys of the networks that a report compares with its pruned network, by their methods.
NETWORK_KEYS = {
    MAGNITUDE_METHOD: "baseline",
    GRADUAL_METHOD: "gradual_baseline",
    LTP_METHOD: "ltp",
}
COMPARING_GATES = ("beat_baseline", "baseline_margin", "min_gain")  # gates that need a baseline
SHORT_LIST, LONG_LIST = Field(max_length=1000), Field(max_length=100_000)
Reasons = Annotated[
    dict[str, str], Field(description="Reasons why keys of this object are null, by key.")
]


class EvaluatedResult(ReportPart):
    """A file or a network with its accuracy."""

    accuracy: AccuracyResult | None = make_field(
        None, "Metric on the test split; null if it was not measured."
    )
    reasons: Reasons = Field(default_factory=dict)

    @property
    def value(self) -> float | None:
        """Value of the metric; None if it was not measured."""
        return None if self.accuracy is None else self.accuracy.value


class LatencyResult(ReportPart):
    """Latency of one batch in milliseconds."""

    batch: Count | None = make_field(None, "Number of samples in the batch.")
    threads: Count | None = make_field(None, "Number of threads of onnxruntime.")
    ms: NonNegative | None = make_field(None, "Median latency in milliseconds.")


class FileLatencyResult(LatencyResult):
    """Latency of a file and of the original, which are measured interleaved."""

    original_ms: NonNegative | None = make_field(
        None, "Median latency of the original, measured interleaved, in milliseconds."
    )
    ratio: NonNegative | None = make_field(
        None, "Latency of the file divided by that of the original."
    )
    ratio_quartiles: Interval | None = make_field(
        None, "Range of the middle half of the ratios of single runs: the noise of the ratio."
    )


class OriginalResult(EvaluatedResult):
    """The original file."""

    path: str | None = make_field(None, "Path of the model.")
    bytes: Count | None = make_field(None, "Size of the model and its external data, in bytes.")
    load_ms: NonNegative | None = make_field(
        None, "Time that onnxruntime takes to load the model, in milliseconds."
    )
    latency: tuple[LatencyResult, ...] = make_field(
        (), "Latency by batch size and number of threads."
    )


class HashedFile(ReportPart):
    """A file with its hashes. Its path is relative to the report."""

    path: PrintablePath = make_field("", "Path of the file, relative to the report.")
    sha256: str | None = make_field(None, "SHA-256 of the file.")
    data_sha256: str | None = make_field(
        None, "SHA-256 of PATH.data; null if the file has no external data."
    )

    @property
    def hashes(self) -> dict[str, str | None]:
        """Hashes of the file and of its external data, by path."""
        return list_hashes(self.path, self.sha256, self.data_sha256)


class FileResult(EvaluatedResult, HashedFile):
    """An exported file: a graph in an encoding."""

    graph: str = make_field("original", "Graph of the file: original, deploy, fast or int8.")
    encoding: str = make_field("", "Encoding of the weights: packed, dense or sparse.")
    weight_storage: str = make_field(
        "exact", "Storage of the weights: exact, or rounded to fp16 or int8."
    )
    bytes: Count | None = make_field(None, "Size of the file and its external data, in bytes.")
    nonzeros: Count | None = make_field(
        None, "Number of nonzeros of all layer weights. Rounding can turn more of them into zeros."
    )
    paired_counts: PairedCounts | None = make_field(
        None,
        "Numbers of test samples that the original (first) and this file (second) have "
        "correct; null if a sample can be partly correct.",
    )
    parity_max_abs: NonNegative | None = make_field(
        None, "Largest absolute difference between outputs of the file and of the network in torch."
    )
    load_ms: NonNegative | None = make_field(
        None, "Time that onnxruntime takes to load the file, in milliseconds."
    )
    latency: tuple[FileLatencyResult, ...] = make_field(
        (), "Latency of the file and of the original, by batch size and number of threads."
    )
    quantization: QuantizationInfo | None = make_field(
        None, "Quantization of the graph; null unless the graph is int8."
    )
    sparse_kernels: SparseKernelInfo | None = make_field(
        None, "Layers that run on sparse operators; null unless the graph is fast."
    )

    @property
    def is_exact(self) -> bool:
        """Whether the file holds the weights of the network, neither rounded nor quantized."""
        return self.weight_storage == EXACT and self.quantization is None

    @property
    def is_for_speed(self) -> bool:
        """Whether the file was written to be faster: quantized, or with sparse operators."""
        return self.quantization is not None or self.sparse_kernels is not None

    @property
    def gated_latency(self) -> FileLatencyResult | None:
        """Latency for one sample on one thread; if it was not measured, the worst one, or None."""
        single = [entry for entry in self.latency if (entry.batch, entry.threads) == (1, 1)]
        entries = single or list(self.latency)
        if any(entry.ratio is None for entry in entries):
            return None
        return max(entries, key=lambda entry: entry.ratio or 0.0, default=None)

    @property
    def gated_latency_ratio(self) -> float | None:
        """Ratio of `gated_latency`; None if it was not measured."""
        return None if self.gated_latency is None else self.gated_latency.ratio

    @property
    def gated_ratio_quartiles(self) -> Interval | None:
        """Range of the middle half of the ratios of `gated_latency`."""
        return None if self.gated_latency is None else self.gated_latency.ratio_quartiles

    @property
    def name(self) -> str:
        """Name of the format in `--export`, for example packed or deploy-packed."""
        return ExportFormat(self.graph, self.encoding).name

    @property
    def label(self) -> str:
        """Name of the format, with the rounding, if any."""
        return self.name if self.weight_storage == EXACT else f"{self.name}, {self.weight_storage}"

    @model_validator(mode="after")
    def _check_graph(self) -> Self:
        if (self.quantization is not None) != (self.graph == INT8):
            raise ValueError(f"quantization must be set if graph is {INT8}, and null otherwise")
        if (self.sparse_kernels is not None) != (self.graph == FAST):
            raise ValueError(f"sparse_kernels must be set if graph is {FAST}, and null otherwise")
        return self


class EpochCounts(ReportPart):
    """Number of epochs of training, by phase."""

    prune: Count = make_field(0, "Number of epochs of threshold learning.")
    finetune: Count = make_field(0, "Number of epochs of fine-tuning.")


class NetworkResult(EvaluatedResult):
    """A pruned network. Its accuracy is that of its least accurate file."""

    method: str = make_field(LTP_METHOD, "Pruning method, and its variants after commas.")
    validation_accuracy: float | None = make_field(
        None, "Metric on the validation split, by which networks are selected."
    )
    drop: float | None = make_field(
        None,
        "Metric of the original minus that of the network, with the opposite sign if "
        "lower is better. Negative if the network is better.",
    )
    drop_interval: Interval | None = make_field(
        None, "95 % confidence interval of the drop, paired by sample; null if it is undefined."
    )
    compression: float | None = make_field(
        None, "Number of elements of all layer weights divided by the number of nonzeros.", ge=1
    )
    model_compression: float | None = make_field(
        None, "Number of elements of all float weights divided by the number of nonzeros.", gt=0
    )
    sparsity: Fraction | None = make_field(None, "Fraction of zeros in all layer weights.")
    macs_left: Fraction | None = make_field(
        None,
        "Multiply-adds of the nonzero layer weights divided by those of all layer weights; "
        "null if the uses of a layer are unknown.",
    )
    nonzeros: Count | None = make_field(
        None,
        "Number of nonzeros of all layer weights, in the exported file with the most nonzeros.",
    )
    model_nonzeros: Count | None = make_field(None, "Number of nonzeros of all float weights.")
    epochs: EpochCounts | None = make_field(None, "Number of epochs of training, by phase.")
    learning_rate: LearningRateInfo | None = make_field(
        None, "Learning rate of the training; null if it was not recorded."
    )
    num_trainings: Count | None = make_field(
        None,
        "Number of networks that were trained: fine-tuned trail entries, or points of "
        "the baseline.",
    )
    files: Annotated[tuple[FileResult, ...], SHORT_LIST] = make_field(
        (), "Exported files of the network."
    )

    @property
    def base_method(self) -> str:
        """Pruning method without its variants."""
        return self.method.partition(",")[0]

    @property
    def exact(self) -> FileResult | None:
        """The first exact file, by which networks are compared; the first file if none is exact."""
        for file in self.files:
            if file.is_exact:
                return file
        return self.files[0] if self.files else None

    @property
    def exact_value(self) -> float | None:
        """Value of the metric of the exact file; None if it was not measured."""
        return None if self.exact is None else self.exact.value

    def least_accurate(self, metric: Metric) -> FileResult | None:
        """Return the least accurate file; None if a file was not measured, or there is none."""
        if not self.files or any(file.value is None for file in self.files):
            return None
        return metric.find_worst(self.files, lambda file: file.value or 0.0)

    @model_validator(mode="after")
    def _check_nonzeros(self) -> Self:
        total, layers = self.model_nonzeros, self.nonzeros
        if total is not None and layers is not None and total < layers:
            raise ValueError(f"model_nonzeros must be at least nonzeros, {layers}, got {total}")
        return self


class BaselinePoint(HashedFile):
    """Exact file of the baseline at one compression."""

    compression: float | None = make_field(None, "Compression ratio of the layer weights.", gt=0)
    accuracy: float | None = make_field(None, "Metric on the test split.")
    validation_accuracy: float | None = make_field(
        None, "Metric on the validation split, by which points are selected."
    )
    nonzeros: Count | None = make_field(None, "Number of nonzeros of all layer weights.")


class BaselineResult(NetworkResult):
    """Global magnitude pruning to the compression of LTP, trained for the same number of epochs."""

    method: str = make_field(
        MAGNITUDE_METHOD, "Pruning method of the baseline, and its variants after commas."
    )
    curve: Annotated[tuple[BaselinePoint, ...], SHORT_LIST] | None = make_field(
        None,
        "Points of the baseline at several compressions, the first one at that of LTP; "
        "null if only one was measured.",
    )
    budget: NonNegative | None = make_field(
        None,
        "Largest drop at which the two methods are compared; null if they are compared "
        "at equal accuracy.",
    )
    compression_at_equal_accuracy: float | None = make_field(
        None,
        "Compression of the baseline at the accuracy of LTP, interpolated between two "
        "points. With a budget, that of the sparsest point within it.",
        gt=0,
    )
    gain: float | None = make_field(
        None, "Compression of LTP divided by `compression_at_equal_accuracy`.", gt=0
    )
    gain_bound: Literal["at least", "at most"] | None = make_field(
        None,
        "Whether the gain is at least or at most this value; null if the measured points "
        "enclose it.",
    )
    unstructured: BaselinePoint | None = make_field(
        None,
        "Unstructured pruning to the same number of nonzeros; null unless LTP prunes in blocks.",
    )


class CostBudgetResult(ReportPart):
    """A budget of a cost, and whether the pruned network is within it."""

    kind: CostKind = make_field("multiply-adds", "What the budget counts.")
    requested: NonNegative | None = make_field(
        None,
        "Largest fraction of the multiply-adds or of the original's latency, or the largest number "
        "of bytes.",
    )
    predicted: NonNegative | None = make_field(
        None,
        "Latency of the fast file divided by the original's, as the model of the times of layers "
        "predicts it for the pruned network; null for other budgets.",
    )
    measured: NonNegative | None = make_field(
        None,
        "Fraction of the multiply-adds that is left, bytes of the packed file, or latency of the "
        "fast file divided by the original's, for one sample on one thread.",
    )
    measured_quartiles: Interval | None = make_field(
        None,
        "Range of the middle half of single runs; null for other budgets than latency.",
    )
    is_met: bool | None = make_field(
        None,
        "True if the measured value is at most the requested one; 10 % more is allowed for a "
        "latency, which is noisy.",
    )
    reasons: Reasons = Field(default_factory=dict)


class BaselineDifference(ReportPart):
    """How much better the pruned network is than another one, in the metric's unit."""

    value: float | None = make_field(
        None,
        "Metric of the pruned network minus that of the other one on the test split, "
        "with the opposite sign if lower is better; negative if the pruned network is worse.",
    )
    interval: Interval | None = make_field(
        None,
        "95 % confidence interval of the difference, paired by sample; null if it is undefined.",
    )
    paired_counts: PairedCounts | None = make_field(
        None,
        "Numbers of test samples that the pruned network (first) and the other one "
        "(second) have correct.",
    )
    reasons: Reasons = Field(default_factory=dict)


class OtherResult(NetworkResult):
    """Another network of the run, trained as long and pruned to the same compression."""

    difference: BaselineDifference | None = make_field(
        None, "Comparison of the pruned network with this one on the test split."
    )


class ValidationLead(ReportPart):
    """How much better a baseline is than the network of LTP on the validation split."""

    method: str = make_field(MAGNITUDE_METHOD, "Pruning method of the baseline.")
    value: float | None = make_field(
        None,
        "Metric of the baseline minus that of LTP's network, with the opposite sign if lower is "
        "better; negative if the baseline is worse.",
    )
    interval: Interval | None = make_field(
        None, "95 % confidence interval of the value, paired by sample; null if it is undefined."
    )
    paired_counts: PairedCounts | None = make_field(
        None,
        "Numbers of validation samples that the baseline (first) and LTP's network (second) "
        "have correct.",
    )
    reasons: Reasons = Field(default_factory=dict)

    @property
    def is_beyond_noise(self) -> bool:
        """True if the whole interval is above 0."""
        return self.interval is not None and self.interval[0] > 0


class NetworkComparison(ReportPart):
    """Comparison of LTP's network with the baselines on the validation split."""

    better: ValidationLead | None = make_field(
        None,
        "Best baseline of those whose interval is above 0; null if no baseline is better than "
        "LTP's network beyond noise.",
    )
    baselines: Annotated[tuple[ValidationLead, ...], SHORT_LIST] = make_field(
        (), "Lead of each baseline that was trained to the compression of LTP."
    )
    reasons: Reasons = Field(default_factory=dict)


class Report(ReportPart):
    """The content of report.json, which report.md and report.html show."""

    schema_: Literal["ltp-report/1"] = Field(
        default=SCHEMA, alias="schema", description="Name and version of the schema."
    )
    status: Literal["passed", "failed", "no-gates"] = make_field(
        "no-gates", "Result of all gates together; `no-gates` if no gate is set."
    )
    gates: Annotated[tuple[GateResult, ...], SHORT_LIST] = make_field((), "Result of each gate.")
    metric: Metric = make_field(Metric(), "Name, unit and direction of the metric.")
    task: TaskSummary = make_field(TaskSummary(), "Task of the network.")
    model: ModelInfo = make_field(ModelInfo(), "Model before pruning.")
    data: DataInfo = make_field(DataInfo(), "Data that the network was trained and measured on.")
    custom_task: CustomTaskInfo | None = make_field(
        None, "Custom task of the run; null for a built-in task."
    )
    original: OriginalResult = make_field(OriginalResult(), "Measurements of the original.")
    pruned: NetworkResult = make_field(NetworkResult(), "Measurements of the pruned network.")
    baseline: BaselineResult | None = make_field(
        None, "Measurements of global magnitude pruning; null if it was not measured."
    )
    gradual_baseline: OtherResult | None = make_field(
        None,
        "Measurements of gradual magnitude pruning; null if it was not measured, or is the "
        "pruned network.",
    )
    ltp: OtherResult | None = make_field(
        None,
        "Measurements of LTP's network if a better baseline is the pruned network; else null.",
    )
    difference: BaselineDifference | None = make_field(
        None, "Comparison of the pruned network with the baseline; null without a baseline."
    )
    comparison: NetworkComparison = make_field(
        NetworkComparison(), "Comparison on the validation split, which tells the better network."
    )
    cost_budget: CostBudgetResult | None = make_field(
        None, "Budget of multiply-adds, bytes or latency; null if the run had another budget."
    )
    layers: Annotated[tuple[LayerResult, ...], LONG_LIST] = make_field(
        (), "Layer weights of the model."
    )
    trail: Annotated[tuple[TrailEntry, ...], LONG_LIST] = make_field(
        (), "Trail entries that `pick` can finish."
    )
    settings: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="Settings of the run, by section."
    )
    resolved: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="Values that rules chose for settings that were not set, by section.",
    )
    environment: EnvironmentInfo = make_field(EnvironmentInfo(), "Environment of the run.")
    timings: dict[str, NonNegative] = Field(
        default_factory=dict, description="Seconds that each stage took, by stage."
    )
    notes: tuple[str, ...] = make_field((), "Notes about the run.")
    budget_not_met: str | None = make_field(
        None,
        "Reason why the network is outside its accuracy budget; null if it is within the budget.",
    )
    suspicious_improvement: str | None = make_field(
        None,
        "Warning that the network is significantly better than the original; null if it is not.",
    )
    histograms: tuple[WeightHistogram, ...] = make_field(
        (), "Histograms of |w| of the largest layer weights."
    )
    scatter: WeightScatter | None = make_field(
        None, "Sampled weights of the largest layer weight before and after pruning."
    )
    sizes: dict[str, Count | None] = Field(
        default_factory=dict,
        description="Bytes of the original and of each exported file; "
        "`raw_values_bound` is the smallest size if each nonzero is stored raw, in 32 bits.",
    )
    reasons: Reasons = Field(default_factory=dict)

    @property
    def used_settings(self) -> dict[str, dict[str, Any]]:
        """Settings by section, with the values that rules chose for those left open."""
        return {
            section: {**values, **self.resolved.get(section, {})}
            for section, values in self.settings.items()
        }

    @property
    def cost_key(self) -> str | None:
        """Key of the budget if it counts something else than weights, as the baseline does too."""
        budget = self.settings.get("budget", {})
        return next((key for key in COST_KINDS if budget.get(key) is not None), None)

    @property
    def cost_kind(self) -> CostKind | None:
        """What the budget counts instead of weights; None if it counts weights."""
        return None if self.cost_key is None else COST_KINDS[self.cost_key]

    @property
    def networks(self) -> list[NetworkResult]:
        """The pruned network, and the networks that it is compared with, if any."""
        return [self.pruned, *self.other_networks.values()]

    @property
    def other_networks(self) -> dict[str, NetworkResult]:
        """The networks that the pruned network is compared with, by their keys."""
        networks = {}
        for key in NETWORK_KEYS.values():
            network: NetworkResult | None = getattr(self, key)
            if network is not None:
                networks[key] = network
        return networks

    @property
    def better_key(self) -> str | None:
        """Key of a network that is better than the pruned one on the validation split, or None.

        It is None too if the budget is measured on a file, to which no baseline was fitted.
        """
        better = self.comparison.better
        if better is None or better.method == self.pruned.base_method:
            return None
        if self.cost_kind not in (None, "multiply-adds"):
            return None
        key = NETWORK_KEYS.get(better.method, "")
        return key if key in self.other_networks else None

    @property
    def files(self) -> list[FileResult]:
        """All exported files; those of the pruned network are first."""
        return [file for network in self.networks for file in network.files]

    @property
    def curve(self) -> tuple[BaselinePoint, ...]:
        """Points of the curve of the baseline; empty if there is none."""
        return (self.baseline.curve or ()) if self.baseline else ()

    @property
    def baseline_points(self) -> dict[str, BaselinePoint]:
        """All points of the baseline by their keys: the curve and the unstructured point."""
        points = {f"baseline.curve.{number}": point for number, point in enumerate(self.curve)}
        if self.baseline is not None and self.baseline.unstructured is not None:
            points["baseline.unstructured"] = self.baseline.unstructured
        return points

    @property
    def points(self) -> list[TradeoffPoint]:
        """Compression and accuracy of the points of the curve that were measured."""
        points = []
        for point in self.curve:
            if point.compression and point.accuracy is not None:
                points.append(TradeoffPoint(point.compression, point.accuracy))
        return points

    @property
    def gain(self) -> Gain | None:
        """The gain, computed from the numbers of the report; None if some are missing."""
        compression = self.pruned.compression
        accuracy = self.pruned.exact_value
        if self.baseline is None or not self.points or compression is None or accuracy is None:
            return None
        budget = self.baseline.budget
        least = find_compared_value(self.metric, accuracy, self.original.value, budget)
        return compute_gain(self.metric, compression, least, self.points, budget is None)

    @property
    def hashes(self) -> dict[str, str | None]:
        """Hashes of all exported files by path, including points of the baseline."""
        hashes: dict[str, str | None] = {}
        for file in (*self.files, *self.baseline_points.values()):
            hashes |= file.hashes
        return hashes

    @model_validator(mode="after")
    def _check_fractions(self) -> Self:
        """Raise ValueError for percent: a gate would pass on 88 instead of 0.88.

        A fraction of samples is at least 0. Others, such as R², may be negative.
        """
        if not self.metric.is_fraction:
            return self
        lowest = 0.0 if self.metric.is_sample_fraction else -math.inf
        for part in (self.original, *self.networks, *self.files):
            _check_range("accuracy.value", part.value, lowest)
        for entry in self.trail:
            _check_range("trail.accuracy", entry.accuracy, lowest)
        for key, point in self.baseline_points.items():
            _check_range(f"{key}.accuracy", point.accuracy, lowest)
        values = [part.value for part in (self.original, *self.networks) if part.value is not None]
        largest_drop = 1 - min([0.0, *values])
        for network in self.networks:
            _check_range("drop", network.drop, -largest_drop, largest_drop)
            _check_range("validation_accuracy", network.validation_accuracy, lowest)
        if self.baseline is not None:
            _check_range("baseline.budget", self.baseline.budget, 0.0)
        return self

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        """Raise ValueError for duplicate names, and for more than one selected entry."""
        names: dict[str, list[Any]] = {
            "layers": [layer.name for layer in self.layers],
            "files": [file.path for file in self.files],
            "labels of pruned.files": [file.label for file in self.pruned.files],
            "points of the baseline": [point.path for point in self.baseline_points.values()],
            "trail": [entry.entry for entry in self.trail],
            "trail.selected": [entry.selected for entry in self.trail if entry.selected],
            "methods of networks": [network.base_method for network in self.networks],
            "methods of comparison.baselines": [lead.method for lead in self.comparison.baselines],
        }
        for key, listed in names.items():
            for name, count in Counter(listed).most_common(1):
                if count > 1:
                    raise ValueError(f"{quote_name(str(name))} occurs {count} times in {key}")
        return self


def _check_range(key: str, value: float | None, lowest: float, highest: float = 1.0) -> None:
    """Raise ValueError if a value is known and outside a range."""
    if value is not None and not lowest <= value <= highest:
        allowed = f"between {lowest:g} and {highest:g}"
        if math.isinf(lowest):
            allowed = f"at most {highest:g}"
        raise ValueError(f"{key} must be {allowed}, got {value:g}; write 0.88 for 88 %")


def make_json_schema() -> str:
    """Return the JSON Schema of reports as this program writes them."""
    schema = Report.model_json_schema(mode="serialization")
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA, **schema}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    print(make_json_schema(), end="")
