"""Plot a run: accuracy against compression, file sizes, and the course of the training.

Each plot is a function of the report or of the log. It returns None if its data are missing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ltp_pipeline.results.gain import compared_at
from ltp_pipeline.stages.report import filters, svg
from ltp_pipeline.stages.report.svg import BASELINE, INK, LEARNED, ORIGINAL

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ltp_pipeline.results.schema import NetworkResult, Report

TrainingLog = Sequence[Mapping[str, Any]]
Points = list[tuple[float, float]]

MARGIN = 0.12  # above and below the plotted values, as a fraction of their range
MIN_RANGE = 0.5  # smallest range of the plotted values, in default budgets
ROUND_NUMBERS = (1, 1.5, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70)
MAX_TICKS = 9
MAX_POINTS = 300  # of a line; more cannot be told apart
DEPTH_COLORS = ["#3f8fd2", "#8c8cb4", "#d98c1f"]  # from the first to the last layer, equally dark
TRAIL_STYLE: dict[str, Any] = {"color": LEARNED, "ms": 2.5, "lw": 0.9, "alpha": 0.4}
BASELINE_STYLE: dict[str, Any] = {"color": BASELINE, "ms": 6.5, "lw": 1.5, "mec": INK, "mew": 0.5}
PRUNED_STYLE: dict[str, Any] = {"color": LEARNED, "ms": 15, "mec": INK, "mew": 0.6, "zorder": 5}
STAGES = {
    "learn": ("learning thresholds", LEARNED),
    "finetune": ("fine-tuning", ORIGINAL),
    "baseline": ("global magnitude", BASELINE),
}


def plot_run(report: Report, log: TrainingLog) -> dict[str, str | None]:
    """Return all plots of this module as SVG, by name."""
    return {
        "tradeoff": plot_tradeoff(report),
        "sizes": plot_sizes(report),
        "thresholds": plot_thresholds(log),
        "training": plot_training(log),
    }


def plot_tradeoff(report: Report) -> str | None:
    """Plot the metric against compression: trail, baseline, and the pruned network."""
    metric = report.metric
    trail = _trail_points(report)
    baseline = _baseline_points(report)
    results = [point for network in report.networks for point in _result_point(report, network)]
    if not trail and not results:
        return None

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        if trail:
            _draw_trail(axes, report, trail)
        if report.original.value is not None:
            original = metric.at_axis(report.original.value)
            axes.axhline(original, color=ORIGINAL, lw=0.9, ls="--", label="original (test)")
        if report.baseline is not None and baseline:
            label = f"{filters.name_method(report.baseline)} (test)"
            axes.plot(*zip(*baseline, strict=True), "-s", label=label, **BASELINE_STYLE)
        _draw_gain(axes, report)
        for point in _result_point(report, report.pruned):
            label = f"{filters.name_method(report.pruned)} (test)"
            axes.plot(*point, "*", ls="none", label=label, **PRUNED_STYLE)
        axes.set_xscale("log")
        compressions = [x for x, _ in [*trail, *baseline, *results]]
        axes.set_xlim(min([1.0, *compressions]), max(compressions) * 1.25)
        if len(baseline) > 1:
            axes.set_ylim(*_value_limits(report))
        _set_compression_ticks(axes)
        axes.set_xlabel("compression of the layer weights")
        axes.set_ylabel(filters.label_axis(metric))
        svg.add_legend(figure, axes)

    name = filters.capitalize_phrase(filters.name_metric(metric))
    return svg.draw_svg("tradeoff", f"{name} against compression", 3.9, draw)


def _trail_points(report: Report) -> Points:
    """Return compression and metric of the trail's entries on the validation split."""
    at_axis = report.metric.at_axis
    return sorted(
        (entry.compression, at_axis(entry.accuracy))
        for entry in report.trail
        if entry.compression and entry.accuracy is not None
    )


def _baseline_points(report: Report) -> Points:
    """Return compression and metric of the baseline's networks on the test split."""
    if report.points:
        at_axis = report.metric.at_axis
        return sorted((point.compression, at_axis(point.accuracy)) for point in report.points)
    return [] if report.baseline is None else _result_point(report, report.baseline)


def _result_point(report: Report, network: NetworkResult) -> Points:
    """Return compression and metric of a network on the test split, if both are known."""
    if network.compression is None or network.value is None:
        return []
    return [(network.compression, report.metric.at_axis(network.value))]


