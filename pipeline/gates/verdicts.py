"""Gates: a report in, verdicts out. Nothing here measures anything.

A gate is a field of `GateSettings` and a function in `GATES`. A value that is missing or null fails its gate. With
`confidence`, the gates on accuracy judge the unfavourable end of the interval instead of the value. These are in the
metric's unit and follow its direction.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from pydantic import ValidationError

from ltp_pipeline.errors import InputError
from ltp_pipeline.gates import advice
from ltp_pipeline.results.intervals import CONFIDENCE, Interval, wilson, with_confidence
from ltp_pipeline.results.metric import ROUNDING
from ltp_pipeline.results.schema import FileResult, Report
from ltp_pipeline.results.schema_parts import FILE_REASON_PREFIX, GateResult
from ltp_pipeline.results.values import PairedCounts
from ltp_pipeline.settings.file_names import EXACT
from ltp_pipeline.settings.schema import GateSettings
from ltp_pipeline.system.text import format_value


def gate_settings(options: Mapping[str, Any], strict: bool = False) -> GateSettings:
    """Check limits that come from a caller or, `strict`, from a report: numbers are numbers there, never text."""
    try:
        return GateSettings.model_validate(
            {k: v for k, v in options.items() if v is not None}, strict=strict
        )
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, e['loc'])) or 'gates'}: {e['msg']}" for e in error.errors()]
        what = "; ".join(lines).replace("Value error, ", "")
        raise InputError(
            what, "correct the limit; docs/ci.md lists every gate with its unit"
        ) from None


def evaluate_gates(report: Report, gates: GateSettings) -> list[GateResult]:
    """Judge every gate that was asked for, in the order of GATES."""
    found = [GATES[name](report, gates) for name in asked(gates)]
    verdicts = [verdict for one in found for verdict in (one if isinstance(one, list) else [one])]
    return [
        v if v.passed else replace(v, advice=advice.suggest_fix(v, report, gates)) for v in verdicts
    ]


def asked(gates: GateSettings) -> list[str]:
    """The gates that have a limit."""
    return [
        name
        for name in GATES
        if getattr(gates, name) is not None and getattr(gates, name) is not False
    ]


def effective_limits(given: GateSettings, of_run: Mapping[str, Any]) -> GateSettings:
    """The limits given; where there are none, those that the run itself was judged by."""
    if asked(given):
        return given
    more = {name: value for name, value in given if value is not None and value is not False}
    return gate_settings({**of_run, **more})


def verdict_of(verdicts: Sequence[GateResult]) -> Literal["passed", "failed", "no-gates"]:
    """All verdicts in one word."""
    return "no-gates" if not verdicts else "passed" if all(v.passed for v in verdicts) else "failed"


def with_verdicts(report: Report, verdicts: Sequence[GateResult]) -> Report:
    """The report with these verdicts in the place of its own."""
    return report.model_copy(update={"gates": tuple(verdicts), "status": verdict_of(verdicts)})


def _min_accuracy(report: Report, gates: GateSettings) -> GateResult:
    pruned, confidence = report.pruned, gates.confidence
    value, samples = pruned.value, pruned.accuracy.samples if pruned.accuracy else None
    interval = None  # known of shares of samples alone
    if report.metric.name == "r2_vs_original":  # of the original it is 1, so the drop tells
        stated = _drop_interval(report, confidence)
        interval = None if stated is None else (1 - stated[1], 1 - stated[0])
    elif report.metric.counts_samples and value is not None and samples:
        interval = wilson(value, samples, confidence or CONFIDENCE)
    why, at_most = pruned.reasons.get("accuracy", ""), not report.metric.higher_is_better
    return _of_metric(
        report, "min_accuracy", gates.min_accuracy, value, at_most, interval, confidence, why
    )


def _max_drop(report: Report, gates: GateSettings) -> GateResult:
    interval = _drop_interval(report, gates.confidence)
    why = report.pruned.reasons.get("drop", "")
    value, confidence = report.pruned.drop, gates.confidence
    return _of_metric(report, "max_drop", gates.max_drop, value, True, interval, confidence, why)


def _min_sparsity(report: Report, gates: GateSettings) -> GateResult:
    why = report.pruned.reasons.get("sparsity", "")
    return _judged("min_sparsity", gates.min_sparsity, report.pruned.sparsity, why=why)


def _min_compression(report: Report, gates: GateSettings) -> GateResult:
    value, other = report.pruned.compression, report.pruned.model_compression
    detail = "" if other is None else f"of the kernels; of the whole model {format_value(other)}"
    why = report.pruned.reasons.get("compression", "")
    return _judged("min_compression", gates.min_compression, value, why=why, detail=detail)


def _min_model_compression(report: Report, gates: GateSettings) -> GateResult:
    value, other = report.pruned.model_compression, report.pruned.compression
    detail = "" if other is None else f"of the whole model; of the kernels {format_value(other)}"
    why = report.pruned.reasons.get("model_compression", "the report counts kernels only")
    return _judged(
        "min_model_compression", gates.min_model_compression, value, why=why, detail=detail
    )


def _beat_baseline(report: Report, gates: GateSettings) -> GateResult:
    metric, pruned = report.metric, report.pruned.exact_value
    other = report.baseline.exact_value if report.baseline else None
    value = None if pruned is None or other is None else metric.drop(pruned, other)
    apart = report.difference
    interval = _interval(apart.interval, apart.paired_counts, gates.confidence) if apart else None
    why = report.reasons.get("baseline", "the report has no accuracy of the baseline")
    limit = (
        2 * _rounding(report) if gates.baseline_margin is None else gates.baseline_margin
    )  # without `by`, equal is not better
    verdict = _of_metric(
        report, "beat_baseline", limit, value, False, interval, gates.confidence, why
    )
    detail = verdict.detail
    if pruned is not None and other is not None:
        compared = f"{metric.described}: {format_value(pruned)} against {format_value(other)}"
        detail = f"{compared}{detail.removeprefix(metric.described)}"
    return GateResult("beat_baseline", gates.baseline_margin or 0.0, value, verdict.passed, detail)


def _min_gain(report: Report, gates: GateSettings) -> GateResult:
    baseline, limit = report.baseline, gates.min_gain
    if baseline is None:
        return _judged(
            "min_gain",
            limit,
            None,
            why=report.reasons.get("baseline", "the report has no baseline"),
        )
    found, why = (
        report.gain,
        baseline.reasons.get("gain", "the report has no curve of the baseline"),
    )
    if found is None or baseline.gain is None:
        return _judged("min_gain", limit, None, why=why)
    equal = found.compression_at_equal_accuracy
    detail = (
        f"{found.bound}: {found.reason}" if equal is None else f"the baseline reaches {equal:.3g}×"
    )
    if found.is_wide:
        ends = " and ".join(f"{end.compression:.3g}×" for end in found.ends)
        detail += f", interpolated between {ends}, which are far apart"
    verdict = _judged("min_gain", limit, found.value, why=why, detail=detail)
    return replace(verdict, passed=verdict.passed and found.bound != "at most")


def _max_bytes(report: Report, gates: GateSettings) -> GateResult | list[GateResult]:
    if isinstance(gates.max_bytes, dict):
        return [
            _of_file(report, "max_bytes", *named, lambda file: file.bytes)
            for named in gates.max_bytes.items()
        ]
    sizes = [(file.bytes, file.path) for file in report.pruned.files if file.bytes is not None]
    value, path = min(sizes, key=lambda pair: pair[0], default=(None, ""))
    why, detail = "the report names no file size", f"smallest file: {path}"
    return _judged("max_bytes", gates.max_bytes, value, True, why=why, detail=detail)


def _max_latency_ratio(report: Report, gates: GateSettings) -> GateResult | list[GateResult]:
    name, limit = "max_latency_ratio", gates.max_latency_ratio
    if isinstance(limit, dict):
        return [
            _of_file(report, name, *named, lambda file: file.gated_latency_ratio)
            for named in limit.items()
        ]
    slowest: tuple[float, str] | None = None
    for file in report.pruned.files:
        ratio = file.gated_latency_ratio
        if ratio is None:
            return _judged(name, limit, None, True, why=f"no latency measured of {file.path}")
        if slowest is None or ratio > slowest[0]:
            slowest = ratio, file.path
    value, path = slowest or (None, "")
    return _judged(
        name, limit, value, True, why="no latencies measured", detail=f"slowest file: {path}"
    )


def _of_file(
    report: Report,
    name: str,
    file_name: str,
    limit: float,
    read: Callable[[FileResult], float | None],
) -> GateResult:
    """Judge the file of this name; one that was not written fails."""
    found = next(
        (
            file
            for file in report.pruned.files
            if (file.name, file.weight_storage) == (file_name, EXACT)
        ),
        None,
    )
    gate = f"{name} {file_name}"
    if found is None:
        return _judged(gate, limit, None, True, why=_not_written(report, file_name))
    return _judged(
        gate, limit, read(found), True, why=f"nothing measured of {found.path}", detail=found.path
    )


def _not_written(report: Report, file_name: str) -> str:
    """That there is no such file, and why where the report knows."""
    reason = report.pruned.reasons.get(FILE_REASON_PREFIX + file_name)
    return f"no {file_name} file was written" + (f": {reason}" if reason else "")


def _min_layer_density(report: Report, gates: GateSettings) -> GateResult:
    least: tuple[float, str] | None = None
    for layer in report.layers:
        if layer.density is None:
            why = f"nothing counted in layer {layer.name}"
            return GateResult("min_layer_density", gates.min_layer_density, None, False, why)
        least = min(least or (layer.density, layer.name), (layer.density, layer.name))
    value, name = least or (None, "")
    why, detail = "the report lists no layers", f"least kept layer: {name}"
    return _judged("min_layer_density", gates.min_layer_density, value, why=why, detail=detail)


GATES: dict[str, Callable[[Report, GateSettings], GateResult | list[GateResult]]] = {
    "min_accuracy": _min_accuracy,
    "max_drop": _max_drop,
    "min_sparsity": _min_sparsity,
    "min_compression": _min_compression,
    "min_model_compression": _min_model_compression,
    "beat_baseline": _beat_baseline,
    "min_gain": _min_gain,
    "max_bytes": _max_bytes,
    "max_latency_ratio": _max_latency_ratio,
    "min_layer_density": _min_layer_density,
}


def _judged(
    name: str,
    limit: float | None,
    value: float | None,
    at_most: bool = False,
    *,
    interval: Interval | None = None,
    confidence: float | None = None,
    why: str = "",
    detail: str = "",
    rounding: float = ROUNDING,
) -> GateResult:
    """Compare a value, or with confidence the unfavourable end of its interval, with a limit."""
    if value is None or limit is None:
        return GateResult(
            name, limit, None, False, f"not measured: {why}" if why else "not measured"
        )
    if confidence is not None and interval is None:
        return GateResult(
            name, limit, value, False, "confidence was asked for, and the report has no interval"
        )
    judged = value
    if interval is not None:
        detail = f"{100 * (confidence or CONFIDENCE):g} % interval {interval[0]:.4g} to {interval[1]:.4g}"
        if confidence is not None:
            judged = interval[1] if at_most else interval[0]
        elif interval[0] < limit < interval[1]:
            detail += ", and the limit lies inside it: too few samples to be sure"
    passed = judged <= limit + rounding if at_most else judged >= limit - rounding
    return GateResult(name, limit, value, passed, detail)


def _of_metric(
    report: Report,
    name: str,
    limit: float | None,
    value: float | None,
    at_most: bool,
    interval: Interval | None,
    confidence: float | None,
    why: str,
) -> GateResult:
    """The same of a value in the metric's unit, and the detail begins with the metric."""
    verdict = _judged(
        name,
        limit,
        value,
        at_most,
        interval=interval,
        confidence=confidence,
        why=why,
        rounding=_rounding(report),
    )
    return replace(
        verdict, detail="; ".join(filter(None, (report.metric.described, verdict.detail)))
    )


def _rounding(report: Report) -> float:
    """Up to which differences of the report's values are none."""
    values = (part.value for part in (report.original, *report.networks))
    return report.metric.rounding(0.0, *(value for value in values if value is not None))


def _drop_interval(report: Report, confidence: float | None) -> Interval | None:
    least = report.pruned.least_accurate(report.metric)
    return _interval(
        report.pruned.drop_interval, least.paired_counts if least else None, confidence
    )


def _interval(
    stated: Interval | None, counted: PairedCounts | None, confidence: float | None
) -> Interval | None:
    """At another confidence: from the counts of samples where there are any, or else stretched."""
    if stated is None or confidence is None:
        return stated
    return with_confidence(stated, confidence) if counted is None else counted.interval(confidence)
