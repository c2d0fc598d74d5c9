"""Limits in the metric's unit, once the metric is known."""

from typing import Any

import pytest

from ltp_pipeline import api
from ltp_pipeline.errors import InputError
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.settings.checks import check_limit_units, check_metric_limits
from ltp_pipeline.settings.schema import BudgetSettings, ExportSettings, GateSettings
from tests.support.sample_report import in_celsius, report_of, sample

ERROR = Metric("MAE", "°C", higher_is_better=False, is_fraction=False)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("max_drop", 5, "setting gates.max_drop: 5 is no fraction; if 5 % is meant, write 0.05"),
        ("max_drop", -5, "write -0.05"),
        ("max_drop", 1, "max_drop: 1 is no fraction from -1 to below 1"),
        ("min_accuracy", 90, "write 0.9"),
        ("min_accuracy", -0.1, "min_accuracy"),
        ("baseline_margin", 1, "baseline_margin"),
    ],
)
def test_what_is_no_fraction_is_refused_of_a_share(name: str, value: float, told: str) -> None:
    with pytest.raises(InputError) as caught:
        check_metric_limits(
            Metric(), GateSettings(**{"beat_baseline": name == "baseline_margin", name: value})
        )
    assert told in caught.value.message
    assert caught.value.exit_code == 3
    assert "the metric is top-1" in caught.value.hint


def test_a_budget_in_percent_is_refused_of_a_share() -> None:
    with pytest.raises(InputError, match=r"budget\.accuracy_budget: 5 is no fraction"):
        check_metric_limits(Metric("R²"), GateSettings(), BudgetSettings(accuracy_budget=5))


@pytest.mark.parametrize(
    ("value", "told"), [(5, "write 0.05"), (1, "no fraction from 0 to below 1")]
)
def test_what_int8_files_may_lose_in_percent_is_refused_of_a_share(value: float, told: str) -> None:
    with pytest.raises(InputError, match=r"setting export\.int8_max_drop") as caught:
        check_metric_limits(Metric(), GateSettings(), export=ExportSettings(int8_max_drop=value))
    assert told in caught.value.message
    check_metric_limits(Metric(), GateSettings(), export=ExportSettings(int8_max_drop=0))
    check_metric_limits(ERROR, GateSettings(), export=ExportSettings(int8_max_drop=value))


def test_limits_that_are_fractions_hold_for_a_share() -> None:
    gates = GateSettings(min_accuracy=1, max_drop=-1, beat_baseline=True, baseline_margin=0)
    check_metric_limits(Metric(), gates, BudgetSettings(accuracy_budget=1))


def test_any_number_is_a_limit_of_another_metric() -> None:
    gates = GateSettings(min_accuracy=-90, max_drop=-5, beat_baseline=True, baseline_margin=5)
    check_metric_limits(ERROR, gates, BudgetSettings(accuracy_budget=5))


def test_what_is_no_number_is_no_limit_of_any_metric() -> None:
    with pytest.raises(InputError, match="no number"):
        check_limit_units(ERROR, {"max_drop": float("nan")})


def test_gate_refuses_percent_by_the_metric_of_the_report() -> None:
    with pytest.raises(InputError, match="5 is no fraction"):
        api.gate(report_of(sample()[0]), report_only=True, max_drop=5)
    (verdict,) = api.gate(report_of(in_celsius()), report_only=True, max_drop=5)
    assert verdict.passed


@pytest.mark.parametrize("report", [sample()[0], in_celsius()], ids=["share", "other"])
def test_compare_refuses_percent_by_the_metric_of_the_reports(report: dict[str, Any]) -> None:
    content = report_of(report)
    if content.metric.is_fraction:
        with pytest.raises(InputError, match="5 is no fraction"):
            api.compare(content, content, max_drop=5)
    else:
        assert api.compare(content, content, max_drop=5).verdicts[0].passed
