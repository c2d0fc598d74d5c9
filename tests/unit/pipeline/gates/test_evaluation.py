"""Gates: every one passes, fails, and fails on null; bad limits are refused."""

import copy
from typing import Any

import pytest

import ltp_pipeline
from ltp_pipeline.errors import InputError
from ltp_pipeline.gates.evaluation import GATES, choose_limits, make_gate_settings
from ltp_pipeline.results.schema_parts import GateResult
from ltp_pipeline.results.values import PairedCounts
from ltp_pipeline.settings.schema import GateSettings
from tests.support.sample_report import (
    in_celsius,
    in_metric,
    judge,
    one_point,
    report_of,
    sample,
    with_value,
)

# name, limit that passes, limit that fails, where the value comes from, what stands there when it is not measured
CASES = [
    ("min_accuracy", 0.91, 0.92, ("pruned", "accuracy", "value"), None),
    ("max_drop", 0.0045, 0.004, ("pruned", "drop"), None),
    ("min_sparsity", 0.88, 0.89, ("pruned", "sparsity"), None),
    ("min_compression", 8.3, 8.4, ("pruned", "compression"), None),
    ("min_model_compression", 7.8, 7.9, ("pruned", "model_compression"), None),
    ("min_gain", 1.88, 1.9, ("baseline", "gain"), None),
    ("max_bytes", 131_072, 131_071, ("pruned", "files"), []),
    ("max_latency_ratio", 1.02, 1.01, ("pruned", "files", 1, "latency"), []),
    ("min_layer_density", 0.04, 0.05, ("layers",), []),
]


def changed(report: dict[str, Any], keys: tuple[Any, ...], value: Any) -> dict[str, Any]:
    found = copy.deepcopy(report)
    part: Any = found
    for key in keys[:-1]:
        part = part[key]
    part[keys[-1]] = value
    return found


@pytest.mark.parametrize(("name", "passing", "failing", "keys", "unmeasured"), CASES)
def test_passes_fails_and_fails_on_null(
    report: dict[str, Any],
    name: str,
    passing: float,
    failing: float,
    keys: tuple[Any, ...],
    unmeasured: Any,
) -> None:
    (good,) = judge(report, make_gate_settings({name: passing}))
    assert (good.name, good.limit, good.passed) == (name, passing, True)
    (bad,) = judge(report, make_gate_settings({name: failing}))
    assert not bad.passed
    assert bad.value is not None
    assert bad.line.startswith(f"{name}: limit {failing:.6g}, value ")
    assert "\n" not in bad.line
    (null,) = judge(changed(report, keys, unmeasured), make_gate_settings({name: passing}))
    assert (null.passed, null.value) == (False, None)
    absent = copy.deepcopy(report)
    del absent[keys[0]]
    assert not judge(absent, make_gate_settings({name: passing}))[0].passed
    assert not judge({}, make_gate_settings({name: passing}))[0].passed


def test_a_layer_that_was_not_counted_fails_the_floor(report: dict[str, Any]) -> None:
    (verdict,) = judge(
        changed(report, ("layers", 1, "nonzeros"), None), make_gate_settings({"min_layer_density": 0.0})
    )
    assert (verdict.passed, verdict.value) == (False, None)
    assert "nothing counted in layer" in verdict.detail


@pytest.mark.parametrize("name", ["max_drop", "min_accuracy", "min_sparsity", "min_layer_density"])
def test_a_limit_of_zero_is_a_limit(report: dict[str, Any], name: str) -> None:
    (verdict,) = judge(report, make_gate_settings({name: 0}))
    assert (verdict.limit, verdict.passed) == (0, name != "max_drop")


def test_every_gate_is_tested_and_is_a_setting() -> None:
    assert {case[0] for case in CASES} | {"beat_baseline"} == set(GATES)
    assert set(GateSettings.model_fields) == set(GATES) | {"baseline_margin", "confidence"}


def test_no_gate_asked() -> None:
    assert judge(sample()[0], GateSettings()) == []


def test_beat_baseline(report: dict[str, Any]) -> None:
    asked = make_gate_settings({"beat_baseline": True})
    assert judge(report, asked)[0].passed
    with_value(report["baseline"], report["pruned"]["accuracy"]["value"])
    assert not judge(report, asked)[0].passed
    without = judge(sample(baseline=False)[0], asked)[0]
    assert not without.passed
    assert "--no-baseline" in without.detail


@pytest.mark.parametrize(("margin", "passed"), [(0.0, True), (0.0091, True), (0.0092, False)])
def test_beat_baseline_by_points(report: dict[str, Any], margin: float, passed: bool) -> None:
    assert (
        judge(report, make_gate_settings({"beat_baseline": True, "baseline_margin": margin}))[0].passed
        is passed
    )


