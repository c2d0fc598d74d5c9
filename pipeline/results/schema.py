"""The report, schema "ltp-report/1": one typed object that every page, gate and command takes.

A report that this program writes has every key. Null means "not measured", and `reasons` of the
same object gives the reason under the same key. A report from elsewhere may lack keys, which count
as not measured. Unknown keys are kept, because a newer program may write more; those of gates, the
metric and extra metrics are ignored.

`python -m ltp_pipeline.results.schema` prints report.schema.json.
"""

import json
import math
from collections import Counter
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from ltp_pipeline.results.gain import Gain, TradeoffPoint, compute_gain
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.results.schema_parts import (
    AccuracyResult,
    CustomTaskInfo,
    DataInfo,
    EnvironmentInfo,
    GateResult,
    LayerResult,
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
)
from ltp_pipeline.settings.file_names import EXACT, FAST, INT8, ExportFormat
from ltp_pipeline.system.text import quote_name

SCHEMA: Final = "ltp-report/1"
LTP_METHOD, MAGNITUDE_METHOD = "ltp", "global-magnitude"  # how a network was pruned
IN_BLOCKS, CLASSIFIER_EXCLUDED = (
    "in blocks",
    "classifier excluded",
)  # what is added to the name of a baseline that does so
IS_BASELINE = "this network is the baseline of its run"  # why it is compared with none
COMPARING_GATES = ("beat_baseline", "baseline_margin", "min_gain")  # gates that need a baseline
FEW, MANY = Field(max_length=1000), Field(max_length=100_000)  # items that a list may have
Reasons = Annotated[dict[str, str], Field(description="why a key of this object is null")]


class EvaluatedResult(ReportPart):
    """A file or a network whose accuracy was measured."""

    accuracy: AccuracyResult | None = None
    reasons: Reasons = Field(default_factory=dict)

    @property
    def value(self) -> float | None:
        """The metric's value."""
        return None if self.accuracy is None else self.accuracy.value


class LatencyResult(ReportPart):
    """Time of one batch in milliseconds."""

    batch: Count | None = None
    threads: Count | None = None
    ms: NonNegative | None = None


class FileLatencyResult(LatencyResult):
    """Time of one batch, interleaved with that of the original."""

    original_ms: NonNegative | None = None
    ratio: Annotated[NonNegative | None, Field(description="ms / original_ms")] = None


class OriginalResult(EvaluatedResult):
    """The measured original."""

    path: str | None = None
    bytes: Count | None = None
    load_ms: NonNegative | None = None
    latency: tuple[LatencyResult, ...] = ()


class HashedFile(ReportPart):
    """A file on disk. Its path is relative to the report."""

    path: PrintablePath = ""
    sha256: str | None = None
    data_sha256: Annotated[
        str | None, Field(description="of PATH.data, where the weights are outside")
    ] = None

    @property
    def hashes(self) -> dict[str, str | None]:
        """Hashes of the file and of its external data, by path."""
        return list_hashes(self.path, self.sha256, self.data_sha256)


class FileResult(EvaluatedResult, HashedFile):
    """An exported file: a graph in an encoding."""

    graph: str = "original"
    encoding: str = ""
    weight_storage: Annotated[str, Field(description="exact, or what they were rounded to")] = (
        "exact"
    )
    bytes: Count | None = None
    nonzeros: Annotated[
        Count | None, Field(description="of its kernels; rounded values may leave fewer")
    ] = None
    paired_counts: Annotated[
        PairedCounts | None,
        Field(
            description="before: the original, after: this file; null where a sample may be right in parts"
        ),
    ] = None
    parity_max_abs: NonNegative | None = None
    load_ms: NonNegative | None = None
    latency: tuple[FileLatencyResult, ...] = ()
    quantization: Annotated[
        QuantizationInfo | None, Field(description="null for a graph that computes in float")
    ] = None
    sparse_kernels: Annotated[
        SparseKernelInfo | None,
        Field(description="null for a graph that does not use them; runs without them, too"),
    ] = None

    @model_validator(mode="after")
    def _check_graph(self) -> Self:
        if (self.quantization is not None) != (self.graph == INT8):
            raise ValueError(f"quantization is for graph {INT8} only, and graph is {self.graph}")
        if (self.sparse_kernels is not None) != (self.graph == FAST):
            raise ValueError(f"sparse_kernels is for graph {FAST} only, and graph is {self.graph}")
        return self

    @property
    def is_exact(self) -> bool:
        """Whether the file holds the network's weights exactly: not quantized and not rounded."""
        return self.weight_storage == EXACT and self.quantization is None

    @property
    def is_for_speed(self) -> bool:
        """Whether the file was written to be faster: quantized, or on sparse operators."""
        return self.quantization is not None or self.sparse_kernels is not None

    @property
    def gated_latency_ratio(self) -> float | None:
        """Latency / that of the original, for one sample on one thread.

        It is the largest measured ratio if that case was not measured.
        """
        alone = [entry for entry in self.latency if (entry.batch, entry.threads) == (1, 1)]
        ratios = [entry.ratio for entry in alone or self.latency]
        measured = [ratio for ratio in ratios if ratio is not None]
        return max(measured) if measured and len(measured) == len(ratios) else None

    @property
    def name(self) -> str:
        """Name of the file for `--export`, such as packed or deploy-packed."""
        return ExportFormat(self.graph, self.encoding).name

    @property
    def label(self) -> str:
        """Name of the file among those of a network, with the rounding of its values."""
        return self.name if self.weight_storage == EXACT else f"{self.name}, {self.weight_storage}"


