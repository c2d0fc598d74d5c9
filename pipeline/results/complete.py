"""Compute every number of a report that follows from other numbers, each in one place."""

import math
from collections.abc import Sequence
from typing import Any, TypeVar

from ltp_pipeline.graph.sparsity import Sparsity
from ltp_pipeline.results.consistency import check_same
from ltp_pipeline.results.metric import BUILT_IN_METRICS, Metric
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
from ltp_pipeline.results.schema_parts import (
    AccuracyResult,
    EnvironmentInfo,
    LayerResult,
    ModelInfo,
)
from ltp_pipeline.results.values import Interval, PairedCounts

UNSUPPORTED = "nothing else in the report supports it"
GATED_KEYS = (
    "accuracy",
    "drop",
    "drop_interval",
    "compression",
    "model_compression",
    "sparsity",
)  # keys of a network whose values gates check

NetworkT = TypeVar("NetworkT", bound=NetworkResult)
T = TypeVar("T")


def complete(report: Report) -> Report:
    """Return the report with every number that follows from its other numbers.

    A number is replaced if everything that it follows from is known. Otherwise it stays as it is.

    Raises:
        ContradictionError: Two numbers that a third one follows from contradict each other.
    """
    layers = tuple(_complete_layer(layer) for layer in report.layers)
    report = report.replace(
        metric=_complete_metric(report),
        layers=layers,
        model=_complete_model(report.model, layers),
        pruned=_complete_files("pruned", report.pruned, report),
        environment=_complete_environment(report),
    )
    if report.baseline is not None:
        report = report.replace(baseline=_complete_files("baseline", report.baseline, report))
    report = report.replace(original=_complete_original(report))
    nonzeros = [layer.nonzeros for layer in layers]
    report = report.replace(pruned=_complete_network("pruned", report.pruned, nonzeros, report))
    if report.baseline is not None:
        nonzeros = [layer.baseline_nonzeros for layer in layers]
        baseline = _complete_network("baseline", report.baseline, nonzeros, report)
        report = report.replace(baseline=_complete_points(baseline, report.model))
        report = report.replace(baseline=_complete_gain(report))
    if report.difference is not None:
        report = report.replace(difference=_complete_difference(report.difference, report))
    return report.replace(sizes=_collect_sizes(report))


def drop_unsupported_values(report: Report) -> Report:
    """Return the report without values that gates check and that follow from nothing in it.

    A dropped value becomes null, with its reason, and counts as not measured.
    """
    metric = report.metric
    cleared = report.replace(pruned=_clear_network(report.pruned, metric))
    if report.baseline is not None:
        cleared = cleared.replace(baseline=_clear_network(report.baseline, metric))
    if report.difference is not None:
        difference = report.difference.replace(value=None)
        if _is_interval_counted(metric, difference.reasons):
            difference = difference.replace(interval=None)
        cleared = cleared.replace(difference=difference)
    supported = complete(cleared)
    result = report.replace(pruned=_drop_values(report.pruned, supported.pruned))
    if report.baseline is not None and supported.baseline is not None:
        result = result.replace(baseline=_drop_values(report.baseline, supported.baseline))
    if report.difference is not None and supported.difference is not None:
        difference = supported.difference
        if difference.interval is None or difference.value is None:
            result = result.replace(difference=report.difference.replace(interval=None))
    return result


def bound_size(original_bytes: int, elements: int, nonzeros: int) -> int:
    """Return the fewest bytes that can hold the nonzeros of a model, their positions and the rest.

    Args:
        original_bytes: Size of the original file.
        elements: Number of elements of all layer weights, stored in 4 bytes each.
        nonzeros: Number of elements that are not zero.
    """
    p = nonzeros / elements
    entropy = 0.0
    if 0 < p < 1:
        entropy = -(p * math.log2(p) + (1 - p) * math.log2(1 - p))
    rest = max(original_bytes - 4 * elements, 0)
    return math.ceil((elements * entropy + 32 * nonzeros) / 8 + rest)


def _resolve(key: str, stated: T, *sources: T | None) -> T:
    """Return the value of the known sources, or the stated value if no source is known.

    Args:
        key: Key of the value.
        stated: The value in the report.
        *sources: Values that other numbers give.

    Raises:
        ContradictionError: Two sources have different values.
    """
    known_values = [source for source in sources if source is not None]
    for source in known_values[1:]:
        check_same(key, known_values[0], source)
    return known_values[0] if known_values else stated


def _complete_metric(report: Report) -> Metric:
    """Return the metric. Unless a custom task defines it, its name gives unit and direction."""
    metric = report.metric
    if report.custom_task is not None:
        return metric
    return Metric(metric.name) if metric.name in BUILT_IN_METRICS else Metric()


