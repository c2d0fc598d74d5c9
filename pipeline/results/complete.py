"""Compute every number of a report that follows from other numbers, each in one place."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ltp_pipeline.graph.sparsity import Sparsity
from ltp_pipeline.results.consistency import check_same
from ltp_pipeline.results.metric import BUILT_IN_METRICS, Metric
from ltp_pipeline.results.schema import (
    LTP_METHOD,
    BaselineDifference,
    BaselinePoint,
    BaselineResult,
    CostBudgetResult,
    FileLatencyResult,
    FileResult,
    NetworkComparison,
    NetworkResult,
    OriginalResult,
    Report,
)
from ltp_pipeline.results.schema_parts import AccuracyResult, LayerResult, ModelInfo
from ltp_pipeline.results.values import Interval, PairedCounts
from ltp_pipeline.settings.file_names import FAST
from ltp_pipeline.settings.schema import BudgetSettings

BYTES_FILE = "packed"  # label of the file that a budget of bytes limits
LATENCY_NOISE = 1.1  # a measured latency within this factor of the budget meets it
UNSUPPORTED = "nothing else in the report supports it"
GATED_KEYS = (
    "accuracy",
    "drop",
    "drop_interval",
    "compression",
    "model_compression",
    "sparsity",
    "macs_left",
)  # keys of a network whose values gates check
NONZEROS_KEYS = {
    "pruned": "nonzeros",
    "baseline": "baseline_nonzeros",
    "gradual_baseline": "gradual_nonzeros",
    "ltp": "ltp_nonzeros",
}  # of a layer, by network

NetworkT = TypeVar("NetworkT", bound=NetworkResult)
T = TypeVar("T")


def complete(report: Report) -> Report:
    """Return the report with every number that follows from its other numbers.

    A number is replaced if everything that it follows from is known. Otherwise it stays as it is.

    Raises:
        ContradictionError: Two numbers that a third one follows from contradict each other.
    """
    layers = tuple(map(_complete_layer, report.layers))
    seed = report.settings.get("train", {}).get("seed")
    if seed is not None:
        report = report.replace(environment=report.environment.replace(seed=seed))
    report = report.replace(
        metric=_complete_metric(report), layers=layers, model=_complete_model(report.model, layers)
    )
    report = _update_networks(report, _complete_files)
    report = report.replace(original=_complete_original(report))
    report = _update_networks(report, _complete_network)
    if report.baseline is not None:
        report = report.replace(baseline=_complete_points(report.baseline, report.model))
        report = report.replace(baseline=_complete_gain(report))
    if report.difference is not None:
        difference = _complete_difference("difference", report.difference, report, report.baseline)
        report = report.replace(difference=difference)
    report = _update_networks(report, _complete_other)
    report = report.replace(comparison=_complete_comparison(report))
    report = report.replace(cost_budget=_complete_cost_budget(report))
    return report.replace(sizes=_collect_sizes(report))


def drop_unsupported_values(report: Report) -> Report:
    """Return the report without values that gates check and that follow from nothing in it.

    A dropped value becomes null, with its reason, and counts as not measured.
    """
    cleared = _update_networks(report, _clear_network)
    difference = report.difference
    if difference is not None:
        changes: dict[str, Any] = {"value": None}
        if _is_interval_counted(report.metric, difference.reasons):
            changes["interval"] = None
        cleared = cleared.replace(difference=difference.replace(**changes))
    supported = complete(cleared)
    computed = supported.difference
    is_known = computed is not None and None not in (computed.value, computed.interval)
    if difference is not None and not is_known:
        report = report.replace(difference=difference.replace(interval=None))
    return _update_networks(
        report, lambda key, network, _: _drop_values(network, getattr(supported, key))
    )


def put_nonzeros(
    report: Report, network: str, layer_nonzeros: Mapping[str, int], model_nonzeros: int
) -> Report:
    """Return the report with other counts of nonzeros of a network.

    Args:
        report: The report.
        network: Key of the network, such as "pruned" or "baseline".
        layer_nonzeros: Nonzeros of each layer weight.
        model_nonzeros: Nonzeros of all float weights.
    """
    key = NONZEROS_KEYS[network]
    layers = [layer.replace(**{key: layer_nonzeros[layer.name]}) for layer in report.layers]
    part = getattr(report, network).replace(model_nonzeros=model_nonzeros)
    return report.replace(**{network: part}, layers=tuple(layers))


def bound_size(original_bytes: int, elements: int, nonzeros: int) -> int:
    """Return the fewest bytes that hold a model if each nonzero is stored raw, in 32 bits.

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


