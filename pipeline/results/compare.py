"""Compare two reports of one model: what got better or worse, and whether limits are kept."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ltp_pipeline.errors import InputError
from ltp_pipeline.results.metric import ROUNDING, Metric
from ltp_pipeline.results.schema import BaselineResult, FileResult, OtherResult, Report
from ltp_pipeline.results.schema_parts import GateResult
from ltp_pipeline.settings.checks import check_limit_units
from ltp_pipeline.system.text import format_value, make_printable

MAX_NAMED_CHANGES = 3  # differences between two runs
NOT_BOTH = "not measured in both reports"
NUMBER = Metric("number", is_fraction=False)


@dataclass(frozen=True)
class Change:
    """A quantity in two reports.

    Attributes:
        name: Name of the quantity.
        old: Value in the old report; None if it was not measured.
        new: Value in the new report; None if it was not measured.
        better: Whether the new value is better; None if it is equal, or if that is not known.
        old_bound: "at least" or "at most" if the old value is only a bound.
        new_bound: "at least" or "at most" if the new value is only a bound.
        unit: Unit of the values.
        is_fraction: Whether the values are shown in percent.
    """

    name: str
    old: float | None
    new: float | None
    better: bool | None
    old_bound: str | None = None
    new_bound: str | None = None
    unit: str | None = None
    is_fraction: bool = False

    @property
    def line(self) -> str:
        """Old value, new value and the result in one line."""
        word = {True: "better", False: "worse", None: "same"}[self.better]
        if self.old is None or self.new is None:
            word = "not measured in both"
        elif self.better is None and (self.old_bound or self.new_bound):
            word = "cannot be computed from bounds"
        old = self._format_side(self.old, self.old_bound)
        new = self._format_side(self.new, self.new_bound)
        return make_printable(f"{self.name}: {old} → {new}, {word}")

    def _format_side(self, value: float | None, bound: str | None) -> str:
        text = format_value(value)
        if value is not None and self.is_fraction:
            text = f"{100 * value:.6g} %"  # six digits: one of 50,000 samples makes 0.002 %
        elif value is not None and self.unit:
            text = f"{text} {self.unit}"
        return f"{bound} {text}" if bound else text


@dataclass(frozen=True)
class Comparison:
    """All changes, the results of the limits, and what makes the two reports hard to compare."""

    changes: tuple[Change, ...]
    gate_results: tuple[GateResult, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Quantity:
    """A number of a report that is compared.

    Attributes:
        value: The value; None if it was not measured.
        metric: Unit and direction of the value.
        rounding: Difference up to which two values are equal.
        is_loss: Whether less is better, whatever the direction of the metric.
        bound: "at least" or "at most" if the value is only a bound.
    """

    value: float | None
    metric: Metric = NUMBER
    rounding: float = ROUNDING
    is_loss: bool = False
    bound: str | None = None


def compare_reports(
    old: Report,
    new: Report,
    max_drop: float | None = None,
    max_compression_loss: float | None = None,
    max_size_increase: float | None = None,
    allow_different_models: bool = False,
) -> Comparison:
    """Compare two reports.

    Args:
        old: The old report.
        new: The new report.
        max_drop: Largest loss of the metric.
        max_compression_loss: Largest loss of compression, as a fraction.
        max_size_increase: Largest growth of the smallest file, as a fraction.
        allow_different_models: Whether the reports may be about different models.

    Raises:
        InputError: The reports are about different models, or a limit is invalid.
    """
    if not allow_different_models and old.model.sha256 != new.model.sha256:
        raise InputError(
            f"the reports are about different models: {old.model.title} and {new.model.title}, "
            "with different hashes",
            "pass two reports of one model, or --allow-different-models",
        )
    check_limit_units(new.metric, {"max_drop": max_drop})
    _check_fraction("max_compression_loss", max_compression_loss, 1.0)
    _check_fraction("max_size_increase", max_size_increase, math.inf)
    fast_files = [file for file in (*old.pruned.files, *new.pruned.files) if file.is_for_speed]
    labels = dict.fromkeys(file.label for file in fast_files)
    before = _list_quantities(old, labels)
    after = _list_quantities(new, labels)
    changes = {}
    for key, quantity in after.items():
        # Fractions of correct samples and of agreement differ, and so do °C and °F.
        if quantity.metric == before[key].metric:
            name = key.replace("METRIC", new.metric.label)
            changes[key] = _compare_quantity(name, before[key], quantity)
    losses = _compute_losses(changes, new.metric)
    limits = {
        "max_drop": max_drop,
        "max_compression_loss": max_compression_loss,
        "max_size_increase": max_size_increase,
    }
    gate_results = []
    for name, limit in limits.items():
        if limit is not None:
            gate_results.append(_check_limit(name, limit, losses.get(name), old, new))
    notes = _describe_differences(old, new)
    return Comparison(tuple(changes.values()), tuple(gate_results), tuple(notes))


def _check_fraction(name: str, limit: float | None, highest: float) -> None:
    if limit is not None and not -1 <= limit < highest:
        raise InputError(
            f"{name} of {limit:g} is not a fraction",
            f"if {limit:g} % is meant, pass {limit / 100:g}",
        )


def _list_quantities(report: Report, labels: Iterable[str]) -> dict[str, Quantity]:
    """Return the quantities that are compared, by name, with METRIC for the label of the metric.

    `labels` are those of files that one of the two reports has for speed.
    """
    metric = report.metric
    rounding = _get_rounding(report)
    pruned = report.pruned
    baseline = report.baseline or BaselineResult()
    gradual = report.gradual_baseline or OtherResult()
    sizes = [file.bytes for file in pruned.files if file.bytes is not None]
    first_latencies = [file.latency[0].ms for file in pruned.files if file.latency]
    times = [ms for ms in first_latencies if ms is not None]
    quantities = {
        "original METRIC": Quantity(report.original.value, metric, rounding),
        "METRIC": Quantity(pruned.value, metric, rounding),
        "drop": Quantity(pruned.drop, metric, rounding, is_loss=True),
        "compression": Quantity(pruned.compression),
        "model compression": Quantity(pruned.model_compression),
        "sparsity": Quantity(pruned.sparsity, Metric("sparsity")),
        "multiply-adds left": Quantity(
            pruned.macs_left, Metric("multiply-adds left", higher_is_better=False)
        ),
        "baseline METRIC": Quantity(baseline.value, metric, rounding),
        "gradual baseline METRIC": Quantity(gradual.value, metric, rounding),
        "gain": Quantity(baseline.gain, bound=baseline.gain_bound),
        "smallest file, bytes": Quantity(min(sizes, default=None), is_loss=True),
        "fastest file, ms": Quantity(min(times, default=None), is_loss=True),
    }
    files = {file.label: file for file in pruned.files}
    for label in labels:
        file = files.get(label, FileResult())
        quantities[f"{label}, METRIC"] = Quantity(file.value, metric, rounding)
        quantities[f"{label}, bytes"] = Quantity(file.bytes, is_loss=True)
        ratio = file.gated_latency_ratio
        quantities[f"{label}, latency / the original's"] = Quantity(ratio, is_loss=True)
    return quantities


def _get_rounding(*reports: Report) -> float:
    """Return the difference up to which values of the metric are equal."""
    values = [report.original.value or 0.0 for report in reports]
    return reports[0].metric.get_rounding(*values)


def _compare_quantity(name: str, old: Quantity, new: Quantity) -> Change:
    metric = new.metric
    change = Change(
        name, old.value, new.value, None, old.bound, new.bound, metric.unit, metric.is_fraction
    )
    if old.value is None or new.value is None:
        return change
    if abs(new.value - old.value) <= max(old.rounding, new.rounding):
        return change
    has_grown = new.value > old.value
    unsure_bounds = ("at least", "at most") if has_grown else ("at most", "at least")
    if old.bound == unsure_bounds[0] or new.bound == unsure_bounds[1]:
        return change
    more_is_better = metric.higher_is_better and not new.is_loss
    return replace(change, better=has_grown == more_is_better)


def _compute_losses(changes: Mapping[str, Change], metric: Metric) -> dict[str, float]:
    """Return the losses that were measured, by the names of their limits."""
    losses = {}
    value = changes.get("METRIC")
    if value is not None and value.old is not None and value.new is not None:
        losses["max_drop"] = metric.compute_drop(value.old, value.new)
    compression = changes["compression"]
    if compression.old and compression.new is not None:
        losses["max_compression_loss"] = (compression.old - compression.new) / compression.old
    size = changes["smallest file, bytes"]
    if size.old and size.new is not None:
        losses["max_size_increase"] = size.new / size.old - 1
    return losses


def _check_limit(
    name: str, limit: float, loss: float | None, old: Report, new: Report
) -> GateResult:
    if loss is None:
        advice = "pass two reports that have it, with the same metric"
        return GateResult(name, limit, None, False, NOT_BOTH, advice)
    detail = ""
    rounding = ROUNDING
    if name == "max_drop":
        detail = new.metric.described
        rounding = _get_rounding(new, old)
    if loss <= limit + rounding:
        return GateResult(name, limit, loss, True, detail)
    return GateResult(name, limit, loss, False, detail, _suggest_cause(old, new))


def _suggest_cause(old: Report, new: Report) -> str:
    """Return what differs between the two runs, above all in their settings."""
    before = _list_run_conditions(old)
    changed = [
        f"{key} was {format_value(before.get(key))}, is {format_value(value)}"
        for key, value in _list_run_conditions(new).items()
        if before.get(key) != value
    ]
    if not changed:
        return (
            "settings and versions are equal: look at the layers of both report.html, "
            "or try another train.seed"
        )
    ellipsis = " …" if len(changed) > MAX_NAMED_CHANGES else ""
    return f"look at what changed: {'; '.join(changed[:MAX_NAMED_CHANGES])}{ellipsis}"


def _list_run_conditions(report: Report) -> dict[str, Any]:
    """Return the settings and versions that a result depends on, by dotted keys."""
    conditions = {**report.used_settings, "versions": report.environment.versions}
    for section in ("gates", "log"):
        conditions.pop(section, None)
    return _flatten_values(conditions)


def _flatten_values(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested values by their dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat.update(_flatten_values(value, f"{prefix}{key}."))
        else:
            flat[prefix + key] = value
    return flat


def _describe_differences(old: Report, new: Report) -> list[str]:
    """Return a note for each condition that makes two measurements hard to compare."""
    after = _list_measurement_conditions(new)
    notes = []
    for condition, value in _list_measurement_conditions(old).items():
        if value != after[condition]:
            values = f"{format_value(value)} before, {format_value(after[condition])} now"
            notes.append(f"another {condition}: {values}")
    return notes


def _list_measurement_conditions(report: Report) -> dict[str, object]:
    accuracy, environment = report.original.accuracy, report.environment
    return {
        "original model": report.model.sha256,
        "number of test samples": accuracy.samples if accuracy else None,
        "split": accuracy.split if accuracy else None,
        "metric": report.metric.described,
        "device": environment.device,
        "number of threads": environment.threads,
        "processor": environment.processor,
    }
