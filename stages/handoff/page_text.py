"""Sentences of HANDOFF.md about the report, until the page is a template."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ltp_pipeline.graph.layer_weights import MIN_LAYER_FRACTION
from ltp_pipeline.results.intervals import Interval
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.results.schema import (
    CLASSIFIER_EXCLUDED,
    IN_BLOCKS,
    LTP_METHOD,
    BaselineResult,
    EvaluatedResult,
    FileResult,
    NetworkResult,
    Report,
)
from ltp_pipeline.system import text
from ltp_pipeline.system.text import pluralize

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
    return METRICS.get(metric.name, text.make_printable(metric.name))


def capital(phrase: str) -> str:
    """The words as a title begins; mIoU stays what it is."""
    first = phrase.split(maxsplit=1)[:1]
    return phrase[:1].upper() + phrase[1:] if first and first[0].islower() else phrase


def percent(value: float | None, digits: int = 2) -> str:
    """0.9132 → 91.32 %."""
    return NOTHING if value is None else text.format_percent(value, digits)


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
        text.make_printable(figure.metric.label): figure.shown for figure in accuracy.extra_metrics
    }


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


def network_words(network: NetworkResult) -> str:
    """What a network is called."""
    added = {" in blocks": IN_BLOCKS, " with its classifier excluded": CLASSIFIER_EXCLUDED}
    return short_name(network) + "".join(
        text for text, name in added.items() if name in network.method
    )


def short_name(network: NetworkResult) -> str:
    """How a column of a table is headed."""
    return "LTP" if network.method == LTP_METHOD else "global magnitude"


def _beside_rows(*parts: EvaluatedResult) -> list[tuple[str, ...]]:
    """The same of several networks, as rows of a table."""
    told = [beside(part) for part in parts]
    names = dict.fromkeys(name for one in told for name in one)
    return [(name, *(one.get(name, NOTHING) for one in told)) for name in names]


SAME = 5e-4  # gains that differ from 1 by less are shown as 1


def sentences(report: Report, for_handoff: bool = False) -> list[str]:
    """Where the baseline is ahead, that first; then both comparisons, as far as they were measured.

    `for_handoff` leaves out where to find it: who gets the handoff has no run.
    """
    baseline = report.baseline
    if baseline is None or baseline.exact_value is None:
        return []
    ahead = _ahead(report, baseline, for_handoff)
    found = [
        ahead,
        _at_equal_compression(report, baseline),
        _of_single_weights(report, baseline),
        _at_equal_accuracy(report, baseline),
    ]
    return [sentence for sentence in found if sentence]


def wins(report: Report) -> bool:
    """Whether the baseline is more accurate at the same compression, or sparser at the same accuracy."""
    return _is_more_accurate(report) or (
        report.baseline is not None and _is_sparser(report.baseline)
    )


def _is_more_accurate(report: Report) -> bool:
    difference = report.difference
    return difference is not None and difference.value is not None and difference.value < 0


def _is_sparser(baseline: BaselineResult) -> bool:
    return (
        baseline.gain is not None and baseline.gain_bound != "at least" and baseline.gain < 1 - SAME
    )


def _ahead(report: Report, baseline: BaselineResult, for_handoff: bool) -> str:
    if not wins(report):
        return ""
    words = metric_words(report.metric)
    where = "within the same budget" if _within_budget(report, baseline) else f"at the same {words}"
    named = "" if for_handoff else "; baseline.curve in report.json names the file"
    sparser = f"it needs fewer weights {where}{named}."
    if not _is_more_accurate(report):
        return f"Global magnitude pruning wins here: {sparser}"
    stated = report.difference.interval if report.difference else None
    sure = "" if stated is None else ", beyond chance" if stated[1] < 0 else ", which may be chance"
    word = "wins" if stated is not None and stated[1] < 0 else "is ahead"
    told = f"Global magnitude pruning {word} here: it is better at the same compression{sure}."
    handed = "" if for_handoff else " `ltp-pipeline handoff RUN --network baseline` hands it over."
    return told + handed + (f" And {sparser}" if _is_sparser(baseline) else "")


def _at_equal_compression(report: Report, baseline: BaselineResult) -> str:
    metric = report.metric
    has = f"At LTP's compression {network_words(baseline)} has {metric.shown(baseline.exact_value or 0.0)}"
    if report.difference is None or report.difference.value is None:
        return f"{has}."
    value, stated = report.difference.value, report.difference.interval
    if value == 0:
        return f"{has}, as LTP has."
    place = "ahead" if value > 0 else "behind"
    chance = ", which may be chance" if stated is not None and stated[0] <= 0 <= stated[1] else ""
    spread = "" if stated is None else f" ({metric.shown_interval(stated)}{chance})"
    return f"{has}: LTP is {metric.shown_drop(abs(value))} {place}{spread}."


def _of_single_weights(report: Report, baseline: BaselineResult) -> str:
    """What blocks cost the baseline."""
    single = baseline.unstructured
    if single is None or single.accuracy is None:
        return ""
    return (
        f"Global magnitude of as many single weights has {value(report.metric, single.accuracy)}."
    )


def _at_equal_accuracy(report: Report, baseline: BaselineResult) -> str:
    value, equal = baseline.gain, baseline.compression_at_equal_accuracy
    points = report.points
    if value is None or not points:
        return ""
    budget = _within_budget(report, baseline)
    as_good = "within the same budget" if budget else "as good"
    if baseline.gain_bound == "at least":
        mildest = times(min(points).compression)
        said = f"No measured network of global magnitude, down to {mildest}, is {as_good}"
        fewer = (
            "LTP has fewer weights"
            if value < 1 + SAME
            else f"LTP has at least {_fewer(value)} weights"
        )
        return f"{said}: {fewer}.{_search(report, baseline)}"
    if baseline.gain_bound == "at most":
        sparsest = times(max(points).compression)
        said = f"Global magnitude is still {as_good} at {sparsest}, the sparsest that was measured"
        need = (
            "no fewer weights"
            if value > 1 - SAME
            else f"at least {_number(1 / value)} times as many weights"
        )
        return f"{said}: LTP has {need}.{_search(report, baseline)}"
    if equal is None:
        return ""
    if baseline.budget is None:
        found = report.gain
        ends = [times(p.compression) for p in found.ends] if found else []
        far = ", which are far apart" if found and found.is_wide else ""
        how = "" if times(equal) in ends else f" (interpolated between {' and '.join(ends)}{far})"
        said = (
            f"At LTP's {metric_words(report.metric)} global magnitude reaches {times(equal)}{how}"
        )
    else:
        where = "Within the same budget" if budget else f"At LTP's {metric_words(report.metric)}"
        said = f"{where} the sparsest measured network of global magnitude has {times(equal)}"
    return f"{said}: LTP has {_fewer(value)} weights.{_search(report, baseline)}"


def _within_budget(report: Report, baseline: BaselineResult) -> bool:
    """Whether the two are compared within an accuracy budget, which LTP's network keeps."""
    drop = report.pruned.drop
    return baseline.budget is not None and (drop is None or drop <= baseline.budget)


