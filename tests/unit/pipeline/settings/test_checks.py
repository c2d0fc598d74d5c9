"""Checks of settings against each other and against the metric."""

from typing import Any

import pytest

from ltp_pipeline import api
from ltp_pipeline.errors import InputError
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.settings.checks import (
    check_contradictions,
    check_lambda,
    check_limit_units,
    check_metric_limits,
)
from ltp_pipeline.settings.schema import BudgetSettings, ExportSettings, GateSettings, Settings
from tests.support.sample_report import in_celsius, report_of, sample

FRACTION = Metric()
CELSIUS = Metric("MAE", "°C", higher_is_better=False, is_fraction=False)


@pytest.mark.parametrize(
    ("name", "value", "fraction"),
    [
        ("max_drop", 5, "0.05"),
        ("max_drop", -5, "-0.05"),
        ("max_drop", 1, None),
        ("min_accuracy", 90, "0.9"),
        ("min_accuracy", -0.1, None),
        ("baseline_margin", 1, None),
    ],
)
def test_metric_limits_gate_that_is_not_a_fraction_is_rejected(
    name: str, value: float, fraction: str | None
) -> None:
    gates = GateSettings(**{"beat_baseline": name == "baseline_margin", name: value})
    with pytest.raises(InputError) as caught:
        check_metric_limits(FRACTION, gates)
    assert caught.value.exit_code == 3
    assert f"gates.{name}" in caught.value.message
    assert "top-1" in caught.value.hint
    assert fraction is None or f"write {fraction} for" in caught.value.hint


def test_metric_limits_budget_in_percent_is_rejected() -> None:
    with pytest.raises(InputError, match=r"budget\.accuracy_budget"):
        check_metric_limits(Metric("R²"), GateSettings(), BudgetSettings(accuracy_budget=5))


@pytest.mark.parametrize("value", [5, 1])
def test_metric_limits_int8_drop_that_is_not_a_fraction_is_rejected(value: float) -> None:
    export = ExportSettings(int8_max_drop=value)
    with pytest.raises(InputError, match=r"export\.int8_max_drop"):
        check_metric_limits(FRACTION, GateSettings(), export=export)
    check_metric_limits(FRACTION, GateSettings(), export=ExportSettings(int8_max_drop=0))
    check_metric_limits(CELSIUS, GateSettings(), export=export)


def test_metric_limits_fractions_are_accepted() -> None:
    gates = GateSettings(min_accuracy=1, max_drop=-1, beat_baseline=True, baseline_margin=0)
    check_metric_limits(FRACTION, gates, BudgetSettings(accuracy_budget=1))


def test_metric_limits_any_number_is_accepted_for_another_metric() -> None:
    gates = GateSettings(min_accuracy=-90, max_drop=-5, beat_baseline=True, baseline_margin=5)
    check_metric_limits(CELSIUS, gates, BudgetSettings(accuracy_budget=5))


def test_limit_units_nan_is_rejected() -> None:
    with pytest.raises(InputError, match=r"\bmax_drop .*\bnan\b"):
        check_limit_units(CELSIUS, {"max_drop": float("nan")})


def test_gate_percent_is_rejected_by_the_metric_of_the_report() -> None:
    with pytest.raises(InputError, match=r"gates\.max_drop .*\b5\b"):
        api.gate(report_of(sample()[0]), report_only=True, max_drop=5)
    (result,) = api.gate(report_of(in_celsius()), report_only=True, max_drop=5)
    assert result.passed


@pytest.mark.parametrize("report", [sample()[0], in_celsius()], ids=["fraction", "other"])
def test_compare_percent_is_rejected_by_the_metric_of_the_reports(report: dict[str, Any]) -> None:
    content = report_of(report)
    if content.metric.is_fraction:
        with pytest.raises(InputError, match=r"\bmax_drop .*\b5\b"):
            api.compare(content, content, max_drop=5)
    else:
        api.compare(content, content, max_drop=5)