def test_equal_is_enough_when_the_lead_asked_for_is_zero(report: dict[str, Any]) -> None:
    with_value(report["baseline"], report["pruned"]["accuracy"]["value"])
    assert judge(report, make_gate_settings({"beat_baseline": True, "baseline_margin": 0.0}))[0].passed
    assert not judge(report, make_gate_settings({"beat_baseline": True}))[0].passed


def with_points(report: dict[str, Any], accuracy: float) -> dict[str, Any]:
    """The same with a curve of the baseline that has one accuracy everywhere."""
    curve = [{**point, "accuracy": accuracy} for point in report["baseline"]["curve"]]
    return report | {"baseline": report["baseline"] | {"curve": curve}}


@pytest.mark.parametrize(
    ("accuracy", "bound", "passed"), [(0.5, "at least", True), (0.99, "at most", False)]
)
def test_a_gain_known_to_one_side_passes_from_below_only(
    report, accuracy: float, bound: str, passed: bool
) -> None:
    (verdict,) = judge(with_points(report, accuracy), make_gate_settings({"min_gain": 0.9}))
    assert verdict.value is not None
    assert verdict.value >= 0.9
    assert verdict.passed is passed
    assert verdict.detail.startswith(f"{bound}: ")


def test_the_gain_is_judged_by_the_curve_and_not_by_what_the_report_says_of_it(
    report: dict[str, Any],
) -> None:
    report["baseline"]["gain"] = 5.0
    (verdict,) = judge(report, make_gate_settings({"min_gain": 2.0}))
    assert (round(verdict.value or 0, 2), verdict.passed) == (1.89, False)
    report["baseline"]["curve"] = None
    assert not judge(report, make_gate_settings({"min_gain": 2.0}))[0].passed


def test_a_gain_between_points_that_are_far_apart_says_so(report: dict[str, Any]) -> None:
    (verdict,) = judge(report, make_gate_settings({"min_gain": 1.5}))
    assert (
        verdict.detail
        == "the baseline reaches 4.43×, interpolated between 3.2× and 5.1×, which are far apart"
    )
    report["baseline"]["curve"][-1]["compression"] = 4.0
    assert "far apart" not in judge(report, make_gate_settings({"min_gain": 1.5}))[0].detail


def test_a_gain_that_was_not_measured_fails_with_the_reason_and_what_measures_it(
    report: dict[str, Any],
) -> None:
    (verdict,) = judge(one_point(report), make_gate_settings({"min_gain": 1.5}))
    assert (verdict.value, verdict.passed) == (None, False)
    assert verdict.detail == "not measured: one point of the baseline was measured"
    assert "--baseline curve" in verdict.advice
    (verdict,) = judge(sample(baseline=False)[0], make_gate_settings({"min_gain": 1.5}))
    assert "--no-baseline" in verdict.detail


def test_binary_rounding_decides_nothing(report: dict[str, Any]) -> None:
    assert judge(
        changed(report, ("pruned", "drop"), 0.95 - 0.94), make_gate_settings({"max_drop": 0.01})
    )[0].passed


def test_negative_drop_can_be_demanded(report: dict[str, Any]) -> None:
    assert not judge(report, make_gate_settings({"max_drop": -0.01}))[0].passed
    assert judge(changed(report, ("pruned", "drop"), -0.02), make_gate_settings({"max_drop": -0.01}))[
        0
    ].passed


def test_point_value_is_judged_and_the_interval_is_told(report: dict[str, Any]) -> None:
    (verdict,) = judge(report, make_gate_settings({"max_drop": 0.005}))
    assert verdict.passed
    assert "95 % interval -0.0004069 to 0.009405" in verdict.detail
    assert "too few samples" in verdict.detail


@pytest.mark.parametrize(("confidence", "passed"), [(0.5, True), (0.95, False), (0.99, False)])
def test_confidence_judges_the_far_end(
    report: dict[str, Any], confidence: float, passed: bool
) -> None:
    asked = make_gate_settings({"max_drop": 0.007, "confidence": confidence})
    assert judge(report, asked)[0].passed is passed


def test_confidence_without_an_interval_fails(report: dict[str, Any]) -> None:
    asked = make_gate_settings({"max_drop": 0.5, "confidence": 0.9})
    assert not judge(changed(report, ("pruned", "drop_interval"), None), asked)[0].passed


def test_confidence_counts_for_accuracy_and_baseline(report: dict[str, Any]) -> None:
    small = changed(report, ("pruned", "accuracy", "samples"), 200)
    assert judge(small, make_gate_settings({"min_accuracy": 0.9}))[0].passed
    assert not judge(small, make_gate_settings({"min_accuracy": 0.9, "confidence": 0.95}))[0].passed
    sure = {"beat_baseline": True, "confidence": 0.95}
    assert judge(report, make_gate_settings(sure))[0].passed
    report["difference"] |= {"interval": [-0.001, 0.019], "paired_counts": None}
    assert not judge(report, make_gate_settings(sure))[0].passed


