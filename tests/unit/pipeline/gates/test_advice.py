"""Advice for gates that failed."""

from typing import Any

import pytest

from ltp_pipeline.gates.advice import SUGGESTIONS
from ltp_pipeline.gates.evaluation import GATES, evaluate_gates, make_gate_settings
from ltp_pipeline.results.schema_parts import GateResult
from ltp_pipeline.stages.handoff.select_network import select_network
from tests.support.sample_report import evaluate_report, one_point, report_of, sample, with_value

FAILING: dict[str, Any] = {
    "min_accuracy": 0.95,
    "max_drop": 0.001,
    "min_sparsity": 0.95,
    "min_compression": 50,
    "min_model_compression": 50,
    "max_macs": 0.01,
    "beat_baseline": True,
    "min_gain": 2.0,
    "max_bytes": 100,
    "max_latency_ratio": 0.5,
    "min_layer_density": 0.2,
}


def evaluate(report: dict[str, Any], **limits: Any) -> GateResult:
    """Return the result of the only gate, which fails."""
    (result,) = evaluate_report(report, make_gate_settings(limits))
    assert not result.passed
    return result


def test_suggest_fix_covers_every_gate() -> None:
    assert SUGGESTIONS.keys() == GATES.keys() == FAILING.keys()


@pytest.mark.parametrize("name", FAILING)
def test_failed_gate_has_advice_without_placeholders(report: dict[str, Any], name: str) -> None:
    with_value(report["baseline"], 0.95)
    advice = evaluate(report, **{name: FAILING[name]}).advice
    assert advice
    assert "{" not in advice
    assert "\n" not in advice


@pytest.mark.parametrize(
    ("limits", "target"),
    [
        ({"min_compression": 50}, "50"),
        ({"min_compression": 33.3333}, "33.34"),
        ({"min_sparsity": 0.95}, "20"),
        ({"min_sparsity": 0.91}, "11.12"),
    ],
)
def test_sparser_target_is_not_below_the_limit(
    report: dict[str, Any], limits: dict[str, float], target: str
) -> None:
    assert f"--target-compression {target} " in evaluate(report, **limits).advice


def test_layer_density_advice_has_the_limit(report: dict[str, Any]) -> None:
    advice = evaluate(report, min_layer_density=0.05).advice
    assert "method.min_layer_density to 0.05" in advice


def test_value_that_only_misses_by_its_interval_needs_more_samples(report: dict[str, Any]) -> None:
    advice = evaluate(report, max_drop=0.007, confidence=0.95).advice
    assert "test samples" in advice
    assert "--confidence" in advice
    assert "--confidence" not in evaluate(report, max_drop=0.001, confidence=0.95).advice


def test_missing_baseline_needs_another_run(report: dict[str, Any]) -> None:
    no_baseline = sample(baseline=False)[0]
    assert "--baseline quick" in evaluate(no_baseline, beat_baseline=True).advice
    assert "--baseline curve" in evaluate(no_baseline, min_gain=1.5).advice
    assert "--baseline curve" in evaluate(one_point(report), min_gain=1.5).advice


def test_missing_file_needs_its_format(report: dict[str, Any]) -> None:
    result = evaluate(report, max_bytes={"int8": 1000})
    assert result.value is None
    assert "--export int8-packed" in result.advice


@pytest.mark.parametrize("name", ["beat_baseline", "min_gain"])
def test_delivered_baseline_has_no_baseline_to_measure(report: dict[str, Any], name: str) -> None:
    limits = make_gate_settings({name: FAILING[name]})
    (result,) = evaluate_gates(select_network(report_of(report)), limits)
    assert not result.passed
    assert "remove the gate" in result.advice


def test_gain_gate_on_a_budget_of_multiply_adds_is_to_be_removed(report: dict[str, Any]) -> None:
    report = one_point(report)
    report["settings"]["budget"] = {"target_macs": 0.1}
    advice = evaluate(report, min_gain=1.5).advice
    assert advice.startswith("remove the gate")
    assert "target_macs" in advice
