"""Format numbers, sizes and names for the report's templates and plots.

The functions are filters of the templates under their own names. None becomes a dash.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from ltp_pipeline.results.schema import (
    CLASSIFIER_EXCLUDED,
    GRADUAL_METHOD,
    IN_BLOCKS,
    LAMP_SCORES,
    LTP_METHOD,
    MAGNITUDE_METHOD,
)
from ltp_pipeline.system import text

if TYPE_CHECKING:
    from ltp_pipeline.results.intervals import Interval
    from ltp_pipeline.results.metric import Metric
    from ltp_pipeline.results.schema import EvaluatedResult, NetworkResult, ValidationLead

ARGMAX_AGREEMENT = "argmax agreement"
SHORT_NAMES = {
    LTP_METHOD: "LTP",
    MAGNITUDE_METHOD: "global magnitude",
    GRADUAL_METHOD: "gradual magnitude",
}  # of methods
METRIC_NAMES = {
    "top-1": "top-1 accuracy",
    "agreement": "agreement with the original",
    "r2_vs_original": "R² against the original",
}


def format_percent(value: float | None, digits: int = 2) -> str:
    """Return a fraction as percent: 0.9132 → 91.32 %."""
    if value is None:
        return text.MISSING
    return text.format_percent(value, digits)


def format_value(value: float | None, metric: Metric) -> str:
    """Return a value of the metric with its unit: 91.32 %, 2.31 °C."""
    if value is None:
        return text.MISSING
    return metric.format_value(value)


def format_drop(value: float | None, metric: Metric) -> str:
    """Return a drop in the metric with its unit; a negative drop is an improvement."""
    if value is None:
        return text.MISSING
    return metric.format_drop(value)


def format_interval(value: Interval | None, metric: Metric) -> str:
    """Return both ends of an interval of drops: −0.04 to 0.94."""
    if value is None:
        return text.MISSING
    return metric.format_interval(value)


def format_factor(value: float) -> str:
    """Return a factor with three digits: 1.888 → 1.89."""
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def format_size(value: float | None) -> str:
    """Return a number of bytes in decimal units: 131072 → 131 kB."""
    if value is None:
        return text.MISSING
    for unit in ("B", "kB", "MB"):
        if value < 999.5:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} GB"


def format_count(value: float | None) -> str:
    """Return a count in groups of three digits, separated by narrow no-break spaces."""
    if value is None:
        return text.MISSING
    return f"{value:,.0f}".replace(",", "\u202f")


def format_cell(value: Any) -> str:
    """Return any setting or measurement as the text of a table cell."""
    if value is None:
        return text.MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(format_cell, value)) or text.MISSING
    return str(value)


def format_range(bounds: Sequence[float], dtype: str | None) -> str:
    """Return the range of stored values of a data type."""
    low, high = bounds
    if dtype == "bool":
        return "False or True"
    if (dtype or "").startswith("float"):
        return f"{low:.6g} to {high:.6g}"
    return f"{low} to {high}"


def flatten_settings(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Return nested settings as rows of dotted names and formatted values."""
    rows = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            rows += flatten_settings(value, f"{prefix}{key}.")
        else:
            rows.append((f"{prefix}{key}", format_cell(value)))
    return rows


def capitalize_phrase(phrase: str) -> str:
    """Return the phrase with a capital first letter; words like mIoU stay as they are."""
    first_word = phrase.split(maxsplit=1)[:1]
    if first_word and first_word[0].islower():
        return phrase[:1].upper() + phrase[1:]
    return phrase


def name_metric(metric: Metric) -> str:
    """Return the name of the metric in a sentence; only top-1 is called accuracy."""
    return METRIC_NAMES.get(metric.name) or text.make_printable(metric.name)


def label_axis(metric: Metric) -> str:
    """Return the label of an axis: metric, unit, and a remark if lower is better."""
    unit = "" if metric.axis_unit is None else f", {text.make_printable(metric.axis_unit)}"
    direction = "" if metric.higher_is_better else " (lower is better)"
    return f"{name_metric(metric)}{unit}{direction}"


def name_method(network: NetworkResult | ValidationLead) -> str:
    """Return the short name of the method that pruned a network, as a column title."""
    return SHORT_NAMES.get(network.method.partition(",")[0], SHORT_NAMES[MAGNITUDE_METHOD])


def name_network(network: NetworkResult | ValidationLead) -> str:
    """Return the full name of the method that pruned a network, as sentences use it."""
    if network.method == LTP_METHOD:
        return "LTP"
    name = f"{name_method(network)} pruning"
    if IN_BLOCKS in network.method:
        name += " in blocks"
    if LAMP_SCORES in network.method:
        name += " by LAMP scores"
    if CLASSIFIER_EXCLUDED in network.method:
        name += " with the classifier excluded"
    return name


def format_epochs(network: NetworkResult) -> str:
    """Return the numbers of epochs of pruning and of fine-tuning: 12 + 6."""
    if network.epochs is None:
        return text.MISSING
    return f"{network.epochs.prune} + {network.epochs.finetune}"


def list_extra_labels(results: Sequence[EvaluatedResult]) -> list[str]:
    """Return the labels of the metrics in addition to the main one, of several networks."""
    labels: dict[str, None] = {}
    for result in results:
        labels |= dict.fromkeys(_extra_metrics(result))
    return list(labels)


def format_extra_metric(result: EvaluatedResult, label: str) -> str:
    """Return the value of a metric in addition to the main one."""
    return _extra_metrics(result).get(label, text.MISSING)


def _extra_metrics(result: EvaluatedResult) -> dict[str, str]:
    """Return formatted values by label."""
    accuracy = result.accuracy
    if accuracy is None:
        return {}
    values = {}
    if accuracy.argmax_agreement is not None:
        values[ARGMAX_AGREEMENT] = format_percent(accuracy.argmax_agreement)
    for extra in accuracy.extra_metrics:
        values[text.make_printable(extra.metric.label)] = extra.text
    return values


def format_file_size(network: NetworkResult, label: str) -> str:
    """Return the size of the network's file with this label."""
    sizes = {file.label: file.bytes for file in network.files}
    return format_size(sizes.get(label))


def find_smallest_size(network: NetworkResult) -> int | None:
    """Return the number of bytes of the network's smallest file; None if no size is known."""
    return min((file.bytes for file in network.files if file.bytes), default=None)


def join_lines(paragraph: str) -> str:
    """Return the lines of a template's block as one line.

    Narrow no-break spaces, which separate digits, stay. Escaped text stays marked as escaped.
    """
    return type(paragraph)(re.sub(r"[ \n]+", " ", paragraph).strip())


def escape_markdown(value: Any) -> str:
    """Return text from a model or from data as Markdown that shows it and does nothing else.

    Hyphens and underscores inside a word are left alone, because they have no meaning there.
    """
    flat = re.sub(r"[^\S\u202f]+", " ", str(value))
    flat = flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    flat = re.sub(r"([\\`*{}\[\]()#+!|~@])", r"\\\1", flat)
    return re.sub(r"(?<![^\W_])([_-])|([_-])(?![^\W_])", r"\\\1\2", flat)


def to_code_span(value: Any) -> Markup:
    """Return a name as a Markdown code span, in which nothing is a link, a mention or a tag."""
    flat = " ".join(str(value).replace("`", "'").split())
    return Markup(f"`{flat}`")  # noqa: S704 - the only character with a meaning was replaced