class EpochCounts(ReportPart):
    """Number of epochs of each phase."""

    prune: Count = 0
    finetune: Count = 0


class NetworkResult(EvaluatedResult):
    """A pruned network, as measured through its exported files."""

    method: str = LTP_METHOD
    drop: Annotated[
        float | None,
        Field(
            description="how much worse than the original, in the metric's unit; negative is better"
        ),
    ] = None
    drop_interval: Interval | None = None
    compression: Annotated[float | None, Field(ge=1)] = None
    model_compression: Annotated[
        float | None,
        Field(gt=0, description="float weights of the whole model / those that are not zero"),
    ] = None
    sparsity: Fraction | None = None
    nonzeros: Count | None = None
    model_nonzeros: Annotated[
        Count | None, Field(description="of all float weights of the file")
    ] = None
    epochs: EpochCounts | None = None
    num_trainings: Annotated[
        Count | None,
        Field(
            description="networks that were trained to find it: fine-tuned entries, points of the curve"
        ),
    ] = None
    files: Annotated[tuple[FileResult, ...], FEW] = ()

    @model_validator(mode="after")
    def _check_nonzeros(self) -> Self:
        total, layers = self.model_nonzeros, self.nonzeros
        if total is not None and layers is not None and total < layers:
            raise ValueError(f"model_nonzeros is {total}, less than nonzeros, which is {layers}")
        return self

    @property
    def exact(self) -> FileResult | None:
        """The file by which networks are compared.

        It is the first file with exact weights, or the first file if none has them.
        """
        return next(
            (file for file in self.files if file.is_exact), self.files[0] if self.files else None
        )

    @property
    def exact_value(self) -> float | None:
        """The metric's value of that file."""
        return None if self.exact is None else self.exact.value

    def least_accurate(self, metric: Metric) -> FileResult | None:
        """Return the least accurate file. The network counts as accurate as that file."""
        known = all(file.value is not None for file in self.files)
        return (
            metric.find_worst(self.files, lambda file: file.value or 0.0)
            if self.files and known
            else None
        )


class BaselinePoint(HashedFile):
    """A point of the baseline's curve.

    The accuracy is that of the test split. The validation split selected the point.
    """

    compression: Annotated[float | None, Field(gt=0)] = None
    accuracy: float | None = None
    validation_accuracy: float | None = None
    nonzeros: Count | None = None


class BaselineResult(NetworkResult):
    """The baseline: global magnitude pruning with the same number of epochs."""

    method: str = MAGNITUDE_METHOD
    curve: Annotated[
        Annotated[tuple[BaselinePoint, ...], FEW] | None,
        Field(description="the point at the same compression first, each trained as long"),
    ] = None
    budget: Annotated[
        NonNegative | None,
        Field(
            description="the largest drop, within which the gain compares the two; null: at equal accuracy"
        ),
    ] = None
    compression_at_equal_accuracy: Annotated[
        float | None,
        Field(
            gt=0,
            description="linear in log compression between two points; within a budget, of the sparsest point",
        ),
    ] = None
    gain: Annotated[
        float | None,
        Field(
            gt=0, description="compression / the one that the baseline reaches at equal accuracy"
        ),
    ] = None
    gain_bound: Annotated[
        Literal["at least", "at most"] | None,
        Field(description="where the gain is only known to one side"),
    ] = None
    unstructured: Annotated[
        BaselinePoint | None,
        Field(
            description="beside blocks, the same count of single weights, trained as long; null without blocks"
        ),
    ] = None


class BaselineDifference(ReportPart):
    """How much better the pruned network is than the baseline; negative is worse."""

    value: float | None = None
    interval: Interval | None = None
    paired_counts: Annotated[
        PairedCounts | None, Field(description="before: the pruned network, after: the baseline")
    ] = None
    reasons: Reasons = Field(default_factory=dict)


