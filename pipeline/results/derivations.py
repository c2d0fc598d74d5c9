"""Everything in a report that follows from the rest of it.

A derivation is a small function from the report to claims: a key, what the report states under it, and what follows
from the rest, or None where the rest is missing. report_checks.py compares the two.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from ltp_pipeline.gates.evaluation import evaluate_gates, make_gate_settings, summarize_status
from ltp_pipeline.graph.sparsity import Sparsity
from ltp_pipeline.results.metric import BUILT_IN, ROUNDING, Metric
from ltp_pipeline.results.schema import (
    FileLatencyResult,
    FileResult,
    NetworkResult,
    Report,
    size_bound,
)
from ltp_pipeline.results.schema_parts import LayerResult
from ltp_pipeline.results.values import Interval
from ltp_pipeline.settings.file_names import EXACT, FAST, INT8
from ltp_pipeline.system.text import quote_name

TOP1 = "top-1"


class ConsistencyCheck(NamedTuple):
    """What the report states, and what follows from the rest of it; None where it says nothing."""

    key: str
    stated: Any
    derived: Any
    source: str = "the rest of the report"


def same(a: Any, b: Any) -> bool:
    """Whether two values are the same but for rounding."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) or (isinstance(b, float) and isinstance(a, int | float)):
        return isinstance(b, int | float) and math.isclose(a, b, rel_tol=ROUNDING, abs_tol=ROUNDING)
    return bool(a == b)


def claims(report: Report) -> Iterator[ConsistencyCheck]:
    """Everything in the report that follows from the rest of it."""
    for derive in DERIVATIONS:
        yield from derive(report)


def _named_networks(report: Report) -> Iterator[tuple[str, NetworkResult]]:
    yield "pruned", report.pruned
    if report.baseline is not None:
        yield "baseline", report.baseline


def _named_files(report: Report) -> Iterator[tuple[str, FileResult]]:
    for name, network in _named_networks(report):
        for number, file in enumerate(network.files):
            yield f"{name}.files.{number}", file


def _metric(report: Report) -> Iterator[ConsistencyCheck]:
    """The metrics of this program's own tasks are shares of which more is better; another has a task of the user's."""
    metric = report.metric
    if report.custom_task is None:
        name = metric.name if metric.name in BUILT_IN else TOP1
        yield ConsistencyCheck(
            "metric",
            metric,
            Metric(name),
            "its name" if name == metric.name else "custom_task, which is null,",
        )
    if metric.is_relative:
        yield ConsistencyCheck(
            "original.accuracy.value", report.original.value, 1.0, f"the metric {metric.name}"
        )


def _accuracies(report: Report) -> Iterator[ConsistencyCheck]:
    """Samples are those of the test split, top-1 is the metric where it is called so, and is within top-5."""
    measured = [("original", report.original), *_named_networks(report), *_named_files(report)]
    samples = report.data.splits.get("test")
    for name, part in measured:
        if (accuracy := part.accuracy) is None:
            continue
        yield ConsistencyCheck(
            f"{name}.accuracy.samples", accuracy.samples, samples, "the size of the test split"
        )
        if report.metric.name == TOP1 and accuracy.top1 is not None:
            yield ConsistencyCheck(f"{name}.accuracy.value", accuracy.value, accuracy.top1, "top1")
        if accuracy.top1 is not None and accuracy.top5 is not None:
            least = max(accuracy.top5, accuracy.top1)
            yield ConsistencyCheck(
                f"{name}.accuracy.top5", accuracy.top5, least, "top1, which cannot be more,"
            )


def _outcomes(report: Report) -> Iterator[ConsistencyCheck]:
    """Shares of right answers follow from the counts of samples."""
    for name, file in _named_files(report):
        if file.paired_counts is not None and file.accuracy is not None:
            yield ConsistencyCheck(
                f"{name}.paired_counts",
                file.paired_counts.samples,
                file.accuracy.samples,
                "the number of samples",
            )
            yield ConsistencyCheck(
                f"{name}.accuracy.value",
                file.value,
                file.paired_counts.second_fraction,
                "paired_counts",
            )
            yield ConsistencyCheck(
                "original.accuracy.value",
                report.original.value,
                file.paired_counts.first_fraction,
                f"{name}.paired_counts",
            )
    found = report.difference and report.difference.paired_counts
    if found and report.baseline is not None:
        for name, value, share in (
            ("pruned", report.pruned.exact_value, found.first_fraction),
            ("baseline", report.baseline.exact_value, found.second_fraction),
        ):
            yield ConsistencyCheck(
                f"the accuracy of {name}", value, share, "difference.paired_counts"
            )


