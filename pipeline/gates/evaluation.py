"""Evaluate the gates of a report.

A gate is a field of `GateSettings` and an entry of `GATES`. Nothing is measured here: a gate whose
value the report does not have fails. With `confidence`, the gates on the metric compare the
unfavorable end of the interval with the limit.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from pydantic import ValidationError

from ltp_pipeline.errors import GateFailed
from ltp_pipeline.gates.advice import suggest_fix
from ltp_pipeline.results.intervals import CONFIDENCE, Interval, change_confidence, wilson_interval
from ltp_pipeline.results.metric import ROUNDING, Metric
from ltp_pipeline.results.schema import FileResult, Report
from ltp_pipeline.results.schema_parts import FILE_REASON_PREFIX, GateResult
from ltp_pipeline.results.values import PairedCounts
from ltp_pipeline.settings.file_names import EXACT
from ltp_pipeline.settings.load import convert_validation_error
from ltp_pipeline.settings.schema import GateSettings
from ltp_pipeline.system.text import format_value, make_printable

GateStatus = Literal["passed", "failed", "no-gates"]


@dataclass(frozen=True)
class GateValue:
    """The value of a report that a gate compares with its limit.

    Attributes:
        value: The value; None if it was not measured.
        reason: Why the value is None.
        detail: What to tell next to the limit and the value.
        interval: Interval of the value, at the confidence of the gates.
        is_upper_bound: The true value is at most this, so that it is not sure to reach a limit.
        must_exceed_limit: A value that equals the limit fails.
    """

    value: float | None
    reason: str = ""
    detail: str = ""
    interval: Interval | None = None
    is_upper_bound: bool = False
    must_exceed_limit: bool = False


@dataclass(frozen=True)
class Gate:
    """How a gate compares a report with its limit.

    Attributes:
        read_value: Read the value of a network.
        passes_if: How the value must compare with the limit. "no worse" depends on the metric.
        is_in_metric_unit: The value is one of the metric, or a difference of two.
        read_file: Read the value of a file, for limits that name one.
    """

    read_value: Callable[[Report, GateSettings], GateValue]
    passes_if: Literal["at least", "at most", "no worse"] = "at least"
    is_in_metric_unit: bool = False
    read_file: Callable[[FileResult], float | None] | None = None

    def has_upper_limit(self, metric: Metric) -> bool:
        """Return True if a value passes that is at most the limit."""
        if self.passes_if == "no worse":
            return not metric.higher_is_better
        return self.passes_if == "at most"


def make_gate_settings(limits: Mapping[str, Any], strict: bool = False) -> GateSettings:
    """Check the limits of a caller or of a report.

    Args:
        limits: Limits by the name of the gate; None sets no limit.
        strict: Reject texts in place of numbers, for limits in a report.

    Raises:
        InputError: A gate is unknown, or a limit is invalid.
    """
    values = {name: limit for name, limit in limits.items() if limit is not None}
    try:
        return GateSettings.model_validate(values, strict=strict)
    except ValidationError as error:
        raise convert_validation_error(error, section="gates") from None


def choose_limits(passed: GateSettings, limits_of_run: Mapping[str, Any]) -> GateSettings:
    """Return the limits that were passed, or those of the run if no gate was passed."""
    if list_gates(passed):
        return passed
    return make_gate_settings({**limits_of_run, **_set_values(passed)})


def list_gates(gates: GateSettings) -> list[str]:
    """Return the names of the gates that have a limit."""
    return [name for name in GATES if name in _set_values(gates)]


def evaluate_gates(report: Report, gates: GateSettings) -> list[GateResult]:
    """Evaluate every gate that has a limit, in the order of GATES."""
    results = []
    for name in list_gates(gates):
        gate = GATES[name]
        limit = getattr(gates, name)
        if name == "beat_baseline":
            limit = gates.baseline_margin or 0.0
        limits = {"": limit}
        if isinstance(limit, dict):
            limits = limit
        for file_name, file_limit in limits.items():
            if file_name:
                value = _read_file(report, file_name, gate)
            else:
                value = gate.read_value(report, gates)
            full_name = f"{name} {file_name}".rstrip()
            result = _compare_with_limit(full_name, gate, file_limit, value, report, gates)
            if not result.passed:
                result = replace(result, advice=suggest_fix(result, report, gates))
            results.append(result)
    return results


def evaluate_run_gates(report: Report, gates: GateSettings) -> list[GateResult]:
    """Evaluate gates on the files that the settings of the report request."""
    formats = report.settings.get("export", {}).get("formats")
    files = report.pruned.files
    if isinstance(formats, list):
        files = tuple(file for file in files if file.name in formats)
    pruned = report.pruned.replace(files=files)
    return evaluate_gates(report.replace(pruned=pruned), gates)


def evaluate_own_gates(report: Report) -> Report:
    """Return a report with the results of the gates in its own settings."""
    limits = make_gate_settings(report.settings.get("gates", {}))
    return set_gate_results(report, evaluate_run_gates(report, limits))


def summarize_status(results: Sequence[GateResult]) -> GateStatus:
    """Return the status of a report with these results."""
    if not results:
        return "no-gates"
    if all(result.passed for result in results):
        return "passed"
    return "failed"


def set_gate_results(report: Report, results: Sequence[GateResult]) -> Report:
    """Return the report with these results in place of its own."""
    status = summarize_status(results)
    return report.replace(gates=tuple(results), status=status)


def check_gates(results: Sequence[GateResult]) -> None:
    """Raise GateFailed with a line for each gate that failed."""
    lines = []
    hints = []
    for result in results:
        if not result.passed:
            lines.append(f"gate failed: {result.line}")
            advice = result.advice
            if not result.is_hash:
                advice = f"{result.name}: {advice}"
            hints.append(make_printable(advice))
    if lines:
        raise GateFailed("\n".join(lines), "\n  ".join(dict.fromkeys(hints)))


def _set_values(gates: GateSettings) -> dict[str, Any]:
    return {name: value for name, value in gates if value is not None and value is not False}


def _compare_with_limit(
    name: str, gate: Gate, limit: float, measured: GateValue, report: Report, gates: GateSettings
) -> GateResult:
    """Compare a value with a limit; the result has no advice."""
    value = measured.value
    interval = measured.interval
    details = []
    if measured.detail:
        details.append(measured.detail)
    confidence = None
    rounding = ROUNDING
    if gate.is_in_metric_unit:
        confidence = gates.confidence
        rounding = _metric_rounding(report)
    passed = False
    if value is None:
        problem = "not measured"
        if measured.reason:
            problem = f"not measured: {measured.reason}"
        details.append(problem)
    elif confidence is not None and interval is None:
        details.append("confidence is set, and the report has no interval")
    else:
        has_upper_limit = gate.has_upper_limit(report.metric)
        compared = value
        if interval is not None:
            percent = 100 * (confidence or CONFIDENCE)
            detail = f"{percent:g} % interval {interval[0]:.4g} to {interval[1]:.4g}"
            if confidence is not None:
                compared = interval[1] if has_upper_limit else interval[0]
            elif interval[0] < limit < interval[1]:
                detail += ", and the limit lies inside it: too few samples to be sure"
            details.append(detail)
        if has_upper_limit:
            passed = compared <= limit + rounding
        elif measured.must_exceed_limit:
            passed = compared >= limit + rounding
        else:
            passed = compared >= limit - rounding
    passed = passed and not measured.is_upper_bound
    return GateResult(name, limit, value, passed, "; ".join(details))


def _read_accuracy(report: Report, gates: GateSettings) -> GateValue:
    accuracy = report.pruned.accuracy
    value = report.pruned.value
    interval = None
    if report.metric.name == "r2_vs_original":
        # The original has 1 by definition, so the interval follows from that of the drop.
        drop_interval = _drop_interval(report, gates)
        if drop_interval is not None:
            interval = (1 - drop_interval[1], 1 - drop_interval[0])
    elif report.metric.is_sample_fraction and accuracy and accuracy.samples and value is not None:
        interval = wilson_interval(value, accuracy.samples, gates.confidence or CONFIDENCE)
    reason = report.pruned.reasons.get("accuracy", "")
    return GateValue(value, reason, report.metric.described, interval)


def _read_drop(report: Report, gates: GateSettings) -> GateValue:
    reason = report.pruned.reasons.get("drop", "")
    interval = _drop_interval(report, gates)
    return GateValue(report.pruned.drop, reason, report.metric.described, interval)


def _read_lead(report: Report, gates: GateSettings) -> GateValue:
    """Read by how much the network is better than the baseline."""
    value = None
    interval = None
    detail = report.metric.described
    accuracy = report.pruned.exact_value
    baseline_accuracy = None
    if report.baseline:
        baseline_accuracy = report.baseline.exact_value
    if accuracy is not None and baseline_accuracy is not None:
        value = report.metric.compute_drop(accuracy, baseline_accuracy)
        detail = f"{detail}: {format_value(accuracy)} against {format_value(baseline_accuracy)}"
    difference = report.difference
    if difference is not None:
        interval = _at_confidence(difference.interval, difference.paired_counts, gates)
    reason = report.reasons.get("baseline", "the report has no accuracy of the baseline")
    must_exceed = gates.baseline_margin is None
    return GateValue(value, reason, detail, interval, must_exceed_limit=must_exceed)


def _read_network(report: Report, _gates: GateSettings, key: str, other_key: str = "") -> GateValue:
    """Read a number of the pruned network, with another one for the detail."""
    network = report.pruned
    value = getattr(network, key)
    other = None
    if other_key:
        other = getattr(network, other_key)
    detail = ""
    if value is not None and other is not None:
        detail = f"{COUNTED_WEIGHTS[key]}; {COUNTED_WEIGHTS[other_key]} {format_value(other)}"
    return GateValue(value, network.reasons.get(key, ""), detail)


def _read_gain(report: Report, _gates: GateSettings) -> GateValue:
    baseline = report.baseline
    if baseline is None:
        return GateValue(None, report.reasons.get("baseline", "the report has no baseline"))
    gain = report.gain
    if gain is None or baseline.gain is None:
        reason = baseline.reasons.get("gain", "the report has no curve of the baseline")
        return GateValue(None, reason)
    if gain.compression_at_equal_accuracy is None:
        detail = f"{gain.bound}: {gain.reason}"
    else:
        detail = f"the baseline reaches {gain.compression_at_equal_accuracy:.3g}×"
    if gain.is_wide:
        ends = " and ".join(f"{end.compression:.3g}×" for end in gain.ends)
        detail += f", interpolated between {ends}, which are far apart"
    return GateValue(gain.value, detail=detail, is_upper_bound=gain.bound == "at most")


def _read_smallest_size(report: Report, _gates: GateSettings) -> GateValue:
    sizes = {file.path: file.bytes for file in report.pruned.files if file.bytes is not None}
    return _select_extreme(min, sizes, "file size", "smallest file: ")


def _read_slowest_ratio(report: Report, _gates: GateSettings) -> GateValue:
    ratios = {file.path: file.gated_latency_ratio for file in report.pruned.files}
    return _select_extreme(max, ratios, "latency", "slowest file: ")


def _read_layer_density(report: Report, _gates: GateSettings) -> GateValue:
    densities = {layer.name: layer.density for layer in report.layers}
    return _select_extreme(min, densities, "layer density", "layer ")


def _select_extreme(
    select: Callable[[list[tuple[float, str]]], tuple[float, str]],
    values: Mapping[str, float | None],
    quantity: str,
    title: str,
) -> GateValue:
    """Read the smallest or the largest value of files or layers, which must all be known."""
    known_values = []
    for name, value in values.items():
        if value is None:
            return GateValue(None, f"the report has no {quantity} of {name}")
        known_values.append((value, name))
    if not known_values:
        return GateValue(None, f"the report has no {quantity}")
    value, name = select(known_values)
    return GateValue(value, detail=title + name)


def _read_file(report: Report, file_name: str, gate: Gate) -> GateValue:
    """Read the value of the file with this name; a file that was not written has none."""
    for file in report.pruned.files:
        if file.name == file_name and file.weight_storage == EXACT:
            value = gate.read_file(file) if gate.read_file else None
            if value is None:
                return GateValue(None, f"the report has no value of {file.path}")
            return GateValue(value, detail=file.path)
    reason = f"no {file_name} file was written"
    cause = report.pruned.reasons.get(FILE_REASON_PREFIX + file_name)
    if cause:
        reason += f": {cause}"
    return GateValue(None, reason)


def _metric_rounding(report: Report) -> float:
    """Return the difference of two values of the report up to which they count as equal."""
    values = [0.0]
    for part in (report.original, *report.networks):
        if part.value is not None:
            values.append(part.value)
    return report.metric.get_rounding(*values)


def _drop_interval(report: Report, gates: GateSettings) -> Interval | None:
    worst_file = report.pruned.least_accurate(report.metric)
    counts = None
    if worst_file:
        counts = worst_file.paired_counts
    return _at_confidence(report.pruned.drop_interval, counts, gates)


def _at_confidence(
    interval: Interval | None, counts: PairedCounts | None, gates: GateSettings
) -> Interval | None:
    """Return an interval at the confidence of gates, from counts of samples or else stretched."""
    if interval is None or gates.confidence is None:
        return interval
    if counts is None:
        return change_confidence(interval, gates.confidence)
    return counts.compute_interval(gates.confidence)


COUNTED_WEIGHTS = {"compression": "layer weights", "model_compression": "all float weights"}
GATES = {
    "min_accuracy": Gate(_read_accuracy, "no worse", is_in_metric_unit=True),
    "max_drop": Gate(_read_drop, "at most", is_in_metric_unit=True),
    "min_sparsity": Gate(partial(_read_network, key="sparsity")),
    "min_compression": Gate(
        partial(_read_network, key="compression", other_key="model_compression")
    ),
    "min_model_compression": Gate(
        partial(_read_network, key="model_compression", other_key="compression")
    ),
    "max_macs": Gate(partial(_read_network, key="macs_left"), "at most"),
    "beat_baseline": Gate(_read_lead, is_in_metric_unit=True),
    "min_gain": Gate(_read_gain),
    "max_bytes": Gate(_read_smallest_size, "at most", read_file=lambda file: file.bytes),
    "max_latency_ratio": Gate(
        _read_slowest_ratio, "at most", read_file=lambda file: file.gated_latency_ratio
    ),
    "min_layer_density": Gate(_read_layer_density),
}