def test_an_interval_at_another_confidence_is_counted_where_outcomes_are_known(
    report: dict[str, Any],
) -> None:
    counts = PairedCounts(**report["pruned"]["files"][0]["paired_counts"])
    (verdict,) = judge(report, make_gate_settings({"max_drop": 0.5, "confidence": 0.8}))
    low, high = counts.interval(0.8) or (0, 0)
    assert f"80 % interval {low:.4g} to {high:.4g}" in verdict.detail


def test_slowest_file_is_judged_beside_its_own_original(report: dict[str, Any]) -> None:
    report["pruned"]["files"][0]["latency"] = [{"ms": 3.0, "original_ms": 3.0, "ratio": 1.0}]
    (verdict,) = judge(report, make_gate_settings({"max_latency_ratio": 1.02}))
    assert verdict.passed


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"max_drop": float("nan")}, "max_drop"),
        ({"max_drop": True}, "true or false"),
        ({"beat_baseline": True, "baseline_margin": -0.1}, "baseline_margin"),
        ({"confidence": 95}, "write 0.95"),
        ({"min_compression": 0.5}, "min_compression"),
        ({"min_compression": 1e308}, "min_compression"),
        ({"min_model_compression": 2.0**63}, "min_model_compression"),
        ({"max_bytes": 0}, "max_bytes"),
        ({"max_latency_ratio": 0}, "max_latency_ratio"),
        ({"min_gain": 0}, "min_gain"),
        ({"baseline_margin": 0.01}, "beat_baseline"),
        ({"min_sparsity": 0.95, "min_layer_density": 0.1}, "contradict"),
        ({"min_compression": 20, "min_layer_density": 0.1}, "contradict"),
        ({"min_acuracy": 0.9}, "min_acuracy"),
    ],
)
def test_bad_limits_are_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError) as caught:
        make_gate_settings(options)
    assert told in caught.value.message
    assert caught.value.exit_code == 3
    assert caught.value.hint


def test_limits_that_just_fit_together() -> None:
    make_gate_settings({"min_compression": 10, "min_layer_density": 0.1})
    make_gate_settings({"min_sparsity": 0.9, "min_layer_density": 0.1})


def test_a_file_without_latency_fails_the_latency_gate(report: dict[str, Any]) -> None:
    report["pruned"]["files"][0]["latency"][0]["ratio"] = None
    (verdict,) = judge(report, make_gate_settings({"max_latency_ratio": 5}))
    assert (verdict.passed, verdict.value) == (False, None)


def test_without_limits_those_of_the_run_hold(report: dict[str, Any]) -> None:
    own = {"max_drop": 0.0, "beat_baseline": False, "confidence": None}
    assert choose_limits(GateSettings(), own).max_drop == 0.0
    assert choose_limits(GateSettings(confidence=0.9), own) == GateSettings(
        max_drop=0.0, confidence=0.9
    )
    assert choose_limits(GateSettings(min_sparsity=0.0), own) == GateSettings(min_sparsity=0.0)
    with pytest.raises(InputError, match="max_drop"):
        choose_limits(GateSettings(), {"max_drop": "much"})
    report["settings"]["gates"] = own
    assert [v.name for v in ltp_pipeline.gate(report_of(report), report_only=True)] == ["max_drop"]


def test_a_name_cannot_start_a_line_of_its_own() -> None:
    assert "\n" not in GateResult("file a\n::stop-commands::x", "00", None, False, "changed").line


def test_true_is_no_limit() -> None:
    with pytest.raises(InputError, match="not true or false"):
        make_gate_settings({"min_accuracy": False})


def test_variance_explained_is_no_share_of_samples_and_has_the_interval_of_its_drop() -> None:
    report = sample()[0]
    report |= {
        "metric": {"name": "r2_vs_original"},
        "pruned": {**report["pruned"], "drop": 0.02, "drop_interval": [0.01, 0.03]},
    }
    report["pruned"]["accuracy"] = {"value": 0.98, "samples": 10, "split": "test"}
    for file in report["pruned"]["files"]:
        file["paired_counts"] = None
    (strict,) = judge(report, GateSettings(min_accuracy=0.975, confidence=0.95))
    assert not strict.passed
    assert "0.97 to 0.99" in strict.detail
    assert judge(report, GateSettings(min_accuracy=0.969, confidence=0.95))[0].passed


