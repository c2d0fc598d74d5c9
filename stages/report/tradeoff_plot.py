"""Plot the metric against compression: the trail, the baselines, and the pruned network."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ltp_pipeline.results.gain import find_compared_value
from ltp_pipeline.stages.report import filters, svg
from ltp_pipeline.stages.report.svg import BASELINE, GRADUAL, INK, LEARNED, ORIGINAL

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ltp_pipeline.results.schema import Report

Point = tuple[float, float]  # compression, and the metric in the unit of its axis

HEIGHT = 3.9  # inches
MARGIN = 0.12  # above and below the plotted values, as a fraction of their range
MIN_RANGE = 0.5  # smallest range of the plotted values, in default budgets
ROUND_NUMBERS = (1, 1.5, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70)
MAX_TICKS = 9
GAIN_LINE = {
    "arrowstyle": "|-|,widthA=0.3,widthB=0.3",
    "color": INK,
    "lw": 1.1,
    "shrinkA": 0,
    "shrinkB": 0,
}


def plot_tradeoff(report: Report) -> str | None:
    """Return the plot as SVG; None if the report has neither results nor a trail."""
    metric = report.metric
    entries = [(entry.compression, entry.accuracy) for entry in report.trail]
    trail = sorted(_select_measured(report, entries))
    baseline = _list_baseline(report)
    pruned = _select_measured(report, [(report.pruned.compression, report.pruned.value)])
    others = _list_others(report)
    points = [*trail, *baseline, *others.values(), *pruned]
    if not points:
        return None

    def draw_tradeoff(figure: Figure) -> None:
        axes = figure.add_subplot()
        if trail:
            _draw_trail(axes, report, trail)
        if report.original.value is not None:
            value = metric.to_axis_unit(report.original.value)
            axes.axhline(value, color=ORIGINAL, lw=0.9, ls="--", label="original (test)")
        if report.baseline is not None and baseline:
            label = f"{filters.name_method(report.baseline)} (test)"
            curve = zip(*baseline, strict=True)
            axes.plot(*curve, "-s", label=label, color=BASELINE, ms=6.5, lw=1.5, mec=INK, mew=0.5)
        for method, point in others.items():
            label = f"{method} (test)"
            axes.plot(*point, "D", ls="none", label=label, color=GRADUAL, ms=6.5, mec=INK, mew=0.5)
        if pruned:
            _draw_gain(axes, report)
            label = f"{filters.name_method(report.pruned)} (test)"
            style: dict[str, Any] = {"ms": 15, "mec": INK, "mew": 0.6, "zorder": 5}
            axes.plot(*pruned[0], "*", ls="none", label=label, color=LEARNED, **style)
        compressions, _ = zip(*points, strict=True)
        axes.set_xscale("log")
        axes.set_xlim(min(1.0, *compressions), max(compressions) * 1.25)
        if len(baseline) > 1:
            results = [*baseline, *others.values(), *pruned]
            axes.set_ylim(*_find_value_limits(report, results))
        _set_compression_ticks(axes)
        axes.set_xlabel("compression of the layer weights")
        axes.set_ylabel(filters.label_axis(metric))
        svg.add_legend(figure, axes)

    title = f"{filters.capitalize_phrase(filters.name_metric(metric))} against compression"
    return svg.draw_svg("tradeoff", title, HEIGHT, draw_tradeoff)


def _list_baseline(report: Report) -> list[Point]:
    """Return the networks of the baseline, measured on the test split."""
    if report.baseline is None:
        return []
    first = (report.baseline.compression, report.baseline.value)
    return sorted(_select_measured(report, report.points or [first]))


def _list_others(report: Report) -> dict[str, Point]:
    """Return the networks besides the baseline, measured on the test split, by short names."""
    points = {}
    for key, network in report.other_networks.items():
        pairs = [(network.compression, network.value)] if key != "baseline" else []
        for point in _select_measured(report, pairs):
            points[filters.name_method(network)] = point
    return points


def _select_measured(
    report: Report, pairs: Iterable[tuple[float | None, float | None]]
) -> list[Point]:
    """Return the pairs in which neither compression nor metric is missing."""
    points = []
    for compression, value in pairs:
        if compression and value is not None:
            points.append((compression, report.metric.to_axis_unit(value)))
    return points


def _draw_trail(axes: Axes, report: Report, trail: list[Point]) -> None:
    """Draw the trail and a ring around the selected entry."""
    label = "trail before fine-tuning (validation)"
    line = zip(*trail, strict=True)
    axes.plot(*line, "-o", label=label, color=LEARNED, ms=2.5, lw=0.9, alpha=0.4)
    selected = [(entry.compression, entry.accuracy) for entry in report.trail if entry.selected]
    for point in _select_measured(report, selected):
        axes.plot(*point, "o", label="selected entry", ms=9, mfc="none", mec=INK)


def _draw_gain(axes: Axes, report: Report) -> None:
    """Draw the gain as a line from the baseline's compression to that of the pruned network."""
    baseline = report.baseline
    compression = report.pruned.compression
    if baseline is None or baseline.gain is None or compression is None:
        return
    if math.isclose(baseline.gain, 1, rel_tol=0.02):
        return
    level = _find_compared_value(report)
    other = compression / baseline.gain
    axes.annotate("", (other, level), (compression, level), arrowprops=GAIN_LINE)
    if baseline.budget is None:
        # The curve of the baseline crosses the level at `other`.
        place, shift, align = math.sqrt(other * compression), 0, "center"
    else:
        label = "accuracy budget" if report.metric.is_accuracy else "budget"
        axes.axhline(level, color=INK, lw=0.8, ls=":", label=label)
        place, shift, align = max(other, compression), -4, "right"
    bound = f"{baseline.gain_bound} " if baseline.gain_bound else ""
    # The baseline gets worse to the right, so that the better side of the level is free.
    rise, edge = -4, "top"
    if report.metric.higher_is_better:
        rise, edge = 4, "bottom"
    axes.annotate(
        f"gain {bound}{baseline.gain:.3g}",
        (place, level),
        (shift, rise),
        textcoords="offset points",
        ha=align,
        va=edge,
    )


