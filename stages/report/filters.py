"""Numbers as people read them; the same words in every rendering."""

from collections.abc import Callable, Mapping
from typing import Any

from ltp_pipeline.graph.layer_weights import MIN_LAYER_FRACTION
from ltp_pipeline.results.intervals import Interval
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.results.schema import (
    CLASSIFIER_EXCLUDED,
    IN_BLOCKS,
    LTP_METHOD,
    EvaluatedResult,
    FileResult,
    NetworkResult,
    Report,
)
from ltp_pipeline.system import text

NOTHING = "–"
KERNELS, WHOLE = "compression, kernels", "compression, whole model"  # rows of tables
EQUAL_ARGMAX = "equal arg-max"
METRICS = {
    "top-1": "top-1 accuracy",
    "agreement": "agreement with the original",
    "r2_vs_original": "share of the original's variance explained",
}


def metric_words(metric: Metric) -> str:
    """The metric as a sentence calls it: only right answers are called accuracy."""
    return METRICS.get(metric.name, text.printable(metric.name))


def metric_title(metric: Metric) -> str:
    """The same with its direction, where that is not the usual one."""
    return metric_words(metric) + ("" if metric.higher_is_better else ", lower is better")


def axis_label(metric: Metric) -> str:
    """What stands at an axis: the metric, the unit of its numbers, and where better is."""
    unit = "" if metric.axis_unit is None else f", {text.printable(metric.axis_unit)}"
    return f"{metric_words(metric)}{unit}{'' if metric.higher_is_better else ' (lower is better)'}"


def capital(phrase: str) -> str:
    """The words as a title begins; mIoU stays what it is."""
    first = phrase.split(maxsplit=1)[:1]
    return phrase[:1].upper() + phrase[1:] if first and first[0].islower() else phrase


def percent(value: float | None, digits: int = 2) -> str:
    """0.9132 → 91.32 %."""
    return NOTHING if value is None else text.percent(value, digits)


def value(metric: Metric, found: float | None) -> str:
    """91.32 %, 2.31 °C."""
    return NOTHING if found is None else metric.shown(found)


def drop(metric: Metric, found: float | None) -> str:
    """0.45 points, 0.04 °C; a minus sign is a gain."""
    return NOTHING if found is None else metric.shown_drop(found)


def interval(metric: Metric, found: Interval | None) -> str:
    """−0.04 to 0.94, in points or the metric's unit."""
    return "" if found is None else metric.shown_interval(found)


def times(value: float | None) -> str:
    """8.3637 → 8.36×."""
    return NOTHING if value is None else f"{value:.{2 if value < 100 else 0}f}×"


def size(value: float | None) -> str:
    """131072 → 131 kB, decimal units."""
    if value is None:
        return NOTHING
    for unit in ("B", "kB", "MB"):
        if value < 999.5:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} GB"


def count(value: float | None) -> str:
    """432400 → 432 400, with a narrow space that does not break."""
    return NOTHING if value is None else f"{value:,.0f}".replace(",", "\u202f")


def plain(value: Any) -> str:
    """Any setting or measurement in a table cell."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return ", ".join(plain(v) for v in value) or NOTHING
    return str(value)


def flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as rows of dotted names."""
    rows = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            rows += flat(value, f"{prefix}{key}.")
        else:
            rows.append((f"{prefix}{key}", plain(value)))
    return rows


def speed(report: Report, file: FileResult, named: Callable[[str], str] = str) -> str:
    """Bytes, accuracy and latency of a file that was written to be faster, beside the original's."""
    metric, original = report.metric, report.original
    share = (
        f" ({percent(file.bytes / original.bytes, 1)} of the original)"
        if file.bytes and original.bytes
        else ""
    )
    told = [f"{count(file.bytes)} bytes{share}", f"{metric.label} {value(metric, file.value)}"]
    told[1] += f" (original {value(metric, original.value)})"
    if file.gated_latency_ratio is not None:
        told.append(
            f"latency {file.gated_latency_ratio:.2f} × the original's for one sample on one thread"
        )
    if file.quantization is not None and file.quantization.trained_epochs:
        told.append("trained in 8 bits")
    if file.sparse_kernels is not None:
        told.append(f"on sparse kernels ({file.sparse_kernels.instruction_set})")
    return f"{named(file.label)}: {', '.join(told)}."


def speed_sentences(report: Report, named: Callable[[str], str] = str) -> list[str]:
    """The same for all such files of the pruned network."""
    return [speed(report, file, named) for file in report.pruned.files if file.is_for_speed]


def beside(part: EvaluatedResult) -> dict[str, str]:
    """What is told beside the metric, by its name."""
    accuracy = part.accuracy
    if accuracy is None:
        return {}
    equal = (
        {}
        if accuracy.argmax_agreement is None
        else {EQUAL_ARGMAX: percent(accuracy.argmax_agreement)}
    )
    return equal | {
        text.printable(figure.metric.label): figure.shown for figure in accuracy.extra_metrics
    }


def beside_rows(*parts: EvaluatedResult) -> list[tuple[str, ...]]:
    """The same of several networks, as rows of a table."""
    told = [beside(part) for part in parts]
    names = dict.fromkeys(name for one in told for name in one)
    return [(name, *(one.get(name, NOTHING) for one in told)) for name in names]


def whole(network: NetworkResult) -> str:
    """What belongs beside every compression: `, 1.01× in the whole model`; nothing where it is not known."""
    found = network.model_compression
    return "" if found is None else f", {times(found)} in the whole model"


def few_kernels(report: Report) -> str | None:
    """The warning that kernels are only a part of the model, so that their compression says little."""
    kernels, floats = report.model.layer_elements, report.model.float_elements
    if kernels is None or not floats or kernels >= MIN_LAYER_FRACTION * floats:
        return None
    said = (
        f"kernels hold only {percent(kernels / floats, 1)} of the model's {count(floats)} weights"
    )
    return f"{said}: the whole model has {times(report.pruned.model_compression)} fewer"


def short_name(network: NetworkResult) -> str:
    """How a column of a table is headed."""
    return "LTP" if network.method == LTP_METHOD else "global magnitude"


def network_words(network: NetworkResult) -> str:
    """What a network is called."""
    added = {" in blocks": IN_BLOCKS, " with its classifier excluded": CLASSIFIER_EXCLUDED}
    return short_name(network) + "".join(
        text for text, name in added.items() if name in network.method
    )


def result(report: Report) -> str:
    """The pruned network beside the original, in one sentence."""
    pruned, metric, lost = report.pruned, report.metric, report.pruned.drop
    if pruned.compression is None or lost is None:
        return "The pruned network was not measured completely."
    worse, better = (
        ("loses", "gains") if metric.higher_is_better else ("is worse by", "is better by")
    )
    change = worse if lost > 0 else better if lost < 0 else "changes by"
    budget = "accuracy budget" if metric.counts_right_answers else "budget"
    sentence = f"Outside the {budget}: " if report.budget_not_met else ""
    sentence += f"{times(pruned.compression)} fewer weights in kernels{whole(pruned)}; "
    sentence += f"{metric_words(metric)} {change} {metric.shown_drop(abs(lost))}"
    if spread := interval(metric, pruned.drop_interval):
        sentence += f" (95 % interval of the drop {spread})"
    return f"{sentence}."
