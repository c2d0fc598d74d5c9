"""The plot of the metric against compression."""

import re
from typing import Any

import pytest

from ltp_pipeline.stages.report import tradeoff_plot
from tests.support.sample_report import (
    in_celsius,
    in_metric,
    one_point,
    report_of,
    sample,
    with_bounded_gain,
)

WITHIN_BUDGET = {"budget": 0.01, "compression_at_equal_accuracy": 5.1, "gain": 1.64}


def plot_tradeoff(report: dict[str, Any]) -> str:
    plot = tradeoff_plot.plot_tradeoff(report_of(report))
    assert plot is not None
    return re.sub(r"<!--.*?-->", "", plot)


def test_plot_tradeoff_empty_report_gives_none() -> None:
    assert tradeoff_plot.plot_tradeoff(report_of({})) is None


def test_plot_tradeoff_shows_both_methods_original_trail_and_gain() -> None:
    plot = plot_tradeoff(sample()[0])
    for label in ("global magnitude (test)", "LTP (test)", "original (test)", "selected entry"):
        assert label in plot
    assert "(validation)" in plot
    assert ">gain 1.89<" in plot
    assert "budget" not in plot


@pytest.mark.parametrize(
    ("report", "has_baseline"), [(one_point(sample()[0]), True), (sample(baseline=False)[0], False)]
)
def test_plot_tradeoff_without_curve_has_no_gain(
    report: dict[str, Any], has_baseline: bool
) -> None:
    plot = plot_tradeoff(report)
    assert "LTP (test)" in plot
    assert ("global magnitude (test)" in plot) == has_baseline
    assert ">gain" not in plot


@pytest.mark.parametrize("bound", ["at least", "at most"])
def test_plot_tradeoff_bounded_gain_names_the_bound(bound: str) -> None:
    assert f">gain {bound} 2.5<" in plot_tradeoff(with_bounded_gain(sample()[0], bound, 2.5))


def test_plot_tradeoff_budget_is_a_line() -> None:
    report = sample()[0]
    report["baseline"] |= WITHIN_BUDGET
    assert "accuracy budget" in plot_tradeoff(report)


def test_plot_tradeoff_without_trail_and_original_shows_results() -> None:
    plot = plot_tradeoff(sample()[0] | {"trail": [], "original": {}})
    assert "LTP (test)" in plot
    assert "trail" not in plot


def test_plot_tradeoff_other_metric_has_its_unit() -> None:
    report = in_celsius()
    plot = plot_tradeoff(report)
    assert "MAE, °C (lower is better)" in plot
    assert 'aria-label="MAE against compression"' in plot
    assert re.findall(r">(2\.5\d+)<", plot)
    report["baseline"] |= WITHIN_BUDGET
    plot = plot_tradeoff(report)
    assert "accuracy" not in plot
    assert ">budget<" in plot


def test_plot_tradeoff_equal_values_are_drawn() -> None:
    assert plot_tradeoff(in_metric(in_celsius(), lambda _: 1e-7))