def _find_compared_value(report: Report) -> float:
    """Return the metric at which the gain compares both methods, in the unit of the axis."""
    budget = None if report.baseline is None else report.baseline.budget
    value = report.pruned.value or 0.0
    level = find_compared_value(report.metric, value, report.original.value, budget)
    return report.metric.to_axis_unit(level)


def _find_value_limits(report: Report, results: list[Point]) -> tuple[float, float]:
    """Return limits of the axis that show the results; the sparse end of the trail is cut off."""
    metric = report.metric
    values = [value for _, value in results]
    values.append(_find_compared_value(report))
    if report.original.value is not None:
        values.append(metric.to_axis_unit(report.original.value))
    smallest = metric.to_axis_unit(MIN_RANGE * metric.default_budget(report.pruned.value or 0.0))
    margin = MARGIN * max(max(values) - min(values), smallest)
    return min(values) - margin, max(values) + margin


def _set_compression_ticks(axes: Axes) -> None:
    """Set ticks at round numbers, at most `MAX_TICKS`."""
    from matplotlib.ticker import FixedLocator, NullLocator

    low, high = axes.get_xlim()
    numbers = [*ROUND_NUMBERS, *(100 * number for number in ROUND_NUMBERS)]
    inside = [number for number in numbers if low * 0.999 <= number <= high] or [low, high]
    step = math.ceil(len(inside) / MAX_TICKS)
    axes.xaxis.set_major_locator(FixedLocator(inside[::step]))
    axes.xaxis.set_minor_locator(NullLocator())
    svg.format_log_axis(axes.xaxis, "×")
