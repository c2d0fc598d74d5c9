"""The same model at two times: what got better, what got worse, and whether that is too much."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ltp_pipeline.errors import InputError
from ltp_pipeline.results.metric import ROUNDING, Metric
from ltp_pipeline.results.schema import FileResult, Report
from ltp_pipeline.results.schema_parts import GateResult
from ltp_pipeline.settings.checks import check_limit_units
from ltp_pipeline.system.text import format_value, make_printable


@dataclass(frozen=True)
class Change:
    """One measurement in both reports; `better` is None when nothing changed or a side is missing.

    A `share` is shown in percent, anything else as a number with its unit.
    """

    name: str
    old: float | None
    new: float | None
    better: bool | None
    old_bound: str | None = None  # where a value is only known to one side
    new_bound: str | None = None
    unit: str | None = None
    is_fraction: bool = False

    @property
    def line(self) -> str:
        """Old, new and the word for it in one line."""
        word = {True: "better", False: "worse", None: "same"}[self.better]
        if self.old is None or self.new is None:
            word = "not measured in both"
        elif self.better is None and (self.old_bound or self.new_bound):
            word = "cannot be told from bounds"
        old, new = (
            f"{bound} {self._show(value)}" if bound else self._show(value)
            for value, bound in self._sides
        )
        return make_printable(f"{self.name}: {old} → {new}, {word}")

    @property
    def _sides(self) -> tuple[tuple[float | None, str | None], tuple[float | None, str | None]]:
        return (self.old, self.old_bound), (self.new, self.new_bound)

    def _show(self, value: float | None) -> str:
        if value is not None and self.is_fraction:
            return f"{100 * value:.6g} %"  # six digits: one of 50,000 samples makes 0.002 %
        return (
            format_value(value)
            if value is None or not self.unit
            else f"{format_value(value)} {self.unit}"
        )


@dataclass(frozen=True)
class Comparison:
    """All changes, the verdicts on those with a limit, and what makes the two hard to compare."""

    changes: tuple[Change, ...]
    gate_results: tuple[GateResult, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Quantity:
    """A quantity that is compared: how it is read from a report, and which direction is better.

    Of the metric's values, None leaves that to the metric.
    """

    read: Callable[[Report], float | None]
    more_is_better: bool | None = True
    of_metric: bool = False
    is_fraction: bool = False
    bound: Callable[[Report], str | None] = lambda _: None  # to which side the value is known


MAX_NAMED_CHANGES = 3  # differences between two runs
NOT_BOTH = "not measured in both reports"
# In the order in which they are shown; METRIC stands for the name of the metric.
QUANTITIES = {
    "original METRIC": Quantity(lambda r: r.original.value, None, of_metric=True),
    "METRIC": Quantity(lambda r: r.pruned.value, None, of_metric=True),
    "drop": Quantity(lambda r: r.pruned.drop, more_is_better=False, of_metric=True),
    "compression": Quantity(lambda r: r.pruned.compression),
    "model compression": Quantity(lambda r: r.pruned.model_compression),
    "sparsity": Quantity(lambda r: r.pruned.sparsity, is_fraction=True),
    "baseline METRIC": Quantity(
        lambda r: r.baseline.value if r.baseline else None, None, of_metric=True
    ),
    "gain": Quantity(
        lambda r: r.baseline.gain if r.baseline else None,
        bound=lambda r: r.baseline.gain_bound if r.baseline else None,
    ),
    "smallest file, bytes": Quantity(
        lambda r: min((f.bytes for f in r.pruned.files if f.bytes is not None), default=None),
        more_is_better=False,
    ),
    "fastest file, ms": Quantity(
        lambda r: min(
            (e.ms for f in r.pruned.files for e in f.latency[:1] if e.ms is not None), default=None
        ),
        more_is_better=False,
    ),
}


def compare_reports(
    old: Report,
    new: Report,
    max_drop: float | None = None,
    max_compression_loss: float | None = None,
    max_size_increase: float | None = None,
    allow_different_models: bool = False,
) -> Comparison:
    """Compare two reports.

    Limits are the largest loss of the metric, and of compression and size as a fraction.
    """
    if not allow_different_models and old.model.sha256 != new.model.sha256:
        message = (
            f"the reports are about different models: {old.model.title} and {new.model.title}, "
            "with other hashes"
        )
        raise InputError(
            message,
            "give two reports of one model, or --allow-different-models to compare all the same",
        )
    limits = {
        "max_drop": max_drop,
        "max_compression_loss": max_compression_loss,
        "max_size_increase": max_size_increase,
    }
    check_limit_units(new.metric, {"max_drop": max_drop})
    for name, limit in limits.items():
        if name == "max_drop" or limit is None:
            continue
        if not (-1 <= limit < 1 or (name == "max_size_increase" and 1 <= limit < math.inf)):
            raise InputError(
                f"{name} of {limit:g} is no fraction",
                f"if {limit:g} % is meant, give {limit / 100:g}",
            )
    comparable = (
        old.metric == new.metric
    )  # right answers and nearness to an original are not, nor °C and °F
    changes = {
        name: _compare_quantity(name.replace("METRIC", new.metric.label), quantity, old, new)
        for name, quantity in QUANTITIES.items()
        if comparable or not quantity.of_metric
    }
    for label in dict.fromkeys(
        f.label for r in (old, new) for f in r.pruned.files if f.is_for_speed
    ):
        for message, quantity in _file_quantities(label).items():
            if comparable or not quantity.of_metric:
                name = f"{label}, {message.replace('METRIC', new.metric.label)}"
                changes[name] = _compare_quantity(name, quantity, old, new)
    losses = {
        "max_drop": _compute_drop(changes["METRIC"], new.metric) if comparable else None,
        "max_compression_loss": _compute_loss(changes["compression"]),
        "max_size_increase": _compute_growth(changes["smallest file, bytes"]),
    }
    gate_results = [
        _check_limit(name, limit, losses[name], old, new)
        for name, limit in limits.items()
        if limit is not None
    ]
    return Comparison(
        tuple(changes.values()), tuple(gate_results), tuple(_describe_differences(old, new))
    )


def _file_quantities(label: str) -> dict[str, Quantity]:
    """Return what is compared of a file that was written to be faster."""

    def found(report: Report) -> FileResult:
        return next((file for file in report.pruned.files if file.label == label), FileResult())

    return {
        "METRIC": Quantity(lambda r: found(r).value, None, of_metric=True),
        "bytes": Quantity(lambda r: found(r).bytes, more_is_better=False),
        "latency / the original's": Quantity(
            lambda r: found(r).gated_latency_ratio, more_is_better=False
        ),
    }


def _compare_quantity(name: str, quantity: Quantity, old: Report, new: Report) -> Change:
    metric = new.metric if quantity.of_metric else Metric(is_fraction=quantity.is_fraction)
    before, after = quantity.read(old), quantity.read(new)
    bounds = quantity.bound(old), quantity.bound(new)
    same = Change(name, before, after, None, *bounds, metric.unit, metric.is_fraction)
    if before is None or after is None or abs(after - before) <= _get_rounding(quantity, old, new):
        return same
    unsure = ("at least", "at most") if after > before else ("at most", "at least")
    if bounds[0] == unsure[0] or bounds[1] == unsure[1]:
        return same
    more_is_better = (
        metric.higher_is_better if quantity.more_is_better is None else quantity.more_is_better
    )
    return replace(same, better=(after > before) == more_is_better)


def _get_rounding(quantity: Quantity, old: Report, new: Report) -> float:
    """Return the difference that counts as none.

    For a metric that is not a fraction, it is relative to the originals' values.
    """
    values = [report.original.value or 0.0 for report in (old, new)]
    return new.metric.get_rounding(*values) if quantity.of_metric else ROUNDING


def _compute_drop(change: Change, metric: Metric) -> float | None:
    return (
        None
        if change.old is None or change.new is None
        else metric.compute_drop(change.old, change.new)
    )


def _compute_loss(change: Change) -> float | None:
    return None if not change.old or change.new is None else (change.old - change.new) / change.old


def _compute_growth(change: Change) -> float | None:
    return None if not change.old or change.new is None else change.new / change.old - 1


def _check_limit(
    name: str, limit: float, loss: float | None, old: Report, new: Report
) -> GateResult:
    if loss is None:
        return GateResult(
            name,
            limit,
            None,
            False,
            NOT_BOTH,
            "give two reports that both measured it, in the same metric",
        )
    of_metric = name == "max_drop"
    passed = loss <= limit + _get_rounding(
        QUANTITIES["METRIC" if of_metric else "compression"], old, new
    )
    return GateResult(
        name,
        limit,
        loss,
        passed,
        new.metric.described if of_metric else "",
        "" if passed else _suggest_cause(old, new),
    )


def _suggest_cause(old: Report, new: Report) -> str:
    """Return what differs between the two runs, above all in their settings."""
    before, after = (
        _flatten_values({**_run_conditions(r), "versions": r.environment.versions})
        for r in (old, new)
    )
    changed = [
        f"{k} was {format_value(before.get(k))}, is {format_value(v)}"
        for k, v in after.items()
        if before.get(k) != v
    ]
    if not changed:
        return (
            "settings and versions are equal: look at the layers of both report.html, "
            "or try another train.seed"
        )
    ellipsis = " …" if len(changed) > MAX_NAMED_CHANGES else ""
    return f"look at what changed: {'; '.join(changed[:MAX_NAMED_CHANGES])}{ellipsis}"


def _run_conditions(report: Report) -> dict[str, Any]:
    """Return the settings that a result depends on."""
    return {
        section: values
        for section, values in report.used_settings.items()
        if section not in ("gates", "log")
    }


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
    before, after = (_measurement_conditions(report) for report in (old, new))
    return [
        f"another {condition}: {format_value(before[condition])} before, "
        f"{format_value(after[condition])} now"
        for condition in before
        if before[condition] != after[condition]
    ]


def _measurement_conditions(report: Report) -> dict[str, object]:
    """Return what must be equal for two measurements to be comparable."""
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
