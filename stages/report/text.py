"""Numbers as people read them; the same words in every rendering."""

from collections.abc import Mapping
from typing import Any

from ltp_pipeline.intervals import Interval
from ltp_pipeline.records import MOST_WEIGHTS
from ltp_pipeline.report_parts import Metric
from ltp_pipeline.report_schema import LEARNED, SPARED, Measured, Pruned, Report

NOTHING = "–"
KERNELS, WHOLE = "compression, kernels", "compression, whole model"  # rows of tables
METRICS = {
    "top-1": "top-1 accuracy",
    "agreement": "agreement with the original",
    "explained": "share of the original's variance explained",
}


def metric_words(metric: Metric) -> str:
    """The metric as a sentence calls it: only right answers are called accuracy."""
    return METRICS.get(metric.name, metric.name)


def capital(words: str) -> str:
    """The words as a title begins."""
    return words[:1].upper() + words[1:]


def percent(value: float | None, digits: int = 2) -> str:
    """0.9132 → 91.32 %."""
    return NOTHING if value is None else f"{100 * value:.{digits}f} %".replace("-", "−")


def points(value: float | None) -> str:
    """0.0045 → 0.45 points; a minus sign is a gain."""
    return NOTHING if value is None else f"{_signed(100 * value)} points"


def interval(value: Interval | None) -> str:
    """[-0.0004, 0.0094] → −0.04 to 0.94."""
    return "" if value is None else f"{_signed(100 * value[0])} to {_signed(100 * value[1])}"


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


def equal_argmax(part: Measured | None) -> float | None:
    """The share of samples whose largest output is the original's, where that was measured."""
    return part.accuracy.equal_argmax if part and part.accuracy else None


def whole(network: Pruned) -> str:
    """What belongs beside every compression: `, 1.01× in the whole model`; nothing where it is not known."""
    found = network.model_compression
    return "" if found is None else f", {times(found)} in the whole model"


def few_kernels(report: Report) -> str | None:
    """The warning that kernels are only a part of the model, so that their compression says little."""
    kernels, floats = report.model.kernel_elements, report.model.float_elements
    if kernels is None or not floats or kernels >= MOST_WEIGHTS * floats:
        return None
    said = f"kernels hold only {percent(kernels / floats, 1)} of the model's {count(floats)} weights"
    return f"{said}: the whole model has {times(report.pruned.model_compression)} fewer"


def short_name(network: Pruned) -> str:
    """How a column of a table is headed."""
    return "LTP" if network.method == LEARNED else "global magnitude"


def network_words(network: Pruned) -> str:
    """What a network is called."""
    return f"{short_name(network)}{' with its classifier spared' if network.method == SPARED else ''}"


def result(report: Report) -> str:
    """The pruned network beside the original, in one sentence."""
    pruned, drop = report.pruned, report.pruned.drop
    if pruned.compression is None or drop is None:
        return "The pruned network was not measured completely."
    change = "loses" if drop > 0 else "gains" if drop < 0 else "changes by"
    budget = "accuracy budget" if report.metric.counts_right_answers else "budget"
    sentence = f"Outside the {budget}: " if report.budget_missed else ""
    sentence += f"{times(pruned.compression)} fewer weights in kernels{whole(pruned)}; "
    sentence += f"{metric_words(report.metric)} {change} {points(abs(drop))}"
    if spread := interval(pruned.drop_interval):
        sentence += f" (95 % interval of the drop {spread})"
    return f"{sentence}."


def _signed(value: float) -> str:
    return f"{value + 0.0:.2f}".replace("-0.00", "0.00").replace("-", "−")
