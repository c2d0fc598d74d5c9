"""Plots of single layers, from the report."""

from typing import Any

import pytest

from ltp_pipeline.stages.report import layer_plots
from tests.support.sample_report import report_of, sample


@pytest.fixture
def report() -> dict[str, Any]:
    return sample()[0]


def test_plot_layers_empty_report_gives_no_plot() -> None:
    empty = report_of({})
    assert layer_plots.plot_densities(empty) is None
    assert layer_plots.plot_histograms(empty) is None
    assert layer_plots.plot_scatter(empty) is None


def test_plot_densities_without_baseline_shows_one_method() -> None:
    with_baseline, without = (
        str(layer_plots.plot_densities(report_of(sample(baseline=baseline)[0])))
        for baseline in (True, False)
    )
    assert "global magnitude" in with_baseline
    assert "global magnitude" not in without
    assert "head.fc.weight" in without


def test_plot_densities_many_layers_have_no_names(report: dict[str, Any]) -> None:
    layer = report["layers"][5]
    report["layers"] = [layer | {"name": f"layer{i}.weight"} for i in range(61)]
    assert "layer7.weight" not in str(layer_plots.plot_densities(report_of(report)))


def test_plot_scatter_counts_each_group() -> None:
    scatter = {"before": [1e-4, 1e-3, 1e-3], "after": [0.0, 0.0, 2e-3], "threshold": 5e-4}
    plot = str(layer_plots.plot_scatter(report_of({"scatter": scatter})))
    for label in ("pruned, was below: 1", "pruned, was above: 1", "kept, was above: 1"):
        assert label in plot
    assert "kept, was below" not in plot


@pytest.mark.parametrize(
    "changes",
    [{"threshold": None, "before": [0.0, 1e-3], "after": [0.0, 2e-3]}, {"after": [0.0] * 2500}],
)
def test_plot_scatter_unusual_values_are_drawn(
    report: dict[str, Any], changes: dict[str, Any]
) -> None:
    report["scatter"] |= changes
    assert layer_plots.plot_scatter(report_of(report))


def test_plot_scatter_only_zeros_gives_none() -> None:
    scatter = {"before": [0.0, 0.0], "after": [0.0, 0.0]}
    assert layer_plots.plot_scatter(report_of({"scatter": scatter})) is None
