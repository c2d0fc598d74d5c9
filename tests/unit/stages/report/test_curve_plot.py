"""The picture of both methods."""

import re
from typing import Any

import pytest

from ltp_pipeline.stages.report import curve_plot
from tests.support.sample_report import bounded, in_celsius, in_metric, one_point, report_of, sample


def drawn(report: dict[str, Any]) -> str:
    picture = curve_plot.curve(report_of(report))
    assert picture is not None
    return re.sub(r"<!--.*?-->", "", picture)


@pytest.mark.parametrize("content", [one_point(sample()[0]), sample(baseline=False)[0], {}])
def test_without_a_curve_there_is_no_picture(content: dict[str, Any]) -> None:
    assert curve_plot.curve(report_of(content)) is None


def test_both_methods_the_original_and_the_gain_are_in_it() -> None:
    picture = drawn(sample()[0])
    for label in (
        "global magnitude (test)",
        "LTP (test)",
        "original (test)",
        "trail before fine-tuning (validation)",
    ):
        assert label in picture
    assert "gain 1.89" in picture
    assert "accuracy budget" not in picture


@pytest.mark.parametrize("bound", ["at least", "at most"])
def test_a_bound_is_named_as_one(bound: str) -> None:
    assert f"gain {bound} 2.5" in drawn(bounded(sample()[0], bound, 2.5))


def test_an_accuracy_budget_is_a_line_of_its_own() -> None:
    report = sample()[0]
    report["baseline"] |= {"budget": 0.01, "compression_at_equal_accuracy": 5.1, "gain": 1.64}
    assert "accuracy budget" in drawn(report)


def test_without_trail_and_original_it_is_still_drawn() -> None:
    assert "trail" not in drawn(sample()[0] | {"trail": [], "original": {}})


def test_a_metric_of_which_less_is_better_is_drawn_in_its_unit() -> None:
    report = in_celsius()
    picture = drawn(report)
    assert "MAE, °C (lower is better)" in picture
    assert re.findall(r">(2\.5\d+)<", picture)
    assert "gain 1.89" in picture
    report["baseline"] |= {"budget": 0.01, "compression_at_equal_accuracy": 5.1, "gain": 1.64}
    assert "accuracy" not in drawn(report)
    assert ">budget<" in drawn(report)


def test_values_that_are_all_alike_are_drawn() -> None:
    report = in_metric(in_celsius(), lambda _: 1e-7)
    assert drawn(report)