@pytest.mark.parametrize(
    ("limit", "passed"), [(2.58, False), (2.5868, True), (2.6, True), (-1, False)]
)
def test_min_accuracy_is_no_worse_than_in_the_direction_of_the_metric(
    limit: float, passed: bool
) -> None:
    (verdict,) = judge(in_celsius(), GateSettings(min_accuracy=limit))
    assert verdict.passed == passed
    assert (
        verdict.line == f"min_accuracy: limit {limit:g}, value 2.5868 (MAE in °C, lower is better)"
    )


def test_a_drop_is_judged_in_the_unit_of_the_metric() -> None:
    assert judge(in_celsius(), GateSettings(max_drop=0.005))[0].passed
    (verdict,) = judge(in_celsius(), GateSettings(max_drop=0.004))
    assert not verdict.passed
    assert "(MAE in °C, lower is better; 95 % interval -0.0004 to 0.0094" in verdict.line


def test_the_baseline_is_beaten_where_it_is_worse_in_the_direction_of_the_metric() -> None:
    (verdict,) = judge(in_celsius(), GateSettings(beat_baseline=True))
    assert verdict.passed
    assert verdict.value == pytest.approx(0.0091)
    assert verdict.detail.startswith(
        "MAE in °C, lower is better: 2.5868 against 2.5959; 95 % interval"
    )
    (verdict,) = judge(
        in_metric(in_celsius(), lambda value: 5 - value), GateSettings(beat_baseline=True)
    )
    assert not verdict.passed


def test_equal_is_not_better_of_any_metric() -> None:
    assert not judge(in_metric(in_celsius(), lambda _: 1e9), GateSettings(beat_baseline=True))[
        0
    ].passed


def test_a_metric_that_counts_no_samples_has_no_interval_of_its_own() -> None:
    report = in_metric(sample()[0], lambda value: value - 1) | {"metric": {"name": "R²"}}
    assert judge(report, GateSettings(min_accuracy=0))[0].detail == "R²"
    (verdict,) = judge(report, GateSettings(min_accuracy=0, confidence=0.9))
    assert "the report has no interval" in verdict.detail


@pytest.mark.parametrize("gates", [{"max_drop": 0.001}, {"min_accuracy": 2.584}])
def test_advice_names_a_network_that_is_good_enough_in_the_direction_of_the_metric(
    gates: dict[str, Any],
) -> None:
    report = in_celsius()
    report["trail"][2]["accuracy"] = 2.5825
    (verdict,) = judge(report, GateSettings(**gates))
    assert (
        "`ltp-pipeline pick RUN 3` finishes entry 3 of the trail (2.46×), 2.583 °C on the"
        in verdict.advice
    )


def test_advice_says_when_the_original_itself_is_not_as_good() -> None:
    (verdict,) = judge(in_celsius(), GateSettings(min_accuracy=2.5))
    assert verdict.advice.startswith("the original itself has 2.582 °C")


def with_int8(report: dict[str, Any], *entries: tuple[int, int, float]) -> dict[str, Any]:
    """The report with an int8 file of these latencies: batch, threads, ratio."""
    latency = [
        {"batch": b, "threads": t, "ms": r, "original_ms": 1.0, "ratio": r} for b, t, r in entries
    ]
    file = {
        **report["pruned"]["files"][0],
        "graph": "int8",
        "encoding": "packed",
        "bytes": 9,
        "latency": latency,
    }
    return changed(report, ("pruned", "files"), [*report["pruned"]["files"], file])


def test_a_named_file_is_judged_for_one_sample_on_one_thread(report: dict[str, Any]) -> None:
    found = with_int8(report, (1, 1, 0.4), (16, 1, 0.9), (1, 2, 0.8))
    (verdict,) = judge(found, make_gate_settings({"max_latency_ratio": {"int8": 0.5}}))
    assert (verdict.name, verdict.value, verdict.passed) == (
        "max_latency_ratio int8-packed",
        0.4,
        True,
    )


def test_limits_of_several_files_are_several_verdicts(report: dict[str, Any]) -> None:
    found = with_int8(report, (1, 1, 0.4))
    verdicts = judge(found, make_gate_settings({"max_bytes": ["int8=8", "packed=99999999"]}))
    assert [(v.name, v.passed) for v in verdicts] == [
        ("max_bytes int8-packed", False),
        ("max_bytes packed", True),
    ]
    assert verdicts[0].advice


def test_a_named_file_that_was_not_written_fails(report: dict[str, Any]) -> None:
    (verdict,) = judge(report, make_gate_settings({"max_bytes": {"int8": 8}}))
    assert not verdict.passed
    assert "no int8-packed file was written" in verdict.detail
    assert "--export int8-packed" in verdict.advice


@pytest.mark.parametrize("given", [["int8=1", "2"], {"int9": 3}, ["int8=x"], {"int8": 0}, True])
def test_limits_that_mean_nothing_are_refused(given: Any) -> None:
    with pytest.raises(InputError, match="max_bytes"):
        make_gate_settings({"max_bytes": given})
