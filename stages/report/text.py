"""Numbers as people read them; the same words in every rendering."""

from collections.abc import Mapping, Sequence
from typing import Any

from ltp_pipeline.lookup import get as get
from ltp_pipeline.lookup import number as number
from ltp_pipeline.records import MOST_WEIGHTS

NOTHING = "–"
COMPRESSIONS = {"compression, kernels": "compression", "compression, whole model": "model_compression"}
METRICS = {
    "top-1": "top-1 accuracy",
    "agreement": "agreement with the original",
    "explained": "share of the original's variance explained",
}


def metric(report: Mapping[str, Any]) -> str:
    """What was measured: top-1, or where the data had no labels agreement with the original or variance explained."""
    name = str(report.get("metric"))
    return name if name in METRICS else "top-1"


def metric_words(report: Mapping[str, Any]) -> str:
    """The metric as a sentence calls it: only right answers are called accuracy."""
    return METRICS[metric(report)]


def labelled(report: Mapping[str, Any]) -> bool:
    """Whether right answers were counted."""
    return metric(report) == "top-1"


def capital(words: str) -> str:
    """The words as a title begins."""
    return words[:1].upper() + words[1:]


def percent(value: Any, digits: int = 2) -> str:
    """0.9132 → 91.32 %."""
    found = number(value)
    return NOTHING if found is None else f"{100 * found:.{digits}f} %".replace("-", "−")


def points(value: Any) -> str:
    """0.0045 → 0.45 points; a minus sign is a gain."""
    found = number(value)
    return NOTHING if found is None else f"{_signed(100 * found)} points"


def interval(value: Any) -> str:
    """[-0.0004, 0.0094] → −0.04 to 0.94."""
    if not isinstance(value, Sequence) or len(value) != 2 or any(number(v) is None for v in value):
        return ""
    return f"{_signed(100 * value[0])} to {_signed(100 * value[1])}"


def times(value: Any) -> str:
    """8.3637 → 8.36×."""
    found = number(value)
    return NOTHING if found is None else f"{found:.{2 if found < 100 else 0}f}×"


def size(value: Any) -> str:
    """131072 → 131 kB, decimal units."""
    found = number(value)
    if found is None:
        return NOTHING
    for unit in ("B", "kB", "MB"):
        if found < 999.5:
            return f"{found:.3g} {unit}"
        found /= 1000
    return f"{found:.3g} GB"


def count(value: Any) -> str:
    """432400 → 432 400, with a narrow space that does not break."""
    found = number(value)
    return NOTHING if found is None else f"{found:,.0f}".replace(",", "\u202f")


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


def kept(layer: Mapping[str, Any], key: str = "nonzeros") -> float | None:
    """The share of a layer's weights that is left."""
    elements, nonzeros = number(layer.get("elements")), number(layer.get(key))
    return nonzeros / elements if elements and nonzeros is not None else None


def whole(report: Mapping[str, Any], part: str = "pruned") -> str:
    """What belongs beside every compression: `, 1.01× in the whole model`; nothing in reports that do not know it."""
    found = number(get(report, part, "model_compression"))
    return "" if found is None else f", {times(found)} in the whole model"


def few_kernels(report: Mapping[str, Any]) -> str | None:
    """The warning that kernels are only a part of the model, so that their compression says little."""
    kernels, floats = (number(get(report, "model", key)) for key in ("kernel_elements", "float_elements"))
    if kernels is None or not floats or kernels >= MOST_WEIGHTS * floats:
        return None
    said = f"kernels hold only {percent(kernels / floats, 1)} of the model's {count(floats)} weights"
    return f"{said}: the whole model has {times(get(report, 'pruned', 'model_compression'))} fewer"


def headline(report: Mapping[str, Any]) -> str:
    """The result in one sentence."""
    compression, drop = get(report, "pruned", "compression"), number(get(report, "pruned", "drop"))
    if number(compression) is None or drop is None:
        return "The pruned network was not measured completely."
    change = "loses" if drop > 0 else "gains" if drop < 0 else "changes by"
    budget = "accuracy budget" if labelled(report) else "budget"
    sentence = f"Outside the {budget}: " if report.get("budget_missed") else ""
    sentence += f"{times(compression)} fewer weights in kernels{whole(report)}; "
    sentence += f"{metric_words(report)} {change} {points(abs(drop))}"
    if spread := interval(get(report, "pruned", "drop_interval")):
        sentence += f" (95 % interval of the drop {spread})"
    difference = number(get(report, "difference", "value"))
    if difference is None:
        return f"{sentence}."
    sentence += f"; against global magnitude {'+' if difference > 0 else ''}{points(difference)}"
    stated = get(report, "difference", "interval")
    if spread := interval(stated):
        sentence += f" ({spread}{', which may be chance' if stated[0] <= 0 <= stated[1] else ''})"
    return f"{sentence}."


def _signed(value: float) -> str:
    return f"{value + 0.0:.2f}".replace("-0.00", "0.00").replace("-", "−")