def _fewer(gain: float) -> str:
    if abs(gain - 1) < SAME:
        return "as many"
    return f"{_number(gain)} times fewer" if gain > 1 else f"{_number(1 / gain)} times as many"


def _search(report: Report, baseline: BaselineResult) -> str:
    """How much was tried for each of the two, where one of them was searched for."""
    if (
        baseline.budget is None
        or report.pruned.num_trainings is None
        or baseline.num_trainings is None
    ):
        return ""
    ltp, other = (
        pluralize(report.pruned.num_trainings, "network"),
        pluralize(baseline.num_trainings, "training"),
    )
    return f" LTP's network was found by fine-tuning {ltp} of its trail, the baseline's by {other}."


def _number(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def escape(value: Any) -> str:
    """Text from a model or data as Markdown that shows it and does nothing else."""
    flat = " ".join(str(value).split())
    flat = flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]()#+!|~@-])", r"\\\1", flat)


def with_escaped_metric(report: Report) -> Report:
    """The report with the name and unit of its metric as Markdown; names that are known stay as they are."""
    metric = report.metric
    name = metric.name if metric.name in METRICS else escape(metric.name)
    unit = None if metric.unit is None else escape(metric.unit)
    return report.model_copy(update={"metric": replace(metric, name=name, unit=unit)})


def code(value: Any) -> str:
    """A name of a layer or file; in a code span nothing is a link, a mention or a tag."""
    return "`" + " ".join(str(value).replace("`", "'").split()) + "`"


def beside_rows(*parts: EvaluatedResult) -> list[tuple[str, ...]]:
    """What is told beside the metric, as Markdown."""
    return [
        row if row[0] == EQUAL_ARGMAX else tuple(map(escape, row)) for row in _beside_rows(*parts)
    ]