def _complete_environment(report: Report) -> EnvironmentInfo:
    seed = report.settings.get("train", {}).get("seed")
    environment = report.environment
    return environment if seed is None else environment.replace(seed=seed)


def _complete_layer(layer: LayerResult) -> LayerResult:
    elements = math.prod(layer.shape) if layer.shape else layer.elements
    return layer.replace(elements=elements, prunable=layer.reason is None)


def _complete_model(model: ModelInfo, layers: Sequence[LayerResult]) -> ModelInfo:
    if not layers:
        return model
    elements = sum(layer.elements for layer in layers)
    return model.replace(num_layers=len(layers), layer_elements=elements)


def _complete_files(key: str, network: NetworkT, report: Report) -> NetworkT:
    """Return a network with complete files.

    Args:
        key: Key of the network.
        network: The network.
        report: The report, for the metric and the number of test samples.
    """
    files = []
    for number, file in enumerate(network.files):
        value = samples = None
        if file.paired_counts is not None:
            value = file.paired_counts.second_fraction
            samples = file.paired_counts.samples
        accuracy = _complete_accuracy(
            f"{key}.files.{number}", file.accuracy, report, value, samples
        )
        latency = tuple(map(_complete_latency, file.latency))
        files.append(file.replace(accuracy=accuracy, latency=latency))
    return network.replace(files=tuple(files))


def _complete_latency(latency: FileLatencyResult) -> FileLatencyResult:
    if latency.ms is None or not latency.original_ms:
        return latency
    return latency.replace(ratio=latency.ms / latency.original_ms)


def _complete_accuracy(
    key: str,
    accuracy: AccuracyResult | None,
    report: Report,
    value: float | None,
    samples: int | None = None,
) -> AccuracyResult | None:
    """Return an accuracy with its value and its number of samples.

    Args:
        key: Key of the object that has the accuracy.
        accuracy: The accuracy.
        report: The report, for the metric and the number of test samples.
        value: Value that other numbers give, if any.
        samples: Number of samples that other numbers give, if any.
    """
    if accuracy is None:
        return None
    top1 = accuracy.top1 if report.metric.is_accuracy else None
    test_samples = report.data.splits.get("test")
    return accuracy.replace(
        value=_resolve(f"{key}.accuracy.value", accuracy.value, value, top1),
        samples=_resolve(f"{key}.accuracy.samples", accuracy.samples, test_samples, samples),
    )


def _complete_original(report: Report) -> OriginalResult:
    """Return the original, whose accuracy follows from the counts of every file."""
    original = report.original
    counts = [file.paired_counts for file in report.files if file.paired_counts is not None]
    fractions = [count.first_fraction for count in counts]
    perfect = 1.0 if report.metric.is_relative else None
    value = _resolve("original.accuracy.value", None, perfect, *fractions)
    accuracy = _complete_accuracy("original", original.accuracy, report, value)
    return original.replace(accuracy=accuracy)


def _complete_network(
    key: str, network: NetworkT, layer_nonzeros: Sequence[int | None], report: Report
) -> NetworkT:
    """Return a network whose files are complete with its own numbers.

    Args:
        key: Key of the network.
        network: The network.
        layer_nonzeros: Nonzeros of each layer of the report in this network; None if not counted.
        report: The report, with its original complete.
    """
    accuracy = network.accuracy
    drop = network.drop
    value = counts = None
    least_accurate = network.least_accurate(report.metric)
    if least_accurate is not None:
        accuracy = accuracy or least_accurate.accuracy
        value = least_accurate.value
        counts = least_accurate.paired_counts
    accuracy = _complete_accuracy(key, accuracy, report, value)
    original = report.original.value
    if original is not None and accuracy is not None:
        drop = report.metric.compute_drop(original, accuracy.value)
    interval = _complete_interval(network.drop_interval, counts, drop)
    network = network.replace(accuracy=accuracy, drop=drop, drop_interval=interval)
    return _complete_counts(key, network, layer_nonzeros, report.model)


def _complete_counts(
    key: str, network: NetworkT, layer_nonzeros: Sequence[int | None], model: ModelInfo
) -> NetworkT:
    """Return a network with its nonzeros, sparsity and compression.

    Args:
        key: Key of the network.
        network: The network.
        layer_nonzeros: Nonzeros of each layer in this network; None if not counted.
        model: The model.
    """
    total = _reduce_known(sum, layer_nonzeros)
    most = _reduce_known(max, [file.nonzeros for file in network.files])
    network = network.replace(nonzeros=_resolve(f"{key}.nonzeros", network.nonzeros, total, most))
    if model.layer_elements and total is not None:
        counts = Sparsity(model.layer_elements, total)
        network = network.replace(sparsity=counts.sparsity, compression=counts.compression)
    if model.float_elements and network.model_nonzeros:
        counts = Sparsity(model.float_elements, network.model_nonzeros)
        network = network.replace(model_compression=counts.compression)
    return network