def _update_networks(report: Report, update: Callable[[str, Any, Report], Any]) -> Report:
    """Return the report with its networks replaced by those that a function returns for them."""
    report = report.replace(pruned=update("pruned", report.pruned, report))
    for key, network in report.other_networks.items():
        report = report.replace(**{key: update(key, network, report)})
    return report


def _resolve(key: str, stated: T, *sources: T | None) -> T:
    """Return the value that the known sources agree on, or the stated one if none is known."""
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


def _complete_layer(layer: LayerResult) -> LayerResult:
    elements = math.prod(layer.shape) if layer.shape else layer.elements
    return layer.replace(elements=elements, prunable=layer.reason is None)


def _complete_model(model: ModelInfo, layers: Sequence[LayerResult]) -> ModelInfo:
    if not layers:
        return model
    elements = sum(layer.elements for layer in layers)
    model = model.replace(num_layers=len(layers), layer_elements=elements)
    uses = [layer.uses for layer in layers]
    if None in uses:
        return model
    return model.replace(macs=_count_macs(layers, [layer.elements for layer in layers]))


def _complete_files(key: str, network: NetworkT, report: Report) -> NetworkT:
    """Return a network with complete files."""
    files = []
    for number, file in enumerate(network.files):
        file_key = f"{key}.files.{number}"
        counts = file.paired_counts
        if counts is None:
            accuracy = _complete_accuracy(file_key, file.accuracy, report)
        else:
            accuracy = _complete_accuracy(
                file_key, file.accuracy, report, counts.second_fraction, counts.samples
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
    value: float | None = None,
    samples: int | None = None,
) -> AccuracyResult | None:
    """Return an accuracy with the value and the number of samples that other numbers give, if any.

    `key` is the key of the object that has the accuracy.
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


def _complete_network(key: str, network: NetworkT, report: Report) -> NetworkT:
    """Return a network whose files are complete, and whose original is, with its own numbers."""
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
    layer_nonzeros = _list_all([getattr(layer, NONZEROS_KEYS[key]) for layer in report.layers])
    total = sum(layer_nonzeros) if layer_nonzeros else None
    most = max(_list_all([file.nonzeros for file in network.files]), default=None)
    network = network.replace(nonzeros=_resolve(f"{key}.nonzeros", network.nonzeros, total, most))
    model = report.model
    if model.layer_elements and total is not None:
        sparsity = Sparsity(model.layer_elements, total)
        network = network.replace(sparsity=sparsity.sparsity, compression=sparsity.compression)
    if layer_nonzeros and model.macs and all(layer.uses is not None for layer in report.layers):
        macs = _count_macs(report.layers, layer_nonzeros)
        network = network.replace(macs_left=macs / model.macs)
    if model.float_elements and network.model_nonzeros:
        sparsity = Sparsity(model.float_elements, network.model_nonzeros)
        network = network.replace(model_compression=sparsity.compression)
    return network


def _count_macs(layers: Sequence[LayerResult], counts: Sequence[int]) -> int:
    """Return the multiply-adds of these numbers of weights of layers, whose uses are known."""
    return sum((layer.uses or 0) * count for layer, count in zip(layers, counts, strict=True))


def _list_all(counts: Sequence[int | None]) -> list[int]:
    """Return the counts, or none of them if one is unknown."""
    known_counts = [count for count in counts if count is not None]
    return known_counts if len(known_counts) == len(counts) else []


def _complete_interval(
    stated: Interval | None, counts: PairedCounts | None, value: float | None
) -> Interval | None:
    """Return the interval that counts of samples give, or a stated one stretched to the value."""
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
    reasons = baseline.reasons
    if gain.reason is not None:
        reasons = {**reasons, "compression_at_equal_accuracy": gain.reason}
    return baseline.replace(
        gain=gain.value,
        gain_bound=gain.bound,
        compression_at_equal_accuracy=gain.compression_at_equal_accuracy,
        reasons=reasons,
    )


def _complete_difference(
    key: str, difference: BaselineDifference, report: Report, other: NetworkResult | None
) -> BaselineDifference:
    """Return the difference of the exact files of the pruned network and of another one."""
    if other is None:
        return difference
    pruned_value = report.pruned.exact_value
    other_value = other.exact_value
    counts = difference.paired_counts
    if counts is not None:
        check_same(f"{key}.paired_counts", counts.samples, report.data.splits.get("test"))
        check_same(f"{key}.paired_counts", counts.first_fraction, pruned_value)
        check_same(f"{key}.paired_counts", counts.second_fraction, other_value)
    value = difference.value
    if pruned_value is not None and other_value is not None:
        value = report.metric.compute_drop(pruned_value, other_value)
    interval = _complete_interval(difference.interval, counts, value)
    return difference.replace(value=value, interval=interval)


def _complete_other(key: str, network: NetworkT, report: Report) -> NetworkT:
    """Return a network with its difference from the pruned one, if it has one."""
    difference = getattr(network, "difference", None)
    if difference is None:
        return network
    difference = _complete_difference(f"{key}.difference", difference, report, network)
    return network.replace(difference=difference)


def _complete_comparison(report: Report) -> NetworkComparison:
    """Return the comparison with the leads that the accuracies on the validation split give."""
    values = {network.base_method: network.validation_accuracy for network in report.networks}
    samples = report.data.splits.get("val")
    return complete_leads(report.comparison, values, report.metric, samples)


def complete_leads(
    comparison: NetworkComparison,
    values: Mapping[str, float | None],
    metric: Metric,
    samples: int | None = None,
) -> NetworkComparison:
    """Return a comparison with the lead of each baseline, and the one that is better than LTP.

    Args:
        comparison: The comparison.
        values: Metric on the validation split by method; methods may be missing.
        metric: The metric.
        samples: Number of samples of the validation split; None if it is unknown.
    """
    ltp_value = values.get(LTP_METHOD)
    leads = []
    for number, lead in enumerate(comparison.baselines):
        counts = lead.paired_counts
        own_value = values.get(lead.method)
        if counts is not None:
            key = f"comparison.baselines.{number}.paired_counts"
            check_same(key, counts.samples, samples)
            check_same(key, counts.first_fraction, own_value)
            check_same(key, counts.second_fraction, ltp_value)
        value = lead.value
        if own_value is not None and ltp_value is not None:
            value = metric.compute_drop(own_value, ltp_value)
        interval = _complete_interval(lead.interval, counts, value)
        leads.append(lead.replace(value=value, interval=interval))
    better = max(
        (lead for lead in leads if lead.is_beyond_noise),
        key=lambda lead: lead.value or 0.0,
        default=None,
    )
    return comparison.replace(baselines=tuple(leads), better=better)


def _complete_cost_budget(report: Report) -> CostBudgetResult | None:
    """Return the budget of a cost with what the settings request and the files measure."""
    budget = report.cost_budget
    if budget is None or report.cost_key is None or report.cost_kind is None:
        return budget
    requested = _convert_target(report.settings["budget"][report.cost_key], report)
    measured: float | None = None
    quartiles = None
    if report.cost_kind == "multiply-adds":
        measured = report.pruned.macs_left
    for file in report.pruned.files:
        if report.cost_kind == "bytes" and file.label == BYTES_FILE:
            measured = file.bytes
        if report.cost_kind == "latency" and file.graph == FAST and measured is None:
            measured = file.gated_latency_ratio
            quartiles = file.gated_ratio_quartiles
    is_met = None
    if requested is not None and measured is not None:
        allowed = LATENCY_NOISE if report.cost_kind == "latency" else 1.0
        is_met = measured <= requested * allowed * (1 + 1e-9)
    return budget.replace(
        kind=report.cost_kind,
        requested=requested,
        measured=measured,
        measured_quartiles=quartiles,
        is_met=is_met,
    )


def _convert_target(target: object, report: Report) -> float | None:
    """Return the target of a budget in the unit in which it is measured."""
    if not isinstance(target, int | float):
        return None
    if report.cost_kind != "bytes":
        return target
    original = report.original.bytes
    return None if original is None else BudgetSettings(target_bytes=target).count_bytes(original)


def _collect_sizes(report: Report) -> dict[str, int | None]:
    """Return the bytes of the original, of each file by its label, and the bound."""
    stated = report.sizes
    original = report.original.bytes
    elements = report.model.layer_elements
    nonzeros = report.pruned.nonzeros
    bound = stated.get("raw_values_bound")
    if original and elements and nonzeros is not None:
        bound = bound_size(original, elements, min(nonzeros, elements))
    sizes = {"original": stated.get("original") if original is None else original}
    for file in report.pruned.files:
        sizes[file.label] = stated.get(file.label) if file.bytes is None else file.bytes
    return {**sizes, "raw_values_bound": bound}


def _clear_network(_key: str, network: NetworkT, report: Report) -> NetworkT:
    """Return a network without the gated values that must follow from other values."""
    cleared: dict[str, Any] = dict.fromkeys(GATED_KEYS)
    worst = network.least_accurate(report.metric)
    if worst is not None and not _is_interval_counted(report.metric, worst.reasons):
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
