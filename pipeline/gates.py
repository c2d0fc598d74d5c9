"""Gates: a report in, verdicts out. Nothing here measures anything.

A gate is a field of `GateSettings` and a function in `GATES`. A value that is missing or null fails its gate. With
`confidence`, the gates on accuracy judge the unfavourable end of the interval instead of the value.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

from pydantic import ValidationError

from ltp_pipeline import advice
from ltp_pipeline.ci import printable
from ltp_pipeline.config import GateSettings
from ltp_pipeline.errors import InputError
from ltp_pipeline.lookup import get, listed, number
from ltp_pipeline.report_schema import SCHEMA, problems

REPORT_CONFIDENCE = 0.95  # of the intervals that stand in a report
ROUNDING = 1e-9  # 0.95 - 0.94 is a little more than 0.01 in binary
Interval = tuple[float, float]


@dataclass(frozen=True)
class Verdict:
    """One gate, judged; `detail` adds what a reader wants to know beside limit and value, `advice` what would help."""

    name: str
    limit: float | bool | str | None
    value: float | None
    passed: bool
    detail: str = ""
    advice: str = ""

    @property
    def is_hash(self) -> bool:
        """Whether a file was judged, by the hash that the report has of it; empty where it has none."""
        return isinstance(self.limit, str)

    @property
    def line(self) -> str:
        """Name, limit and value in one line."""
        if self.is_hash:  # which tells nobody anything
            said = f"{self.name}: {self.detail}"
        else:
            detail = f" ({self.detail})" if self.detail else ""
            said = f"{self.name}: limit {_show(self.limit)}, value {_show(self.value)}{detail}"
        return printable(said)


def gate_settings(options: Mapping[str, Any]) -> GateSettings:
    """Check limits that come from a command line or a caller."""
    try:
        return GateSettings.model_validate({k: v for k, v in options.items() if v is not None})
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, e['loc'])) or 'gates'}: {e['msg']}" for e in error.errors()]
        what = "; ".join(lines).replace("Value error, ", "")
        raise InputError(what, "correct the limit; docs/ci.md lists every gate with its unit") from None


def judge(report: Mapping[str, Any], gates: GateSettings) -> list[Verdict]:
    """Judge every gate that was asked for, in the order of GATES."""
    asked = [name for name in GATES if getattr(gates, name) is not None and getattr(gates, name) is not False]
    verdicts = [GATES[name](report, gates) for name in asked]
    return [v if v.passed else replace(v, advice=advice.on(v, report, gates)) for v in verdicts]


def or_own(report: Mapping[str, Any], gates: GateSettings) -> GateSettings:
    """The limits given; where there are none, those that the run itself was judged by."""
    own = get(report, "settings", "gates")
    if judge({}, gates) or not isinstance(own, Mapping):
        return gates
    given = {name: value for name, value in gates if value is not None and value is not False}
    try:
        return gate_settings({**own, **given})
    except InputError:
        return gates


def verdict_of(verdicts: Sequence[Verdict]) -> str:
    """All verdicts in one word."""
    return "not-gated" if not verdicts else "passed" if all(v.passed for v in verdicts) else "failed"


def read_report(path: Path) -> dict[str, Any]:
    """Read a report.json; keys may be missing (their gates fail), but what is there has the right type."""
    remedy = "give the report.json of a finished run; `ltp-pipeline run` writes one"
    try:
        report = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except OSError as error:
        raise InputError(f"cannot read report {path}: {error.strerror}", remedy) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON, or was cut off: {error}", remedy) from None
    schema = report.get("schema") if isinstance(report, dict) else None
    if not isinstance(schema, str) or not schema.startswith("ltp-report/"):
        raise InputError(f"{path} is JSON, but not a report of ltp-pipeline", remedy)
    if schema != SCHEMA:
        update = "install a newer ltp-pipeline, or write the report again with this one: `ltp-pipeline report RUN`"
        raise InputError(f"{path} has schema {schema}; this version reads {SCHEMA}", update)
    if found := problems(report, missing=False):
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise InputError(f"{path} does not keep to {SCHEMA}: {found[0]}{more}", remedy)
    return dict(report)


def _min_accuracy(report: Mapping[str, Any], gates: GateSettings) -> Verdict:
    value, samples = (number(report, "pruned", "accuracy", key) for key in ("top1", "samples"))
    interval = wilson(value, samples, gates.confidence or REPORT_CONFIDENCE) if value is not None and samples else None
    if report.get("metric") == "explained":  # no share of samples; of the original it is 1, so the drop tells
        stated = _interval(get(report, "pruned", "drop_interval"), gates.confidence)
        interval = None if stated is None else (1 - stated[1], 1 - stated[0])
    why = _reason(report, "accuracy")
    return _judge("min_accuracy", gates.min_accuracy, value, interval=interval, confidence=gates.confidence, why=why)


def _max_drop(report: Mapping[str, Any], gates: GateSettings) -> Verdict:
    value = number(report, "pruned", "drop")
    interval = _interval(get(report, "pruned", "drop_interval"), gates.confidence)
    why = _reason(report, "drop")
    return _judge("max_drop", gates.max_drop, value, True, interval=interval, confidence=gates.confidence, why=why)


def _min_sparsity(report: Mapping[str, Any], gates: GateSettings) -> Verdict:
    value = number(report, "pruned", "sparsity")
    return _judge("min_sparsity", gates.min_sparsity, value, why=_reason(report, "sparsity"))


def _min_compression(report: Mapping[str, Any], gates: GateSettings) -> Verdict:
    value, other = (number(report, "pruned", key) for key in ("compression", "model_compression"))
    detail = "" if other is None else f"of the kernels; of the whole model {_show(float(other))}"
    why = _reason(report, "compression")
    return _judge("min_compression", gates.min_compression, value, why=why, detail=detail)


def _min_model_compression(report: Mapping[str, Any], gates: GateSettings) -> Verdict:
    value, other = (number(report, "pruned", key) for key in ("model_compression", "compression"))
    detail = "" if other is None else f"of the whole model; of the kernels {_show(float(other))}"
    why = _reason(report, "model_compression") or "the report counts kernels only"
    return _judge("min_model_compression", gates.min_model_compression, value, why=why, detail=detail)


def _beat_baseline(report: Mapping[str, Any], gates: GateSettings) -> Verdict:
    pruned, other = (number(report, part, "accuracy", "top1") for part in ("pruned", "baseline"))
    value = None if pruned is None or other is None else pruned - other
    interval = _interval(get(report, "difference", "interval"), gates.confidence)
    why = str(get(report, "baseline_reason") or "the report has no accuracy of the baseline")
    limit = 2 * ROUNDING if gates.by is None else gates.by  # without `by`, equal is not better
    verdict = _judge("beat_baseline", limit, value, interval=interval, confidence=gates.confidence, why=why)
    metric = report.get("metric", "top-1")
    shown = (
        verdict.detail if value is None else f"{metric} {pruned:.4f} against {other:.4f}; {verdict.detail}".rstrip("; ")
    )
    return Verdict("beat_baseline", gates.by or 0.0, value, verdict.passed, shown)


def _max_bytes(report: Mapping[str, Any], gates: GateSettings) -> Verdict:
    sizes = [(size, f) for f in listed(report, "pruned", "files") if (size := number(f, "bytes")) is not None]
    value, file = min(sizes, key=lambda pair: pair[0], default=(None, {}))
    detail = f"smallest file: {get(file, 'path')}"
    return _judge("max_bytes", gates.max_bytes, value, True, why="the report names no file size", detail=detail)


def _max_latency_ratio(report: Mapping[str, Any], gates: GateSettings) -> Verdict:
    ratios = []
    for file in listed(report, "pruned", "files"):
        original = number(file, "original_latency_ms") or number(report, "original", "latency_ms")
        latency = number(file, "latency_ms")
        if not original or latency is None:
            why = f"no latency measured of {get(file, 'path')}"
            return _judge("max_latency_ratio", gates.max_latency_ratio, None, True, why=why)
        ratios.append((latency / original, file))
    value, slowest = max(ratios, key=lambda pair: pair[0], default=(None, {}))
    detail = f"slowest file: {get(slowest, 'path')}"
    return _judge("max_latency_ratio", gates.max_latency_ratio, value, True, why="no latencies measured", detail=detail)


def _per_layer_floor(report: Mapping[str, Any], gates: GateSettings) -> Verdict:
    kept: list[tuple[float, str]] = []
    for layer in listed(report, "layers"):
        elements, nonzeros = number(layer, "elements"), number(layer, "nonzeros")
        if not elements or nonzeros is None:
            why = f"nothing counted in layer {get(layer, 'name')}"
            return Verdict("per_layer_floor", gates.per_layer_floor, None, False, why)
        kept.append((nonzeros / elements, str(get(layer, "name"))))
    value, name = min(kept, default=(None, ""))
    why, detail = "the report lists no layers", f"least kept layer: {name}"
    return _judge("per_layer_floor", gates.per_layer_floor, value, why=why, detail=detail)


GATES: dict[str, Callable[[Mapping[str, Any], GateSettings], Verdict]] = {
    "min_accuracy": _min_accuracy,
    "max_drop": _max_drop,
    "min_sparsity": _min_sparsity,
    "min_compression": _min_compression,
    "min_model_compression": _min_model_compression,
    "beat_baseline": _beat_baseline,
    "max_bytes": _max_bytes,
    "max_latency_ratio": _max_latency_ratio,
    "per_layer_floor": _per_layer_floor,
}


def _judge(
    name: str,
    limit: float | None,
    value: float | None,
    at_most: bool = False,
    *,
    interval: Interval | None = None,
    confidence: float | None = None,
    why: str = "",
    detail: str = "",
) -> Verdict:
    """Compare a value, or with confidence the unfavourable end of its interval, with a limit."""
    if value is None or limit is None:
        return Verdict(name, limit, None, False, f"not measured: {why}" if why else "not measured")
    if confidence is not None and interval is None:
        return Verdict(name, limit, value, False, "confidence was asked for, and the report has no interval")
    judged = value
    if interval is not None:
        detail = f"{100 * (confidence or REPORT_CONFIDENCE):g} % interval {interval[0]:.4g} to {interval[1]:.4g}"
        if confidence is not None:
            judged = interval[1] if at_most else interval[0]
        elif interval[0] < limit < interval[1]:
            detail += ", and the limit lies inside it: too few samples to be sure"
    passed = judged <= limit + ROUNDING if at_most else judged >= limit - ROUNDING
    return Verdict(name, limit, value, passed, detail)


def wilson(share: float, samples: float, confidence: float) -> Interval:
    """Wilson's score interval of a share of samples."""
    z2 = NormalDist().inv_cdf((1 + confidence) / 2) ** 2
    middle = (share + z2 / (2 * samples)) / (1 + z2 / samples)
    half = math.sqrt(z2 * (share * (1 - share) / samples + z2 / (4 * samples**2))) / (1 + z2 / samples)
    return max(0.0, middle - half), min(1.0, middle + half)


def _interval(stated: Any, confidence: float | None) -> Interval | None:
    """The interval of the report, stretched from its own confidence to the one asked for."""
    if not isinstance(stated, Sequence) or len(stated) != 2:
        return None
    low, high = stated
    if confidence is None:
        return low, high
    normal = NormalDist()
    stretch = normal.inv_cdf((1 + confidence) / 2) / normal.inv_cdf((1 + REPORT_CONFIDENCE) / 2)
    middle, half = (low + high) / 2, stretch * (high - low) / 2
    return middle - half, middle + half


def _reason(report: Mapping[str, Any], key: str) -> str:
    return str(get(report, "pruned", "reasons", key) or "")


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _show(value: float | bool | str | None) -> str:
    if value is None:
        return "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