class Report(ReportPart):
    """The content of report.json, which all pages show."""

    schema_: Annotated[Literal["ltp-report/1"], Field(alias="schema")] = SCHEMA
    status: Literal["passed", "failed", "no-gates"] = "no-gates"
    gates: Annotated[tuple[GateResult, ...], FEW] = ()
    metric: Metric = Metric()
    task: TaskSummary = TaskSummary()
    model: ModelInfo = ModelInfo()
    data: DataInfo = DataInfo()
    custom_task: Annotated[
        CustomTaskInfo | None, Field(description="null where it is none of the user's own")
    ] = None
    original: OriginalResult = OriginalResult()
    pruned: NetworkResult = NetworkResult()
    baseline: BaselineResult | None = None
    difference: BaselineDifference | None = None
    layers: Annotated[tuple[LayerResult, ...], MANY] = ()
    trail: Annotated[tuple[TrailEntry, ...], MANY] = ()
    settings: dict[str, dict[str, Any]] = Field(default_factory=dict)
    resolved: Annotated[
        dict[str, dict[str, Any]],
        Field(description="values that rules chose for settings left open, by section"),
    ] = Field(default_factory=dict)
    environment: EnvironmentInfo = EnvironmentInfo()
    timings: dict[str, NonNegative] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()
    budget_not_met: Annotated[
        str | None, Field(description="why the network is outside its accuracy budget")
    ] = None
    suspicious_improvement: Annotated[
        str | None,
        Field(
            description="a warning where the pruned network is better than the original beyond chance"
        ),
    ] = None
    histograms: tuple[WeightHistogram, ...] = ()
    scatter: WeightScatter | None = None
    sizes: dict[str, Count | None] = Field(default_factory=dict)
    reasons: Reasons = Field(default_factory=dict)

    @property
    def used_settings(self) -> dict[str, dict[str, Any]]:
        """Settings by section, with the values that rules chose for those left open."""
        return {
            section: {**values, **self.resolved.get(section, {})}
            for section, values in self.settings.items()
        }

    @property
    def networks(self) -> list[NetworkResult]:
        """The pruned network, and the baseline if there is one."""
        return [self.pruned] if self.baseline is None else [self.pruned, self.baseline]

    @property
    def files(self) -> list[FileResult]:
        """All exported files, those of the baseline last."""
        return [file for network in self.networks for file in network.files]

    @property
    def curve(self) -> tuple[BaselinePoint, ...]:
        """The points of the baseline's curve.

        The first one is a file of the baseline, the others have files of their own.
        """
        return (self.baseline.curve or ()) if self.baseline else ()

    @property
    def baseline_points(self) -> dict[str, BaselinePoint]:
        """All points of the baseline by their keys, with the unstructured one of a run in blocks."""
        single = self.baseline.unstructured if self.baseline else None
        curve = {f"baseline.curve.{number}": point for number, point in enumerate(self.curve)}
        return {**curve, **({} if single is None else {"baseline.unstructured": single})}

    @property
    def points(self) -> list[TradeoffPoint]:
        """The measured points of the curve: compression and accuracy."""
        return [
            TradeoffPoint(p.compression, p.accuracy)
            for p in self.curve
            if p.compression and p.accuracy is not None
        ]

    @property
    def gain(self) -> Gain | None:
        """The gain by the numbers of this report; None if they do not give one."""
        compression, accuracy = self.pruned.compression, self.pruned.exact_value
        if self.baseline is None or not self.points or compression is None or accuracy is None:
            return None
        budget = self.baseline.budget
        return compute_gain(
            self.metric, compression, accuracy, self.original.value, budget, self.points
        )

    @property
    def hashes(self) -> dict[str, str | None]:
        """Path and hash of every exported file, those of the baseline's points too."""
        stored: list[HashedFile] = [*self.files, *self.baseline_points.values()]
        return {name: digest for file in stored for name, digest in file.hashes.items()}

    @model_validator(mode="after")
    def _check_fractions(self) -> Self:
        """Raise ValueError for percent: a gate would pass on 88 if 0.88 is meant.

        A fraction that does not count samples may be below 0.
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
        known = [part.value for part in (self.original, *self.networks) if part.value is not None]
        widest = 1 - min([0.0, *known])
        for network in self.networks:
            _check_range("drop", network.drop, -widest, widest)
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
            "selected of the trail": [entry.selected for entry in self.trail if entry.selected],
        }
        for key, listed in names.items():
            name, count = Counter(listed).most_common(1)[0] if listed else ("", 0)
            if count > 1:
                raise ValueError(f"{quote_name(str(name))} occurs {count} times in {key}")
        return self


def _check_range(key: str, value: float | None, lowest: float, highest: float = 1.0) -> None:
    if value is not None and not lowest <= value <= highest:
        raise ValueError(f"{key} is {value:g}, and the metric is a share: 1 is all")


def make_json_schema() -> str:
    """Return the JSON Schema of a report as this program writes it."""
    schema = Report.model_json_schema(mode="serialization")
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA, **schema}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    print(make_json_schema(), end="")
