"""Gates: every one passes, fails, and fails without a value; invalid limits are rejected."""

import copy
from typing import Any

import pytest

import ltp_pipeline
from ltp_pipeline.errors import GateFailed, InputError
from ltp_pipeline.gates.evaluation import (
    GATES,
    check_gates,
    choose_limits,
    make_gate_settings,
    summarize_status,
)
from ltp_pipeline.results.schema_parts import GateResult
from ltp_pipeline.results.values import PairedCounts
from ltp_pipeline.settings.schema import GateSettings
from tests.support.sample_report import (
    evaluate_report,
    in_celsius,
    in_metric,
    one_point,
    report_of,
    sample,
    with_value,
)

# Gate, limit that passes, limit that fails, keys of the value, and what stands there without it.
CASES = [
    ("min_accuracy", 0.91, 0.92, ("pruned", "accuracy"), None),
    ("max_drop", 0.0045, 0.004, ("pruned", "drop"), None),
    ("min_sparsity", 0.88, 0.89, ("pruned", "sparsity"), None),
    ("min_compression", 8.3, 8.4, ("pruned", "compression"), None),
    ("min_model_compression", 7.8, 7.9, ("pruned", "model_compression"), None),
    ("max_macs", 0.1215, 0.121, ("pruned", "macs_left"), None),
    ("min_gain", 1.88, 1.9, ("baseline", "gain"), None),
    ("max_bytes", 131_072, 131_071, ("pruned", "files"), []),
    ("max_latency_ratio", 1.02, 1.01, ("pruned", "files", 1, "latency"), []),
    ("min_layer_density", 0.04, 0.05, ("layers",), []),
]


def evaluate(report: dict[str, Any], **limits: Any) -> GateResult:
    """Return the result of the only gate."""
    (result,) = evaluate_report(report, make_gate_settings(limits))
    return result