def _networks(report: Report) -> Iterator[ConsistencyCheck]:
    """A network is as accurate as the least accurate of its files, and its drop is from the original."""
    metric, original = report.metric, report.original.value
    for name, network in _named_networks(report):
        least, value = network.least_accurate(metric), network.value
        yield ConsistencyCheck(
            f"{name}.accuracy", value, least and least.value, "the least accurate of its files"
        )
        drop = None if original is None or value is None else metric.drop(original, value)
        yield ConsistencyCheck(
            f"{name}.drop", network.drop, drop, "the difference of the accuracies"
        )
        alike = [file for file in network.files if file.value == value]
        counted = [
            file.paired_counts.interval() for file in alike if file.paired_counts is not None
        ]
        explained = any("paired_counts" in file.reasons for file in alike)
        yield _interval(
            f"{name}.drop_interval", network.drop_interval, drop, counted, metric, explained
        )


def _difference(report: Report) -> Iterator[ConsistencyCheck]:
    """How much better the pruned network is than the baseline, by the files that are compared."""
    found, baseline = report.difference, report.baseline
    if found is None or baseline is None:
        return
    ours, theirs = report.pruned.exact_value, baseline.exact_value
    value = None if ours is None or theirs is None else report.metric.drop(ours, theirs)
    yield ConsistencyCheck(
        "difference.value", found.value, value, "the difference of the accuracies"
    )
    counted = [found.paired_counts.interval()] if found.paired_counts else []
    yield _interval(
        "difference.interval",
        found.interval,
        value,
        counted,
        report.metric,
        "paired_counts" in found.reasons,
    )


def _interval(
    key: str,
    stated: Interval | None,
    value: float | None,
    counted: list[Interval | None],
    metric: Metric,
    explained: bool,
) -> ConsistencyCheck:
    """Of samples that are right or wrong it follows from their counts; any other at least holds the value."""
    if stated is None or counted:
        known = [one for one in counted if one is not None]
        return ConsistencyCheck(
            key,
            stated,
            next((one for one in known if same(stated, one)), known[0] if known else None),
            "paired_counts",
        )
    if value is None or (metric.counts_samples and not explained):
        return ConsistencyCheck(key, stated, None)
    return ConsistencyCheck(
        key,
        stated,
        (min(stated[0], value), max(stated[1], value)),
        "the value, which it must hold,",
    )


def _counts(report: Report) -> Iterator[ConsistencyCheck]:
    """Sparsity and compression follow from the layers, and from the files that have the most nonzeros."""
    model, layers = report.model, report.layers
    elements = sum(layer.elements for layer in layers) if layers else None
    yield ConsistencyCheck(
        "model.layer_elements", model.layer_elements, elements, "the sum over layers"
    )
    yield ConsistencyCheck(
        "model.num_layers",
        model.num_layers,
        len(layers) if layers else None,
        "the number of layers",
    )
    for name, network, each in (
        ("pruned", report.pruned, _nonzeros),
        *([("baseline", report.baseline, _baseline_nonzeros)] if report.baseline else []),
    ):
        yield from _counted(report, name, network, _total(layers, each))


def _counted(
    report: Report, name: str, network: NetworkResult, total: Sparsity | None
) -> Iterator[ConsistencyCheck]:
    yield ConsistencyCheck(
        f"{name}.nonzeros", network.nonzeros, total and total.nonzeros, "the sum over layers"
    )
    yield ConsistencyCheck(
        f"{name}.sparsity", network.sparsity, total and total.sparsity, "the layers"
    )
    yield ConsistencyCheck(
        f"{name}.compression", network.compression, total and total.compression, "the layers"
    )
    of_files = [file.nonzeros for file in network.files if file.nonzeros is not None]
    whole = len(of_files) == len(network.files) and of_files
    yield ConsistencyCheck(
        f"{name}.nonzeros",
        network.nonzeros,
        max(of_files) if whole else None,
        "the largest of its files",
    )
    floats, left = report.model.float_elements, network.model_nonzeros
    rate = Sparsity(floats, left).compression if floats and left else None
    yield ConsistencyCheck(
        f"{name}.model_compression",
        network.model_compression,
        rate,
        "float_elements / model_nonzeros",
    )
    if left is not None and network.nonzeros is not None:
        least = max(left, network.nonzeros)
        yield ConsistencyCheck(
            f"{name}.model_nonzeros", left, least, "the kernels, which are part of the model,"
        )


