"""Plot the file sizes of a run and the course of its training.

Each plot is a function of the report or of the log. It returns None if its data are missing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

from ltp_pipeline.stages.report import filters, svg
from ltp_pipeline.stages.report.svg import BASELINE, GRADUAL, LEARNED, ORIGINAL

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ltp_pipeline.results.schema import Report

LogLine = Mapping[str, Any]
TrainingLog = Sequence[LogLine]

MAX_POINTS = 300  # of a line; more cannot be told apart
DEPTH_COLORS = ["#3f8fd2", "#8c8cb4", "#d98c1f"]  # from the first to the last layer, equally dark
BOUND = "raw_values_bound"  # key in the sizes of a report
STAGES = {
    "learn": ("learning thresholds", LEARNED),
    "finetune": ("fine-tuning", ORIGINAL),
    "baseline": ("global magnitude", BASELINE),
    "gradual": ("gradual magnitude", GRADUAL),
    "gradual-finetune": (None, GRADUAL),  # the legend has its color already
}
# Stages that continue another one, although their steps count from 0 again.
CONTINUED_STAGES = {"finetune": "learn", "gradual-finetune": "gradual"}


def plot_sizes(report: Report) -> str | None:
    """Plot the bytes of each file, and the bound for files that store raw values."""
    sizes = {name: size for name, size in report.sizes.items() if size and name != BOUND}
    if not sizes:
        return None
    original = sizes.get("original") or sizes.get("dense")
    bound = report.sizes.get(BOUND)

    def draw_sizes(figure: Figure) -> None:
        axes = figure.add_subplot()
        for row, (name, size) in enumerate(sizes.items()):
            color = ORIGINAL if name in ("original", "dense") else LEARNED
            axes.barh(row, size, color=color, height=0.6)
            label = filters.format_size(size)
            if original:
                label += f" ({100 * size / original:.3g} %)"
            axes.annotate(label, (size, row), (4, 0), textcoords="offset points", va="center")
        if bound:
            label = f"bound of raw values: {filters.format_size(bound)}"
            axes.axvline(bound, color=BASELINE, lw=1.4, ls="--", label=label)
        axes.set_yticks(range(len(sizes)), list(sizes))
        axes.set_ylim(len(sizes) - 0.4, -0.6)
        axes.set_xlim(0, 1.3 * max(sizes.values()))
        axes.locator_params(axis="x", nbins=5)
        axes.xaxis.set_major_formatter(lambda size, _: filters.format_size(size))
        axes.grid(axis="y", visible=False)
        svg.add_legend(figure, axes)

    return svg.draw_svg("sizes", "File sizes", 1.3 + 0.38 * len(sizes), draw_sizes)


def plot_thresholds(log: TrainingLog) -> str | None:
    """Plot the threshold of each layer over the steps in which it was learned."""
    lines = [line for line in _select_stage(log, "learn") if line.get("thresholds")]
    names = list(lines[0]["thresholds"]) if lines else []
    if len(lines) < 2 or not names:
        return None
    step = math.ceil(len(lines) / MAX_POINTS)
    lines = [*lines[:-1:step], lines[-1]]

    def draw_thresholds(figure: Figure) -> None:
        from matplotlib.colors import LinearSegmentedColormap

        colors = LinearSegmentedColormap.from_list("depth", DEPTH_COLORS, N=max(2, len(names)))
        labels = {
            len(names) - 1: f"last: {svg.shorten_name(names[-1])}",
            0: f"first: {svg.shorten_name(names[0])}",
        }
        axes = figure.add_subplot()
        for index, name in enumerate(names):
            # A logarithmic axis cannot show zeros.
            shown = [line for line in lines if line["thresholds"].get(name)]
            steps = [line["step"] for line in shown]
            thresholds = [line["thresholds"][name] for line in shown]
            axes.plot(steps, thresholds, color=colors(index), lw=1.3, label=labels.get(index))
        axes.set_yscale("log")
        _limit_thresholds(axes, lines)
        svg.format_log_axis(axes.yaxis)
        axes.set_xlabel("step")
        axes.set_ylabel("threshold τ (of w²)")
        svg.add_legend(figure, axes)

    return svg.draw_svg("thresholds", "Thresholds during training", 3.5, draw_thresholds)


def _limit_thresholds(axes: Axes, lines: TrainingLog) -> None:
    """Cut off the start of thresholds that begin close to 0; only their end matters."""
    thresholds = [value for line in lines for value in line["thresholds"].values() if value]
    if thresholds:
        axes.set_ylim(bottom=max(min(thresholds) / 2, max(thresholds) * 1e-5))


def plot_training(log: TrainingLog) -> str | None:
    """Plot the loss of each stage and λ over the steps."""
    curves = {}
    for stage in STAGES:
        lines = [line for line in _select_stage(log, stage) if _is_number(line.get("loss"))]
        if len(lines) > 1:
            curves[stage] = lines
    if not curves:
        return None
    # A logarithmic axis cannot show λ = 0.
    with_lambda = [line for line in curves.get("learn", []) if _is_number(line.get("lambda"))]
    lambdas = [line for line in with_lambda if line["lambda"] > 0]

    def draw_training(figure: Figure) -> None:
        if lambdas:
            loss_axes, last_axes = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
            last_axes.plot(*_average_lines(lambdas, "lambda"), color=LEARNED, lw=1.3)
            last_axes.set_yscale("log")
            svg.format_log_axis(last_axes.yaxis)
            last_axes.set_ylabel("λ")
        else:
            loss_axes = last_axes = figure.add_subplot()
        for stage, lines in curves.items():
            label, color = STAGES[stage]
            steps, losses = _average_lines(lines, "loss")
            before = CONTINUED_STAGES.get(stage)
            if before in curves:
                last = curves[before][-1]["step"]
                if lines[0]["step"] <= last:
                    steps = [step + last + 1 for step in steps]
            loss_axes.plot(steps, losses, color=color, lw=1.3, label=label)
        last_axes.set_xlabel("step")
        loss_axes.set_ylabel("loss")
        svg.add_legend(figure, loss_axes)

    return svg.draw_svg("training", "Loss and λ during training", 3.7, draw_training)


def _select_stage(log: TrainingLog, stage: str) -> TrainingLog:
    """Return the lines of a stage by step; of several fine-tunings, those of the last one.

    A step that was done again after a resume counts once.
    """
    lines = []
    for line in log:
        name = str(line.get("stage"))
        if name == stage or (name not in STAGES and name.split("-")[0] == stage):
            lines.append(line)
    last = {line["step"]: line for line in lines if line["stage"] == lines[-1]["stage"]}
    return [last[step] for step in sorted(last)]


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and math.isfinite(value)


def _average_lines(lines: TrainingLog, key: str) -> tuple[list[float], list[float]]:
    """Return the last steps and the mean values of groups of lines, at most `MAX_POINTS`."""
    width = math.ceil(len(lines) / MAX_POINTS)
    steps, means = [], []
    for start in range(0, len(lines), width):
        group = lines[start : start + width]
        steps.append(group[-1]["step"])
        means.append(sum(line[key] for line in group) / len(group))
    return steps, means