@pytest.mark.parametrize(
    ("sections", "keys"),
    [
        (
            {"baseline": {"mode": "none"}, "gates": {"beat_baseline": True}},
            ("gates.beat_baseline", "baseline.mode"),
        ),
        (
            {"baseline": {"mode": "quick"}, "gates": {"min_gain": 1.5}},
            ("gates.min_gain", "baseline.mode"),
        ),
        (
            {"baseline": {"mode": "gradual"}, "gates": {"min_gain": 1.5}},
            ("gates.min_gain", "baseline.mode"),
        ),
        (
            {"baseline": {"mode": "none"}, "export": {"best": True}},
            ("export.best", "baseline.mode"),
        ),
        (
            {"train": {"quantization_aware": True}},
            ("train.quantization_aware", "export.formats"),
        ),
        (
            {
                "train": {"quantization_aware": True, "finetune_epochs": 0},
                "export": {"formats": ["int8"]},
            },
            ("train.quantization_aware", "train.finetune_epochs"),
        ),
        (
            {"budget": {"target_sparsity": 0.5}, "gates": {"min_compression": 2.1}},
            ("gates.min_compression",),
        ),
        (
            {"budget": {"target_compression": 6}, "gates": {"min_sparsity": 0.9}},
            ("gates.min_sparsity",),
        ),
        (
            {"budget": {"target_macs": 0.2}, "gates": {"max_macs": 0.19}},
            ("gates.max_macs", "0.2"),
        ),
        (
            {"budget": {"target_macs": 0.2}, "gates": {"min_gain": 1.5}},
            ("gates.min_gain", "budget.target_macs"),
        ),
        (
            {"budget": {"target_macs": 0.2}, "baseline": {"mode": "curve"}},
            ("baseline.mode", "budget.target_macs"),
        ),
        (
            {"budget": {"target_bytes": 0.2}, "export": {"formats": ["sparse", "fast"]}},
            ("budget.target_bytes", "export.formats"),
        ),
        (
            {"budget": {"target_bytes": 2000}, "gates": {"max_bytes": 1999}},
            ("gates.max_bytes", "2000"),
        ),
        (
            {"budget": {"target_bytes": 2000}, "gates": {"max_bytes": {"packed": 1999}}},
            ("gates.max_bytes", "1999"),
        ),
        (
            {"budget": {"target_bytes": 0.2}, "gates": {"min_gain": 1.5}},
            ("gates.min_gain", "budget.target_bytes"),
        ),
        (
            {"budget": {"target_latency": 0.5}},
            ("budget.target_latency", "export.formats"),
        ),
        (
            {
                "budget": {"target_latency": 0.5},
                "export": {"formats": ["fast"]},
                "gates": {"max_latency_ratio": {"fast-packed": 0.4}},
            },
            ("gates.max_latency_ratio", "0.5"),
        ),
        (
            {
                "budget": {"target_latency": 0.5},
                "export": {"formats": ["fast"]},
                "baseline": {"mode": "curve"},
            },
            ("baseline.mode", "budget.target_latency"),
        ),
    ],
)
def test_contradictions_are_rejected_with_their_keys(
    sections: dict[str, Any], keys: tuple[str, ...]
) -> None:
    with pytest.raises(InputError) as caught:
        check_contradictions(Settings.model_validate(sections))
    assert all(key in caught.value.message for key in keys)


@pytest.mark.parametrize(
    ("sparsity", "compression"), [(0.95, 20), (0.96, 25), (0.98, 50), (0.99, 100)]
)
def test_contradictions_target_that_just_meets_its_gate_is_accepted(
    sparsity: float, compression: float
) -> None:
    budget = BudgetSettings(target_sparsity=sparsity)
    gates = GateSettings(min_compression=compression)
    check_contradictions(Settings(budget=budget, gates=gates))


@pytest.mark.parametrize(
    "sections",
    [
        {"budget": {"target_bytes": 2000}, "gates": {"max_bytes": 2000}},
        {"budget": {"target_bytes": 2000}, "gates": {"max_bytes": {"sparse": 10}}},
        {"budget": {"target_bytes": 0.9}, "gates": {"max_bytes": 1}},
        {
            "budget": {"target_latency": 0.5},
            "export": {"formats": ["fast"]},
            "gates": {"max_latency_ratio": {"fast": 0.5}},
        },
    ],
)
def test_contradictions_cost_that_its_gates_allow_is_accepted(sections: dict[str, Any]) -> None:
    check_contradictions(Settings.model_validate(sections))


def test_contradictions_target_macs_that_just_meets_its_gate_is_accepted() -> None:
    check_contradictions(
        Settings.model_validate({"budget": {"target_macs": 0.2}, "gates": {"max_macs": 0.2}})
    )


@pytest.mark.parametrize(
    ("sections", "key"),
    [
        ({"budget": {"target_macs": 0.1}}, "budget.target_macs"),
        ({"budget": {"accuracy_budget": 0.01}}, "budget.accuracy_budget"),
        ({"method": {"block": "4x1"}}, "method.block"),
    ],
)
def test_lambda_with_a_budget_or_blocks_is_rejected(sections: dict[str, Any], key: str) -> None:
    check_lambda(Settings.model_validate(sections))
    method = {**sections.get("method", {}), "lambda": 1e-6}
    with pytest.raises(InputError, match=r"method\.lambda") as caught:
        check_lambda(Settings.model_validate({**sections, "method": method}))
    assert key in caught.value.message