def _draw_trail(axes: Axes, report: Report, trail: Points) -> None:
    label = "trail before fine-tuning (validation)"
    axes.plot(*zip(*trail, strict=True), "-o", label=label, **TRAIL_STYLE)
    for entry in report.trail:
        if entry.selected and entry.compression and entry.accuracy is not None:
            value = report.metric.at_axis(entry.accuracy)
            label = "selected entry"
            axes.plot(entry.compression, value, "o", ms=9, mfc="none", mec=INK, label=label)


def _draw_gain(axes: Axes, report: Report) -> None:
    """Draw the gain as a line from the baseline's compression to that of the pruned network."""
    baseline, compression, value = report.baseline, report.pruned.compression, report.pruned.value
    if baseline is None or compression is None or value is None:
        return
    level = _compared_value(report)
    gain = baseline.gain
    if gain is None or math.isclose(gain, 1, rel_tol=0.02):
        return
    if baseline.budget is not None:
        label = "accuracy budget" if report.metric.counts_right_answers else "budget"
        axes.axhline(level, color=INK, lw=0.8, ls=":", label=label)
    other = compression / gain
    ends = {"arrowstyle": "|-|,widthA=0.3,widthB=0.3", "color": INK, "lw": 1.1}
    arrow = {**ends, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", (other, level), (compression, level), arrowprops=arrow)
    bound = f"{baseline.gain_bound} " if baseline.gain_bound else ""
    # The baseline gets worse to the right, so that the better side of its curve is free.
    is_up = report.metric.higher_is_better
    offset, side = (4, "bottom") if is_up else (-4, "top")
    if baseline.budget is None:  # the curve of the baseline crosses the level at `other`
        place, shift, align = math.sqrt(other * compression), 0, "center"
    else:
        place, shift, align = max(other, compression), -4, "right"
    axes.annotate(
        f"gain {bound}{gain:.3g}",
        (place, level),
        (shift, offset),
        textcoords="offset points",
        ha=align,
        va=side,
    )


def _compared_value(report: Report) -> float:
    """Return the metric, in the unit of the axis, at which the gain compares both methods."""
    metric, value, original = report.metric, report.pruned.value or 0.0, report.original.value
    budget = None if report.baseline is None else report.baseline.budget
    return metric.at_axis(compared_at(metric, value, original, budget))


def _value_limits(report: Report) -> tuple[float, float]:
    """Return limits of the axis that show the results; the sparse end of the trail is cut off."""
    metric = report.metric
    values = [_compared_value(report)]
    values += [value for _, value in _baseline_points(report)]
    values += [value for _, value in _result_point(report, report.pruned)]
    if report.original.value is not None:
        values.append(metric.at_axis(report.original.value))
    smallest = metric.at_axis(MIN_RANGE * metric.default_budget(report.pruned.value or 0.0))
    span = max(max(values) - min(values), smallest)
    return min(values) - MARGIN * span, max(values) + MARGIN * span


def _set_compression_ticks(axes: Axes) -> None:
    """Set ticks at round numbers, at most `MAX_TICKS`."""
    from matplotlib.ticker import FixedLocator, NullLocator

    low, high = axes.get_xlim()
    numbers = [number * power for power in (1, 100) for number in ROUND_NUMBERS]
    inside = [number for number in numbers if low * 0.999 <= number <= high] or [low, high]
    step = math.ceil(len(inside) / MAX_TICKS)
    axes.xaxis.set_major_locator(FixedLocator(inside[::step]))
    axes.xaxis.set_minor_locator(NullLocator())
    svg.format_log_axis(axes.xaxis, "×")


def plot_sizes(report: Report) -> str | None:
    """Plot the bytes of each file, and the least size that is possible."""
    bound = report.sizes.get("entropy_bound")
    sizes = {name: size for name, size in report.sizes.items() if size and name != "entropy_bound"}
    if not sizes:
        return None
    names, values = list(sizes), list(sizes.values())
    original = sizes.get("original") or sizes.get("dense")

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        colors = [ORIGINAL if name in ("original", "dense") else LEARNED for name in names]
        axes.barh(range(len(names)), values, color=colors, height=0.6)
        for row, value in enumerate(values):
            percent = f" ({100 * value / original:.3g} %)" if original else ""
            label = filters.format_size(value) + percent
            axes.annotate(label, (value, row), (4, 0), textcoords="offset points", va="center")
        if bound:
            label = f"entropy bound: {filters.format_size(bound)}"
            axes.axvline(bound, color=BASELINE, lw=1.4, ls="--", label=label)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_xlim(0, 1.3 * max(values))
        axes.locator_params(axis="x", nbins=5)
        axes.xaxis.set_major_formatter(lambda v, _: filters.format_size(v) if v else "0")
        axes.grid(axis="y", visible=False)
        svg.add_legend(figure, axes)

    return svg.draw_svg("sizes", "File sizes", 1.3 + 0.38 * len(sizes), draw)


def plot_thresholds(log: TrainingLog) -> str | None:
    """Plot the threshold of each layer over the steps in which it was learned."""
    lines = [line for line in _select_stage(log, "learn") if line.get("thresholds")]
    names = list(lines[0]["thresholds"]) if lines else []
    if len(lines) < 2 or not names:
        return None
    step = max(1, math.ceil(len(lines) / MAX_POINTS))
    lines = [*lines[:-1:step], lines[-1]]

    def draw(figure: Figure) -> None:
        from matplotlib.colors import LinearSegmentedColormap

        colors = LinearSegmentedColormap.from_list("depth", DEPTH_COLORS)
        axes = figure.add_subplot()
        last = len(names) - 1
        for index, name in enumerate(names):
            curve = [(line["step"], line["thresholds"].get(name)) for line in lines]
            curve = [(step, tau) for step, tau in curve if tau is not None and tau > 0]
            label = {0: f"first: {svg.shorten(name)}", last: f"last: {svg.shorten(name)}"}
            if curve:
                color = colors(index / max(1, last))
                axes.plot(*zip(*curve, strict=True), color=color, lw=1.3, label=label.get(index))
        axes.set_yscale("log")
        values = [tau for line in lines for tau in line["thresholds"].values() if tau is not None]
        positive = [value for value in values if value > 0]
        if positive:
            # Thresholds may start close to 0; only their end matters.
            axes.set_ylim(bottom=max(min(positive) / 2, max(positive) * 1e-5))
        svg.format_log_axis(axes.yaxis)
        axes.set_xlabel("step")
        axes.set_ylabel("threshold τ (of w²)")
        svg.add_legend(figure, axes)

    return svg.draw_svg("thresholds", "Thresholds during training", 3.5, draw)


def plot_training(log: TrainingLog) -> str | None:
    """Plot the loss of each stage and λ over the steps."""
    curves = {}
    for stage in STAGES:
        lines = [line for line in _select_stage(log, stage) if _is_number(line.get("loss"))]
        if len(lines) > 1:
            curves[stage] = lines
    if not curves:
        return None
    lambdas = [
        line
        for line in curves.get("learn", [])
        if _is_number(line.get("lambda")) and line["lambda"] > 0
    ]

    def draw(figure: Figure) -> None:
        if lambdas:
            loss_axes, lambda_axes = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
            lambda_axes.plot(*_average_lines(lambdas, "lambda"), color=LEARNED, lw=1.3)
            lambda_axes.set_yscale("log")
            svg.format_log_axis(lambda_axes.yaxis)
            lambda_axes.set_ylabel("λ")
            lambda_axes.set_xlabel("step")
        else:
            loss_axes = figure.add_subplot()
            loss_axes.set_xlabel("step")
        for stage, lines in curves.items():
            steps, losses = _average_lines(lines, "loss")
            shift = _fine_tuning_shift(curves) if stage == "finetune" else 0
            label, color = STAGES[stage]
            loss_axes.plot(
                [step + shift for step in steps], losses, color=color, lw=1.3, label=label
            )
        loss_axes.set_ylabel("loss")
        svg.add_legend(figure, loss_axes)

    return svg.draw_svg("training", "Loss and λ during training", 3.7, draw)


def _fine_tuning_shift(curves: Mapping[str, TrainingLog]) -> int:
    """Return the steps to add to those of fine-tuning, which may count from 0 again."""
    if "learn" not in curves:
        return 0
    last = int(curves["learn"][-1]["step"])
    return last + 1 if curves["finetune"][0]["step"] <= last else 0


def _select_stage(log: TrainingLog, stage: str) -> TrainingLog:
    """Return the lines of a stage by step; of several fine-tunings, those of the last one.

    A step that was done again after a resume counts once.
    """
    names = [str(line.get("stage")) for line in log]
    names = [name for name in names if name.split("-")[0] == stage]
    if not names:
        return []
    lines = {line["step"]: line for line in log if line.get("stage") == names[-1]}
    return [lines[step] for step in sorted(lines)]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _average_lines(lines: TrainingLog, key: str) -> tuple[list[float], list[float]]:
    """Return the last steps and the mean values of groups of lines, at most `MAX_POINTS`."""
    width = max(1, math.ceil(len(lines) / MAX_POINTS))
    groups = [lines[start : start + width] for start in range(0, len(lines), width)]
    means = [sum(line[key] for line in group) / len(group) for group in groups]
    return [group[-1]["step"] for group in groups], means
