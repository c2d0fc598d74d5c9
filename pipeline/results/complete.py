"""Compute every number of a report that follows from other numbers, each in one place."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.sparsity import Sparsity
from ltp_pipeline.results.metric import BUILT_IN_METRICS, ROUNDING, Metric
from ltp_pipeline.results.schema import (
    BaselineDifference,
    BaselinePoint,
    BaselineResult,
    FileLatencyResult,
    FileResult,
    NetworkResult,
    OriginalResult,
    Report,
)
from ltp_pipeline.results.schema_parts import AccuracyResult, LayerResult, ModelInfo
from ltp_pipeline.results.values import Interval, PairedCounts
from ltp_pipeline.system.text import quote_name

HINT = "the report was edited or damaged: give the one that `ltp-pipeline run` wrote"
MAX_SHOWN = 120  # characters of a value in a message
UNSUPPORTED = "nothing else in the report supports it"
COMPUTED_EVEN_IF_NULL = ("baseline.gain_bound",)  # null says that the gain is known exactly
GATED_VALUES = (
    "accuracy",
    "drop",
    "drop_interval",
    "compression",
    "model_compression",
    "sparsity",
)  # of a network

NetworkT = TypeVar("NetworkT", bound=NetworkResult)
T = TypeVar("T")


class ContradictionError(InputError):
    """A value of a report differs from what follows from its other values or its files."""

    def __init__(
        self,
        key: str,
        stated: Any,
        computed: Any,
        where: str = "the report",
        source: str = "its other values",
    ) -> None:
        first, second = (quote_name(str(value), MAX_SHOWN)[1:-1] for value in (stated, computed))
        super().__init__(
            f"{where} contradicts itself: {key} is {first}, but by {source} it is {second}", HINT
        )
        self.key = key
        self.stated = stated
        self.computed = computed


def is_same(first: Any, second: Any) -> bool:
    """Return whether two values are equal up to rounding."""
    if isinstance(first, tuple | list) and isinstance(second, tuple | list):
        return len(first) == len(second) and all(map(is_same, first, second))
    numbers = isinstance(first, int | float) and isinstance(second, int | float)
    if numbers and (isinstance(first, float) or isinstance(second, float)):
        return math.isclose(first, second, rel_tol=ROUNDING, abs_tol=ROUNDING)
    return bool(first == second)


def check_same_values(
    stated: Report, computed: Report, where: str, source: str = "its other values"
) -> None:
    """Raise ContradictionError for the first value of a report that was computed otherwise.

    Args:
        stated: The report. Values that are null are not compared.
        computed: The report with the values that it should have.
        where: Name of the report in the message.
        source: What the values were computed from, in the message.
    """
    differences = _find_differences(_dump_values(stated), _dump_values(computed))
    for key, stated_value, computed_value in differences:
        raise ContradictionError(key, stated_value, computed_value, where, source)


def complete(report: Report) -> Report:
    """Return the report with every number that follows from its other numbers.

    A number is replaced if everything that it follows from is known. Otherwise it stays as it is.

    Raises:
        ContradictionError: Two numbers that a third one follows from contradict each other.
    """
    layers = tuple(_complete_layer(layer) for layer in report.layers)
    report = report.model_copy(
        update={
            "metric": _complete_metric(report),
            "layers": layers,
            "model": _complete_model(report.model, layers),
            "pruned": _complete_files("pruned", report.pruned, report),
            "baseline": report.baseline and _complete_files("baseline", report.baseline, report),
        }
    )
    report = report.model_copy(update={"original": _complete_original(report)})
    pruned_counts = [layer.nonzeros for layer in layers]
    report = report.model_copy(
        update={"pruned": _complete_network("pruned", report.pruned, pruned_counts, report)}
    )
    if report.baseline is not None:
        baseline_counts = [layer.baseline_nonzeros for layer in layers]
        baseline = _complete_network("baseline", report.baseline, baseline_counts, report)
        report = report.model_copy(update={"baseline": _complete_points(baseline, report)})
        report = report.model_copy(update={"baseline": _complete_gain(report)})
    seed = report.settings.get("train", {}).get("seed")
    if seed is None:
        seed = report.environment.seed
    return report.model_copy(
        update={
            "difference": report.difference and _complete_difference(report.difference, report),
            "sizes": _collect_sizes(report),
            "environment": report.environment.model_copy(update={"seed": seed}),
        }
    )


def drop_unsupported_values(report: Report) -> Report:
    """Return the report without the values that gates check and that follow from nothing in it.

    A value that is dropped becomes null, with its reason, and counts as not measured.
    """
    supported = complete(_clear_computed_values(report))
    changes: dict[str, Any] = {
        "pruned": _drop_unsupported(report.pruned, supported.pruned),
        "baseline": report.baseline,
    }
    if report.baseline is not None and supported.baseline is not None:
        changes["baseline"] = _drop_unsupported(report.baseline, supported.baseline)
    if report.difference is not None and supported.difference is not None:
        difference = supported.difference
        if difference.interval is None or difference.value is None:
            changes["difference"] = report.difference.model_copy(update={"interval": None})
    return report.model_copy(update=changes)


def _resolve(key: str, stated: T, *sources: T | None) -> T:
    """Return the value that all known sources agree on, or the stated value if no source is known."""
    known = [source for source in sources if source is not None]
    for source in known[1:]:
        _require_same(key, known[0], source)
    return known[0] if known else stated


def _require_same(key: str, first: Any, second: Any) -> None:
    if first is not None and second is not None and not is_same(first, second):
        raise ContradictionError(key, first, second)


def _complete_metric(report: Report) -> Metric:
    """Only a custom task defines a metric; unit and direction of all others follow from their names."""
    metric = report.metric
    if report.custom_task is not None:
        return metric
    return Metric(metric.name) if metric.name in BUILT_IN_METRICS else Metric()


def _complete_layer(layer: LayerResult) -> LayerResult:
    elements = math.prod(layer.shape) if layer.shape else layer.elements
    return layer.model_copy(update={"elements": elements, "prunable": layer.reason is None})


def _complete_model(model: ModelInfo, layers: Sequence[LayerResult]) -> ModelInfo:
    if not layers:
        return model
    elements = sum(layer.elements for layer in layers)
    return model.model_copy(update={"num_layers": len(layers), "layer_elements": elements})


def _complete_files(key: str, network: NetworkT, report: Report) -> NetworkT:
    files = tuple(
        _complete_file(f"{key}.files.{number}", file, report)
        for number, file in enumerate(network.files)
    )
    return network.model_copy(update={"files": files})


def _complete_file(key: str, file: FileResult, report: Report) -> FileResult:
    counts = file.paired_counts
    if counts is None:
        accuracy = _complete_accuracy(key, file.accuracy, report)
    else:
        value, samples = counts.second_fraction, counts.samples
        accuracy = _complete_accuracy(key, file.accuracy, report, value, samples)
    latency = tuple(_complete_latency(latency) for latency in file.latency)
    return file.model_copy(update={"accuracy": accuracy, "latency": latency})


def _complete_latency(latency: FileLatencyResult) -> FileLatencyResult:
    if latency.ms is None or not latency.original_ms:
        return latency
    return latency.model_copy(update={"ratio": latency.ms / latency.original_ms})


def _complete_accuracy(
    key: str,
    accuracy: AccuracyResult | None,
    report: Report,
    value: float | None = None,
    samples: int | None = None,
) -> AccuracyResult | None:
    """Complete an accuracy whose value and number of samples also follow from elsewhere, if not None."""
    if accuracy is None:
        return None
    top1 = accuracy.top1 if report.metric.is_accuracy else None
    test_samples = report.data.splits.get("test")
    changes = {
        "value": _resolve(f"{key}.accuracy.value", accuracy.value, value, top1),
        "samples": _resolve(f"{key}.accuracy.samples", accuracy.samples, test_samples, samples),
    }
    return accuracy.model_copy(update=changes)


def _complete_original(report: Report) -> OriginalResult:
    key = "original.accuracy.value"
    original = report.original
    counts = [file.paired_counts for file in report.files if file.paired_counts is not None]
    fractions = [count.first_fraction for count in counts]
    perfect = 1.0 if report.metric.is_relative else None
    value = _resolve(key, None, perfect, *fractions)
    accuracy = _complete_accuracy("original", original.accuracy, report, value)
    return original.model_copy(update={"accuracy": accuracy})


def _complete_network(
    key: str, network: NetworkT, layer_nonzeros: Sequence[int | None], report: Report
) -> NetworkT:
    """Complete a network whose files are complete.

    Args:
        key: Key of the network in the report.
        network: The network.
        layer_nonzeros: Nonzeros of each layer of the report in this network; None if not counted.
        report: The report, with its original complete.
    """
    accuracy = network.accuracy
    value = counts = None
    least = network.least_accurate(report.metric)
    if least is not None:
        value = least.value
        counts = least.paired_counts
        accuracy = accuracy or least.accuracy
    accuracy = _complete_accuracy(key, accuracy, report, value)
    changes: dict[str, Any] = {"accuracy": accuracy}
    original = report.original.value
    if original is not None and accuracy is not None and accuracy.value is not None:
        changes["drop"] = report.metric.compute_drop(original, accuracy.value)
    drop = changes.get("drop", network.drop)
    changes["drop_interval"] = _complete_interval(network.drop_interval, counts, drop)
    return network.model_copy(
        update=changes | _complete_counts(key, network, layer_nonzeros, report)
    )


def _complete_counts(
    key: str, network: NetworkResult, layer_nonzeros: Sequence[int | None], report: Report
) -> dict[str, Any]:
    """Return nonzeros, sparsity and compression of a network as far as they are known."""
    changes: dict[str, Any] = {}
    elements = report.model.layer_elements
    total = None
    if report.layers and None not in layer_nonzeros:
        total = sum(count or 0 for count in layer_nonzeros)
    file_nonzeros = [file.nonzeros for file in network.files]
    most = None
    if file_nonzeros and None not in file_nonzeros:
        most = max(count or 0 for count in file_nonzeros)
    changes["nonzeros"] = _resolve(f"{key}.nonzeros", network.nonzeros, total, most)
    if elements and total is not None:
        counted = Sparsity(elements, total)
        changes |= {"sparsity": counted.sparsity, "compression": counted.compression}
    if report.model.float_elements and network.model_nonzeros:
        counted = Sparsity(report.model.float_elements, network.model_nonzeros)
        changes["model_compression"] = counted.compression
    return changes


def _complete_interval(
    stated: Interval | None, counts: PairedCounts | None, value: float | None
) -> Interval | None:
    """Return the interval that follows from counts of samples, or the stated one, which holds the value."""
    interval = None if counts is None else counts.compute_interval()
    if interval is not None:
        return interval
    if stated is None or value is None:
        return stated
    return min(stated[0], value), max(stated[1], value)


def _complete_points(baseline: BaselineResult, report: Report) -> BaselineResult:
    """Complete the points of the curve, the first of which is the exact file of the baseline."""
    changes: dict[str, Any] = {}
    unstructured = baseline.unstructured
    if unstructured is not None:
        changes["unstructured"] = _complete_point(unstructured, None, report)
    if baseline.curve:
        files = {file.path: file for file in baseline.files}
        first = baseline.curve[0]
        points = [_complete_point(first, files.get(first.path), report)]
        points += [_complete_point(point, None, report) for point in baseline.curve[1:]]
        changes |= {"curve": tuple(points), "num_trainings": len(points)}
    return baseline.model_copy(update=changes)


def _complete_point(point: BaselinePoint, file: FileResult | None, report: Report) -> BaselinePoint:
    changes: dict[str, Any] = {}
    elements = report.model.layer_elements
    if elements and point.nonzeros:
        changes["compression"] = Sparsity(elements, point.nonzeros).compression
    if file is not None:
        changes |= {"sha256": file.sha256, "data_sha256": file.data_sha256}
        if file.value is not None:
            changes["accuracy"] = file.value
    return point.model_copy(update=changes)


def _complete_gain(report: Report) -> BaselineResult | None:
    gain = report.gain
    if report.baseline is None or gain is None:
        return report.baseline
    changes: dict[str, Any] = {
        "gain": gain.value,
        "gain_bound": gain.bound,
        "compression_at_equal_accuracy": gain.compression_at_equal_accuracy,
    }
    if gain.reason is not None:
        key = "compression_at_equal_accuracy"
        changes["reasons"] = {**report.baseline.reasons, key: gain.reason}
    return report.baseline.model_copy(update=changes)


def _complete_difference(difference: BaselineDifference, report: Report) -> BaselineDifference:
    """Compare the exact files of the two networks."""
    if report.baseline is None:
        return difference
    pruned = report.pruned.exact_value
    baseline = report.baseline.exact_value
    counts = difference.paired_counts
    if counts is not None:
        _require_same("difference.paired_counts", counts.first_fraction, pruned)
        _require_same("difference.paired_counts", counts.second_fraction, baseline)
    value = difference.value
    if pruned is not None and baseline is not None:
        value = report.metric.compute_drop(pruned, baseline)
    interval = _complete_interval(difference.interval, counts, value)
    return difference.model_copy(update={"value": value, "interval": interval})


def _collect_sizes(report: Report) -> dict[str, int | None]:
    """Return the bytes of the original, of each file, and the bound, by their labels."""
    stated = report.sizes
    original = report.original.bytes
    elements = report.model.layer_elements
    nonzeros = report.pruned.nonzeros
    bound = stated.get("entropy_bound")
    if original and elements and nonzeros is not None:
        bound = bound_size(original, elements, min(nonzeros, elements))
    sizes = {"original": stated.get("original") if original is None else original}
    for file in report.pruned.files:
        sizes[file.label] = stated.get(file.label) if file.bytes is None else file.bytes
    return {**sizes, "entropy_bound": bound}


def bound_size(original: int, elements: int, nonzeros: int) -> int:
    """Return the fewest bytes that can hold the nonzeros of a model, their positions and the rest of its file.

    Args:
        original: Bytes of the original file.
        elements: Number of layer weights, stored in 4 bytes each.
        nonzeros: Number of layer weights that are not zero.
    """
    p = nonzeros / elements
    entropy = 0.0
    if 0 < p < 1:
        entropy = -(p * math.log2(p) + (1 - p) * math.log2(1 - p))
    rest = max(original - 4 * elements, 0)
    return math.ceil((elements * entropy + 32 * nonzeros) / 8 + rest)


def _clear_computed_values(report: Report) -> Report:
    """Return the report without the gated values that must follow from others."""
    changes: dict[str, Any] = {"pruned": _clear_network(report.pruned, report.metric)}
    if report.baseline is not None:
        changes["baseline"] = _clear_network(report.baseline, report.metric)
    if report.difference is not None:
        kept = _keeps_interval(report.metric, report.difference.reasons)
        cleared = {"value": None} if kept else {"value": None, "interval": None}
        changes["difference"] = report.difference.model_copy(update=cleared)
    return report.model_copy(update=changes)


def _clear_network(network: NetworkT, metric: Metric) -> NetworkT:
    least = network.least_accurate(metric)
    cleared = dict.fromkeys(GATED_VALUES)
    if least is not None and _keeps_interval(metric, least.reasons):
        del cleared["drop_interval"]
    return network.model_copy(update=cleared)


def _keeps_interval(metric: Metric, reasons: dict[str, str]) -> bool:
    """Return whether an interval is measured and does not follow from counts of samples."""
    return not metric.is_sample_fraction or "paired_counts" in reasons


def _drop_unsupported(network: NetworkT, supported: NetworkResult) -> NetworkT:
    """Clear the gated values of a network that its supported form does not have, and latency ratios without times."""
    dropped = [
        key
        for key in GATED_VALUES
        if getattr(network, key) is not None and getattr(supported, key) is None
    ]
    files = tuple(
        file.model_copy(update={"latency": tuple(_drop_ratio(entry) for entry in file.latency)})
        for file in network.files
    )
    reasons = {**network.reasons, **dict.fromkeys(dropped, UNSUPPORTED)}
    return network.model_copy(update={**dict.fromkeys(dropped), "files": files, "reasons": reasons})


def _drop_ratio(latency: FileLatencyResult) -> FileLatencyResult:
    return _complete_latency(latency.model_copy(update={"ratio": None}))


def _dump_values(report: Report) -> dict[str, Any]:
    """Return the content of a report without what `complete` never changes."""
    return report.model_dump(exclude={"histograms", "scatter", "reasons"})


def _find_differences(stated: Any, computed: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield key, stated and computed value of everything that is stated and computed otherwise."""
    if isinstance(stated, dict) and isinstance(computed, dict):
        for name, value in stated.items():
            if name in computed and name != "reasons":
                inner = f"{key}.{name}" if key else name
                yield from _find_differences(value, computed[name], inner)
    elif isinstance(stated, tuple) and stated and isinstance(stated[0], dict):
        for number, pair in enumerate(zip(stated, computed, strict=True)):
            yield from _find_differences(*pair, f"{key}.{number}")
    elif stated is None and key not in COMPUTED_EVEN_IF_NULL:
        return
    elif not is_same(stated, computed):
        yield key, stated, computed
