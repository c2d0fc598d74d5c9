"""Plot the layers of a network: their density, histograms and samples of their weights.

Each plot is a function of the report. It returns None if its data are missing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ltp_pipeline.stages.report import filters, svg
from ltp_pipeline.stages.report.svg import BASELINE, FAINT, GRADUAL, INK, LEARNED, ORIGINAL

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ltp_pipeline.results.schema import Report
    from ltp_pipeline.results.schema_parts import WeightHistogram, WeightScatter

MAX_NAMED_LAYERS = 60  # with more, the axis has no names
MAX_HISTOGRAMS = 6
DENSITY_TICKS = (0, 0.01, 0.03, 0.1, 0.3, 1)
GROUP_COLORS = {
    "kept, was above": LEARNED,
    "kept, was below": ORIGINAL,
    "pruned, was below": FAINT,
    "pruned, was above": BASELINE,
}


def plot_densities(report: Report) -> str | None:
    """Plot the density of each layer in graph order, next to those of the baselines."""
    layers = [layer for layer in report.layers if layer.density is not None]
    if not layers:
        return None
    rows = range(len(layers))
    densities = [layer.density or 0.0 for layer in layers]
    others = np.array([layer.baseline_density for layer in layers], float)  # None becomes NaN
    gradual = np.array([layer.gradual_density for layer in layers], float)
    is_named = len(layers) <= MAX_NAMED_LAYERS

    def draw_densities(figure: Figure) -> None:
        axes = figure.add_subplot()
        if report.baseline is not None:
            axes.hlines(rows, densities, others, color=FAINT, lw=2, zorder=1)
            label = filters.name_method(report.baseline)
            axes.plot(others, rows, "s", color=BASELINE, ms=5, label=label)
        if report.gradual_baseline is not None:
            label = filters.name_method(report.gradual_baseline)
            axes.plot(gradual, rows, "D", color=GRADUAL, ms=4.5, label=label)
        label = filters.name_method(report.pruned)
        axes.plot(densities, rows, "o", color=LEARNED, ms=5.5, label=label)
        axes.set_xscale("symlog", linthresh=0.01, linscale=0.4)
        axes.set_xticks(DENSITY_TICKS, [f"{100 * tick:g} %" for tick in DENSITY_TICKS])
        axes.set_xticks([], minor=True)
        axes.set_xlim(-0.001, 1.15)
        axes.set_ylim(len(layers) - 0.4, -0.6)
        if is_named:
            axes.set_yticks(rows, [svg.shorten_name(layer.name) for layer in layers])
        else:
            axes.set_ylabel("layer, in graph order")
        axes.set_xlabel("density (fraction of weights that are not zero)")
        svg.add_legend(figure, axes)

    height = 0.19 * len(layers) if is_named else min(12.0, 0.06 * len(layers) + 3)
    return svg.draw_svg("densities", "Density of each layer", 0.9 + height, draw_densities)


def plot_histograms(report: Report) -> str | None:
    """Plot histograms of |w| of the largest layers, before and after pruning."""
    drawable = [histogram for histogram in report.histograms if len(histogram.edges) > 1]
    histograms = drawable[:MAX_HISTOGRAMS]
    if not histograms:
        return None
    num_rows = math.ceil(len(histograms) / 2)

    def draw_histograms(figure: Figure) -> None:
        num_columns = 2 if len(histograms) > 1 else 1
        grid = figure.subplots(num_rows, num_columns, squeeze=False)
        for axes, histogram in zip(grid.flat, histograms, strict=False):
            _draw_histogram(axes, histogram)
        for axes in grid.flat[len(histograms) :]:
            axes.set_axis_off()
        for axes in grid[-1]:
            axes.set_xlabel("|w|")
        svg.add_legend(figure, grid.flat[0])

    height = 0.6 + 1.6 * num_rows
    title = "Histograms of |w| in the largest layers"
    return svg.draw_svg("histograms", title, height, draw_histograms)


def _draw_histogram(axes: Axes, histogram: WeightHistogram) -> None:
    """Draw the counts before and after pruning, and the threshold."""
    edges = histogram.edges
    axes.stairs(histogram.before, edges, fill=True, color=FAINT, label="before")
    axes.stairs(histogram.after, edges, color=LEARNED, lw=1.3, label="after")
    if histogram.threshold is not None:
        threshold = math.sqrt(histogram.threshold)
        axes.axvline(threshold, color=BASELINE, lw=1.2, ls="--", label="threshold √τ")
    if edges[0] > 0 and edges[-1] / edges[0] > 50:
        axes.set_xscale("log")
        svg.format_log_axis(axes.xaxis)
    else:
        axes.locator_params(axis="x", nbins=4)
    axes.set_yscale("symlog", linthresh=1)
    svg.format_log_axis(axes.yaxis)
    axes.set_title(svg.shorten_name(histogram.name), fontsize=9)


def plot_scatter(report: Report) -> str | None:
    """Plot w² of one layer after pruning against w² before, with the layer's threshold."""
    scatter = report.scatter
    if scatter is None or not any((*scatter.before, *scatter.after)):
        return None
    threshold = scatter.threshold or 0.0
    groups = _group_weights(scatter, threshold)

    def draw_scatter(figure: Figure) -> None:
        axes = figure.add_subplot()
        if threshold:
            axes.axvline(threshold, color=INK, lw=0.9, ls="--")
        for name, points in groups.items():
            if points:
                label = f"{name}: {len(points)}"
                color = GROUP_COLORS[name]
                axes.plot(*zip(*points, strict=True), ".", color=color, ms=3, mew=0, label=label)
        axes.set_xscale("log")
        axes.set_yscale("log")
        svg.format_log_axis(axes.xaxis)
        svg.format_log_axis(axes.yaxis)
        axes.set_xlabel("w² before")
        axes.set_ylabel("w² after")
        svg.add_legend(figure, axes, marker_scale=2)

    return svg.draw_svg("scatter", f"w² before and after in {scatter.name}", 4.2, draw_scatter)


def _group_weights(
    scatter: WeightScatter, threshold: float
) -> dict[str, list[tuple[float, float]]]:
    """Return w² before and after by group; zeros get a value that a logarithmic axis can show."""
    positive = [value for value in (*scatter.before, *scatter.after) if value > 0]
    lowest = max(min(positive), (threshold or max(positive)) * 1e-5)
    groups: dict[str, list[tuple[float, float]]] = {name: [] for name in GROUP_COLORS}
    for before, after in zip(scatter.before, scatter.after, strict=True):
        fate = "kept" if after > 0 else "pruned"
        side = "above" if max(before, lowest) > threshold else "below"
        groups[f"{fate}, was {side}"].append((max(before, lowest), max(after, lowest)))
    return groups