def _total(
    layers: Iterable[LayerResult], each: Callable[[LayerResult], int | None]
) -> Sparsity | None:
    """Over all layers; None where there are none, or one was not counted."""
    pairs = [(layer.elements, each(layer)) for layer in layers]
    counted = [Sparsity(elements, nonzeros) for elements, nonzeros in pairs if nonzeros is not None]
    total = Sparsity.combine(counted)
    return total if len(counted) == len(pairs) and total.elements else None


def _nonzeros(layer: LayerResult) -> int | None:
    return layer.nonzeros


def _baseline_nonzeros(layer: LayerResult) -> int | None:
    return layer.baseline_nonzeros


def _layers(report: Report) -> Iterator[ConsistencyCheck]:
    """A layer has as many elements as its shape, no more nonzeros than these, and a name of its own."""
    for number, layer in enumerate(report.layers):
        name = f"layers.{number}"
        if layer.shape:
            yield ConsistencyCheck(
                f"{name}.elements", layer.elements, math.prod(layer.shape), "its shape"
            )
        for key, nonzeros in (
            ("nonzeros", layer.nonzeros),
            ("baseline_nonzeros", layer.baseline_nonzeros),
        ):
            if nonzeros is not None:
                yield ConsistencyCheck(
                    f"{name}.{key}",
                    nonzeros,
                    min(nonzeros, layer.elements),
                    "the number of its elements",
                )
        yield ConsistencyCheck(
            f"{name}.prunable", layer.prunable, layer.reason is None, "its reason"
        )
    model = report.model
    if model.float_elements is not None and model.layer_elements is not None:
        others = sum(weight.elements for weight in model.largest_other_weights)
        least = max(model.float_elements, model.layer_elements + others)
        yield ConsistencyCheck(
            "model.float_elements",
            model.float_elements,
            least,
            "the sum of layers and largest_other_weights",
        )


def _names(report: Report) -> Iterator[ConsistencyCheck]:
    """Names are there once."""
    lists: dict[str, list[Any]] = {
        "layers": [layer.name for layer in report.layers],
        "pruned.files": [file.path for file in report.pruned.files],
        "baseline.files": [file.path for file in report.baseline.files] if report.baseline else [],
        "files": [file.path for file in report.files],
        "labels of pruned.files": [file.label for file in report.pruned.files],
        "points of the baseline": [point.path for point in report.baseline_points.values()],
        "trail": [entry.entry for entry in report.trail],
        "chosen entries of the trail": [entry.selected for entry in report.trail if entry.selected],
    }
    for key, names in lists.items():
        for name, times in Counter(names).items():
            yield ConsistencyCheck(
                f"the number of {quote_name(str(name))} in {key}", times, 1, "the meaning of a name"
            )


def _files(report: Report) -> Iterator[ConsistencyCheck]:
    """What was asked for is there, but for fast files that would not be; what a graph needs is told of it; a ratio is
    that of two times; sizes stand twice."""
    exact = [file.name for file in report.pruned.files if file.weight_storage == EXACT]
    asked = report.settings.get("export", {}).get("formats")
    for name in asked if isinstance(asked, list) else ():
        if name not in exact and str(name).partition("-")[0] == FAST:  # not faster, so not written
            continue
        yield ConsistencyCheck(
            f"the number of {quote_name(str(name))} files",
            exact.count(name),
            1,
            "settings.export.formats",
        )
    for name, file in _named_files(report):
        yield ConsistencyCheck(
            f"{name}.quantization", file.quantization is not None, file.graph == INT8, "its graph"
        )
        yield ConsistencyCheck(
            f"{name}.sparse_kernels",
            file.sparse_kernels is not None,
            file.graph == FAST,
            "its graph",
        )
        for number, entry in enumerate(file.latency):
            yield ConsistencyCheck(
                f"{name}.latency.{number}.ratio", entry.ratio, ratio_of(entry), "ms / original_ms"
            )
    sizes = {file.label: file.bytes for file in report.pruned.files}
    for label, stated in report.sizes.items():
        if label not in ("original", "entropy_bound"):
            yield ConsistencyCheck(f"sizes.{label}", stated, sizes.get(label), "pruned.files")
    original, elements = report.original.bytes, report.model.layer_elements
    yield ConsistencyCheck(
        "sizes.original", report.sizes.get("original"), original, "original.bytes"
    )
    if original and elements and report.pruned.nonzeros is not None:
        bound = size_bound(original, elements, min(report.pruned.nonzeros, elements))
        yield ConsistencyCheck(
            "sizes.entropy_bound",
            report.sizes.get("entropy_bound"),
            bound,
            "the number of nonzeros",
        )