def _reduce_known(reduce: Any, counts: Sequence[int | None]) -> int | None:
    """Return the sum or the maximum of counts; None if one is unknown, or there are none."""
    if not counts or None in counts:
        return None
    return int(reduce(counts))


def _complete_interval(
    stated: Interval | None, counts: PairedCounts | None, value: float | None
) -> Interval | None:
    """Return the interval that counts of samples give, or a measured one that holds the value.

    Args:
        stated: The interval in the report.
        counts: Counts of samples, if they can be counted.
        value: The value that the interval belongs to.
    """
    interval = None if counts is None else counts.compute_interval()
    if interval is not None:
        return interval
    if stated is None or value is None:
        return stated
    return min(stated[0], value), max(stated[1], value)


def _complete_points(baseline: BaselineResult, model: ModelInfo) -> BaselineResult:
    """Return the baseline with its points. The first one has a file of the baseline."""
    if baseline.unstructured is not None:
        point = _complete_point(baseline.unstructured, None, model)
        baseline = baseline.replace(unstructured=point)
    if not baseline.curve:
        return baseline
    files = {file.path: file for file in baseline.files}
    points = []
    for number, point in enumerate(baseline.curve):
        file = files.get(point.path) if number == 0 else None
        points.append(_complete_point(point, file, model))
    return baseline.replace(curve=tuple(points), num_trainings=len(points))


def _complete_point(
    point: BaselinePoint, file: FileResult | None, model: ModelInfo
) -> BaselinePoint:
    """Return a point of the baseline with what its file has, if the report lists the file."""
    if model.layer_elements and point.nonzeros:
        counts = Sparsity(model.layer_elements, point.nonzeros)
        point = point.replace(compression=counts.compression)
    if file is None:
        return point
    accuracy = point.accuracy if file.value is None else file.value
    return point.replace(accuracy=accuracy, sha256=file.sha256, data_sha256=file.data_sha256)


def _complete_gain(report: Report) -> BaselineResult | None:
    gain = report.gain
    baseline = report.baseline
    if baseline is None or gain is None:
        return baseline
    key = "compression_at_equal_accuracy"
    reasons = baseline.reasons if gain.reason is None else {**baseline.reasons, key: gain.reason}
    return baseline.replace(
        gain=gain.value,
        gain_bound=gain.bound,
        compression_at_equal_accuracy=gain.compression_at_equal_accuracy,
        reasons=reasons,
    )


def _complete_difference(difference: BaselineDifference, report: Report) -> BaselineDifference:
    """Return the difference of the exact files of the two networks."""
    if report.baseline is None:
        return difference
    pruned = report.pruned.exact_value
    baseline = report.baseline.exact_value
    counts = difference.paired_counts
    if counts is not None:
        check_same("difference.paired_counts", counts.first_fraction, pruned)
        check_same("difference.paired_counts", counts.second_fraction, baseline)
    value = difference.value
    if pruned is not None and baseline is not None:
        value = report.metric.compute_drop(pruned, baseline)
    interval = _complete_interval(difference.interval, counts, value)
    return difference.replace(value=value, interval=interval)


def _collect_sizes(report: Report) -> dict[str, int | None]:
    """Return the bytes of the original, of each file by its label, and the smallest possible."""
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


def _clear_network(network: NetworkT, metric: Metric) -> NetworkT:
    """Return a network without the gated values that must follow from other values."""
    cleared: dict[str, Any] = dict.fromkeys(GATED_KEYS)
    least_accurate = network.least_accurate(metric)
    if least_accurate is not None and not _is_interval_counted(metric, least_accurate.reasons):
        del cleared["drop_interval"]
    return network.replace(**cleared)


def _is_interval_counted(metric: Metric, reasons: dict[str, str]) -> bool:
    """Return whether an interval must follow from counts of samples, and is not measured."""
    return metric.is_sample_fraction and "paired_counts" not in reasons


def _drop_values(network: NetworkT, supported: NetworkResult) -> NetworkT:
    """Return a network without gated values that its supported form lacks, and their reasons."""
    dropped = []
    for key in GATED_KEYS:
        if getattr(network, key) is not None and getattr(supported, key) is None:
            dropped.append(key)
    reasons = {**network.reasons, **dict.fromkeys(dropped, UNSUPPORTED)}
    files = []
    for file in network.files:
        latency = [_complete_latency(entry.replace(ratio=None)) for entry in file.latency]
        files.append(file.replace(latency=tuple(latency)))
    return network.replace(**dict.fromkeys(dropped), files=tuple(files), reasons=reasons)