def changed(report: dict[str, Any], keys: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """Return a copy of the report with another value under these keys."""
    content = copy.deepcopy(report)
    part: Any = content
    for key in keys[:-1]:
        part = part[key]
    part[keys[-1]] = value
    return content


def with_baseline_accuracy(report: dict[str, Any], accuracy: float) -> dict[str, Any]:
    """Return the report with a curve of the baseline that has one accuracy everywhere."""
    curve = [{**point, "accuracy": accuracy} for point in report["baseline"]["curve"]]
    return report | {"baseline": report["baseline"] | {"curve": curve}}


def with_int8(report: dict[str, Any], *latencies: tuple[int, int, float]) -> dict[str, Any]:
    """Return the report with an int8 file of these latencies: batch, threads, ratio."""
    entries = [
        {"batch": batch, "threads": threads, "ms": ratio, "original_ms": 1.0, "ratio": ratio}
        for batch, threads, ratio in latencies
    ]
    other = report["pruned"]["files"][0]
    file = {**other, "graph": "int8", "encoding": "packed", "bytes": 9, "latency": entries}
    file |= {"quantization": {}, "path": "model.int8.packed.onnx"}
    return changed(report, ("pruned", "files"), [*report["pruned"]["files"], file])


def test_gates_are_all_tested_and_settings() -> None:
    assert {case[0] for case in CASES} | {"beat_baseline"} == set(GATES)
    assert set(GateSettings.model_fields) == set(GATES) | {"baseline_margin", "confidence"}


@pytest.mark.parametrize(("name", "passing", "failing", "keys", "unmeasured"), CASES)
def test_gate_passes_fails_and_fails_without_a_value(
    report: dict[str, Any],
    name: str,
    passing: float,
    failing: float,
    keys: tuple[Any, ...],
    unmeasured: Any,
) -> None:
    passed = evaluate(report, **{name: passing})
    assert (passed.name, passed.limit, passed.passed) == (name, passing, True)
    assert passed.advice == ""
    failed = evaluate(report, **{name: failing})
    assert not failed.passed
    assert failed.value is not None
    assert failed.line.startswith(f"{name}: limit {failing:.6g}, value ")
    assert "\n" not in failed.line
    missing = evaluate(changed(report, keys, unmeasured), **{name: passing})
    assert (missing.passed, missing.value) == (False, None)
    assert "not measured" in missing.detail
    without_part = copy.deepcopy(report)
    del without_part[keys[0]]
    assert not evaluate(without_part, **{name: passing}).passed
    assert not evaluate({}, **{name: passing}).passed


def test_evaluate_without_limits_gives_no_result() -> None:
    assert evaluate_report(sample()[0], GateSettings()) == []


@pytest.mark.parametrize("name", ["max_drop", "min_accuracy", "min_sparsity", "min_layer_density"])
def test_limit_of_zero_is_a_limit(report: dict[str, Any], name: str) -> None:
    result = evaluate(report, **{name: 0})
    assert (result.limit, result.passed) == (0, name != "max_drop")


def test_limit_that_rounding_misses_passes(report: dict[str, Any]) -> None:
    assert evaluate(changed(report, ("pruned", "drop"), 0.95 - 0.94), max_drop=0.01).passed


def test_negative_drop_can_be_required(report: dict[str, Any]) -> None:
    assert not evaluate(report, max_drop=-0.01).passed
    assert evaluate(changed(report, ("pruned", "drop"), -0.02), max_drop=-0.01).passed


def test_layer_density_layer_without_a_count_fails(report: dict[str, Any]) -> None:
    result = evaluate(changed(report, ("layers", 1, "nonzeros"), None), min_layer_density=0.0)
    assert (result.passed, result.value) == (False, None)
    assert report["layers"][1]["name"] in result.detail


def test_beat_baseline_needs_a_better_accuracy(report: dict[str, Any]) -> None:
    assert evaluate(report, beat_baseline=True).passed
    with_value(report["baseline"], report["pruned"]["accuracy"]["value"])
    assert not evaluate(report, beat_baseline=True).passed
    assert evaluate(report, beat_baseline=True, baseline_margin=0.0).passed
    without_baseline = evaluate(sample(baseline=False)[0], beat_baseline=True)
    assert (without_baseline.passed, without_baseline.value) == (False, None)


@pytest.mark.parametrize(("margin", "passed"), [(0.0, True), (0.0091, True), (0.0092, False)])
def test_baseline_margin_is_required(report: dict[str, Any], margin: float, passed: bool) -> None:
    result = evaluate(report, beat_baseline=True, baseline_margin=margin)
    assert result.passed is passed
    assert result.limit == margin


@pytest.mark.parametrize(
    ("accuracy", "bound", "passed"), [(0.5, "at least", True), (0.99, "at most", False)]
)
def test_gain_that_is_a_bound_passes_from_below_only(
    report: dict[str, Any], accuracy: float, bound: str, passed: bool
) -> None:
    result = evaluate(with_baseline_accuracy(report, accuracy), min_gain=0.9)
    assert result.value is not None
    assert result.value >= 0.9
    assert result.passed is passed
    assert result.detail.startswith(bound)


def test_gain_is_computed_from_the_curve(report: dict[str, Any]) -> None:
    report["baseline"]["gain"] = 5.0
    result = evaluate(report, min_gain=2.0)
    assert result.value == pytest.approx(1.89, abs=0.01)
    assert not result.passed
    report["baseline"]["curve"] = None
    assert not evaluate(report, min_gain=2.0).passed


def test_gain_between_distant_points_has_a_note(report: dict[str, Any]) -> None:
    detail = evaluate(report, min_gain=1.5).detail
    assert all(number in detail for number in ("4.43×", "3.2×", "5.1×", "far apart"))
    report["baseline"]["curve"][-1]["compression"] = 4.0
    assert "far apart" not in evaluate(report, min_gain=1.5).detail


def test_gain_of_one_point_is_not_measured(report: dict[str, Any]) -> None:
    result = evaluate(one_point(report), min_gain=1.5)
    assert (result.value, result.passed) == (None, False)
    assert "one point" in result.detail


def test_max_drop_interval_is_shown_and_the_value_decides(report: dict[str, Any]) -> None:
    result = evaluate(report, max_drop=0.005)
    assert result.passed
    assert "95 % interval -0.0004069 to 0.009405" in result.detail
    assert "too few samples" in result.detail


@pytest.mark.parametrize(("confidence", "passed"), [(0.5, True), (0.95, False), (0.99, False)])
def test_confidence_compares_the_unfavorable_end(
    report: dict[str, Any], confidence: float, passed: bool
) -> None:
    assert evaluate(report, max_drop=0.007, confidence=confidence).passed is passed


def test_confidence_without_an_interval_fails(report: dict[str, Any]) -> None:
    without_interval = changed(report, ("pruned", "drop_interval"), None)
    result = evaluate(without_interval, max_drop=0.5, confidence=0.9)
    assert not result.passed
    assert result.value is not None


def test_confidence_holds_for_accuracy_and_baseline(report: dict[str, Any]) -> None:
    small = changed(report, ("pruned", "accuracy", "samples"), 200)
    assert evaluate(small, min_accuracy=0.9).passed
    assert not evaluate(small, min_accuracy=0.9, confidence=0.95).passed
    assert evaluate(report, beat_baseline=True, confidence=0.95).passed
    report["difference"] |= {"interval": [-0.001, 0.019], "paired_counts": None}
    assert not evaluate(report, beat_baseline=True, confidence=0.95).passed


def test_confidence_interval_uses_paired_counts(report: dict[str, Any]) -> None:
    counts = PairedCounts(**report["pruned"]["files"][0]["paired_counts"])
    interval = counts.compute_interval(0.8)
    assert interval is not None
    result = evaluate(report, max_drop=0.5, confidence=0.8)
    assert f"80 % interval {interval[0]:.4g} to {interval[1]:.4g}" in result.detail


def test_accuracy_interval_of_r2_vs_original_follows_from_the_drop() -> None:
    report = sample()[0] | {"metric": {"name": "r2_vs_original"}}
    report["pruned"] |= {"drop": 0.02, "drop_interval": [0.01, 0.03]}
    report["pruned"]["accuracy"] = {"value": 0.98, "samples": 10, "split": "test"}
    for file in report["pruned"]["files"]:
        file["paired_counts"] = None
    result = evaluate(report, min_accuracy=0.975, confidence=0.95)
    assert not result.passed
    assert "0.97 to 0.99" in result.detail
    assert evaluate(report, min_accuracy=0.969, confidence=0.95).passed


def test_accuracy_of_other_metrics_has_no_interval() -> None:
    report = in_metric(sample()[0], lambda value: value - 1) | {"metric": {"name": "R²"}}
    assert evaluate(report, min_accuracy=0).detail == "R²"
    assert not evaluate(report, min_accuracy=-0.5, confidence=0.9).passed


@pytest.mark.parametrize(
    ("limit", "passed"), [(2.58, False), (2.5868, True), (2.6, True), (-1, False)]
)
def test_accuracy_of_an_error_must_be_at_most_the_limit(limit: float, passed: bool) -> None:
    result = evaluate(in_celsius(), min_accuracy=limit)
    assert result.passed is passed
    assert result.value == 2.5868
    assert "MAE in °C, lower is better" in result.line


def test_drop_is_compared_in_the_unit_of_the_metric() -> None:
    assert evaluate(in_celsius(), max_drop=0.005).passed
    result = evaluate(in_celsius(), max_drop=0.004)
    assert not result.passed
    assert "MAE in °C" in result.detail
    assert "95 % interval -0.0004 to 0.0094" in result.detail


def test_beat_baseline_follows_the_direction_of_the_metric() -> None:
    result = evaluate(in_celsius(), beat_baseline=True)
    assert result.passed
    assert result.value == pytest.approx(0.0091)
    assert "2.5868 against 2.5959" in result.detail
    mirrored = in_metric(in_celsius(), lambda value: 5 - value)
    assert not evaluate(mirrored, beat_baseline=True).passed
    equal = in_metric(in_celsius(), lambda _: 1e9)
    assert not evaluate(equal, beat_baseline=True).passed


def test_latency_ratio_is_that_of_each_files_own_original(report: dict[str, Any]) -> None:
    report["pruned"]["files"][0]["latency"] = [{"ms": 3.0, "original_ms": 3.0, "ratio": 1.0}]
    assert evaluate(report, max_latency_ratio=1.02).passed


def test_latency_ratio_of_a_file_without_latency_fails(report: dict[str, Any]) -> None:
    report["pruned"]["files"][0]["latency"][0]["ratio"] = None
    result = evaluate(report, max_latency_ratio=5)
    assert (result.passed, result.value) == (False, None)


def test_named_file_is_compared_for_one_sample_on_one_thread(report: dict[str, Any]) -> None:
    content = with_int8(report, (1, 1, 0.4), (16, 1, 0.9), (1, 2, 0.8))
    result = evaluate(content, max_latency_ratio={"int8": 0.5})
    assert result.name == "max_latency_ratio int8-packed"
    assert (result.value, result.passed) == (0.4, True)


def test_named_files_have_a_result_each(report: dict[str, Any]) -> None:
    limits = make_gate_settings({"max_bytes": ["int8=8", "packed=99999999"]})
    results = evaluate_report(with_int8(report, (1, 1, 0.4)), limits)
    assert [(result.name, result.passed) for result in results] == [
        ("max_bytes int8-packed", False),
        ("max_bytes packed", True),
    ]


def test_named_file_that_was_not_written_fails(report: dict[str, Any]) -> None:
    result = evaluate(report, max_bytes={"int8": 8})
    assert (result.passed, result.value) == (False, None)
    assert "int8-packed" in result.detail


@pytest.mark.parametrize(
    ("limits", "key"),
    [
        ({"max_drop": float("nan")}, "max_drop"),
        ({"max_drop": True}, "max_drop"),
        ({"min_accuracy": False}, "min_accuracy"),
        ({"beat_baseline": True, "baseline_margin": -0.1}, "baseline_margin"),
        ({"confidence": 95}, "confidence"),
        ({"min_compression": 0.5}, "min_compression"),
        ({"min_compression": 1e308}, "min_compression"),
        ({"min_model_compression": 2.0**63}, "min_model_compression"),
        ({"max_bytes": 0}, "max_bytes"),
        ({"max_bytes": ["int8=1", "2"]}, "max_bytes"),
        ({"max_bytes": {"int9": 3}}, "max_bytes"),
        ({"max_bytes": ["int8=x"]}, "max_bytes"),
        ({"max_bytes": {"int8": 0}}, "max_bytes"),
        ({"max_bytes": True}, "max_bytes"),
        ({"max_latency_ratio": 0}, "max_latency_ratio"),
        ({"min_gain": 0}, "min_gain"),
        ({"baseline_margin": 0.01}, "beat_baseline"),
        ({"min_sparsity": 0.95, "min_layer_density": 0.1}, "min_layer_density"),
        ({"min_compression": 20, "min_layer_density": 0.1}, "min_layer_density"),
        ({"min_acuracy": 0.9}, "gates.min_acuracy"),
    ],
)
def test_invalid_limits_are_rejected(limits: dict[str, Any], key: str) -> None:
    with pytest.raises(InputError, match=rf"\b{key}\b") as caught:
        make_gate_settings(limits)
    assert caught.value.exit_code == 3
    assert caught.value.hint


def test_limits_that_just_fit_together_are_accepted() -> None:
    make_gate_settings({"min_compression": 10, "min_layer_density": 0.1})
    make_gate_settings({"min_sparsity": 0.9, "min_layer_density": 0.1})


def test_limits_of_a_report_are_never_text() -> None:
    assert make_gate_settings({"max_drop": "0.5"}).max_drop == 0.5
    with pytest.raises(InputError, match=r"gates\.max_drop"):
        make_gate_settings({"max_drop": "0.5"}, strict=True)


def test_limits_of_the_run_hold_if_none_are_passed(report: dict[str, Any]) -> None:
    of_run = {"max_drop": 0.0, "beat_baseline": False, "confidence": None}
    assert choose_limits(GateSettings(), of_run).max_drop == 0.0
    assert choose_limits(GateSettings(confidence=0.9), of_run) == GateSettings(
        max_drop=0.0, confidence=0.9
    )
    assert choose_limits(GateSettings(min_sparsity=0.0), of_run) == GateSettings(min_sparsity=0.0)
    with pytest.raises(InputError, match=r"gates\.max_drop"):
        choose_limits(GateSettings(), {"max_drop": "much"})
    report["settings"]["gates"] = of_run
    results = ltp_pipeline.gate(report_of(report), report_only=True)
    assert [result.name for result in results] == ["max_drop"]


def test_line_of_a_result_is_one_line() -> None:
    assert "\n" not in GateResult("file a\n::stop-commands::x", "00", None, False, "changed").line


def test_status_and_error_follow_from_the_results() -> None:
    passed = GateResult("a", 1.0, 2.0, True)
    failed = GateResult("b", 1.0, 2.0, False, "detail", "train longer")
    changed_file = GateResult("file c", "00", None, False, "changed", "write it again")
    assert summarize_status([]) == "no-gates"
    assert summarize_status([passed]) == "passed"
    assert summarize_status([passed, failed]) == "failed"
    check_gates([passed])
    with pytest.raises(GateFailed) as caught:
        check_gates([failed, passed, changed_file, changed_file])
    lines = caught.value.message.splitlines()
    assert lines == [
        f"gate failed: {result.line}" for result in (failed, changed_file, changed_file)
    ]
    assert caught.value.hint.splitlines() == ["b: train longer", "  write it again"]