def ratio_of(entry: FileLatencyResult) -> float | None:
    """Of a latency to the original's."""
    return entry.ms / entry.original_ms if entry.ms is not None and entry.original_ms else None


def _curve(report: Report) -> Iterator[ConsistencyCheck]:
    """The gain follows from the curve, whose first point is the baseline's file."""
    baseline = report.baseline
    if baseline is None:
        return
    for key, point in report.baseline_points.items():
        elements = report.model.layer_elements
        rate = (
            Sparsity(elements, point.nonzeros).compression if elements and point.nonzeros else None
        )
        yield ConsistencyCheck(f"{key}.compression", point.compression, rate, "its nonzeros")
    files = {file.path: file for file in baseline.files}
    for number, point in enumerate(report.curve[:1]):
        if (file := files.get(point.path)) is not None:
            yield ConsistencyCheck(
                f"baseline.curve.{number}.accuracy", point.accuracy, file.value, point.path
            )
            yield ConsistencyCheck(
                f"baseline.curve.{number}.sha256", point.sha256, file.sha256, point.path
            )
    if report.curve:
        yield ConsistencyCheck(
            "baseline.num_trainings",
            baseline.num_trainings,
            len(report.curve),
            "the number of points",
        )
    found, stated = (
        report.gain,
        (baseline.gain, baseline.compression_at_equal_accuracy, baseline.gain_bound),
    )
    if found is not None and baseline.gain is not None:
        derived = (found.value, found.compression_at_equal_accuracy, found.bound)
        yield ConsistencyCheck(
            "baseline.gain, compression_at_equal_accuracy and gain_bound",
            stated,
            derived,
            "the curve",
        )


def _pictures(report: Report) -> Iterator[ConsistencyCheck]:
    """Lists that are drawn together are equally long."""
    for number, picture in enumerate(report.histograms):
        for key, bins in (("before", picture.before), ("after", picture.after)):
            yield ConsistencyCheck(
                f"the length of histograms.{number}.{key}",
                len(bins),
                len(picture.edges) - 1,
                "edges",
            )
    if report.scatter is not None:
        yield ConsistencyCheck(
            "the length of scatter.after",
            len(report.scatter.after),
            len(report.scatter.before),
            "before",
        )


def _seed(report: Report) -> Iterator[ConsistencyCheck]:
    yield ConsistencyCheck(
        "environment.seed",
        report.environment.seed,
        report.settings.get("train", {}).get("seed"),
        "settings",
    )


def _gates(report: Report) -> Iterator[ConsistencyCheck]:
    """The verdicts are those of the report's own limits on the files that were asked for."""
    yield ConsistencyCheck("status", report.status, summarize_status(report.gates), "gates")
    limits = make_gate_settings(report.settings.get("gates", {}))
    formats = report.settings.get("export", {}).get("formats")
    files = tuple(
        f for f in report.pruned.files if not isinstance(formats, list) or f.name in formats
    )
    judged = report.model_copy(update={"pruned": report.pruned.model_copy(update={"files": files})})
    found, stated = (
        [(v.name, v.limit, v.value, v.passed) for v in g]
        for g in (evaluate_gates(judged, limits), report.gates)
    )
    yield ConsistencyCheck("the number of gates", len(stated), len(found), "settings.gates")
    for number, (said, derived) in enumerate(zip(stated, found, strict=False)):
        yield ConsistencyCheck(f"gates.{number}", said, derived, "settings.gates")


DERIVATIONS: tuple[Callable[[Report], Iterator[ConsistencyCheck]], ...] = (
    _metric,
    _names,
    _layers,
    _counts,
    _accuracies,
    _outcomes,
    _networks,
    _difference,
    _files,
    _curve,
    _pictures,
    _seed,
    _gates,
)
