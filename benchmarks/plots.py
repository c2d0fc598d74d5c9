"""Draw the figures of docs/results.md; a function returns None if its rows are missing."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.ablations import plans
from benchmarks.ablations.runs import BINS
from benchmarks.drawing import (
    BLUE,
    GREEN,
    ORANGE,
    PINK,
    RED,
    Drawing,
    add_legend,
    format_compressions,
    label_once,
)
from benchmarks.rows import Row, find_repetitions, find_rows, mean_std, parse_numbers
from ltp_pipeline.stages.report.svg import format_log_axis

SHADES = ["#9ecae1", "#4292c6", "#08519c", "#08204d"]  # light to dark: small to large values
MARKERS = "osD^"
KINDS = {"4": "∂v/∂w by (4)", "10": "by (10)", "20": "by (20) and (17)"}
LINES = {"4": (BLUE, "-"), "10": (RED, "--"), "20": (GREEN, ":")}
REGULARIZERS = {
    "l0": ("soft L0", BLUE, "o"),
    "l2": ("L2", ORANGE, "s"),
    "none": ("none", GREEN, "^"),
}


def draw_regularizers(rows: Sequence[Row]) -> Drawing | None:
    """Draw kept weights, training accuracy and mean squared weight over epochs."""
    shown = find_rows(rows, plans.iter_regularizer_runs())
    if not shown:
        return None
    panels = (
        ("kept", 100.0, "weights kept, %"),
        ("train", 100.0, "training top-1, %"),
        ("mean_square", 1.0, "mean w² / that of the start"),
    )

    def draw(figure: Figure) -> None:
        axes = figure.subplots(1, 3)
        for ax, (key, factor, label) in zip(axes, panels, strict=True):
            for row in shown:
                name, color, marker = REGULARIZERS[row["regulariser"]]
                scale = factor / row["before"]["mean_square"] if key == "mean_square" else factor
                x, y = (
                    [s["epoch"] for s in row["epochs_seen"]],
                    [scale * s[key] for s in row["epochs_seen"]],
                )
                if key != "train":
                    x, y = [0, *x], [1.0 if key == "mean_square" else 100.0, *y]
                ax.plot(
                    x, y, marker=marker, ms=4.5, lw=1.2, color=color, label=label_once(ax, name)
                )
            ax.set(xlabel="epoch", ylabel=label)
        axes[0].set_ylim(bottom=0)
        axes[2].set_yscale("log")
        format_log_axis(axes[2].yaxis)
        add_legend(figure, axes[0])

    return Drawing(9, 3.2, shown, draw)


def draw_scatter(rows: Sequence[Row]) -> Drawing | None:
    """Draw squared weights before and after learning, for each weight gradient."""
    shown = find_rows(rows, plans.iter_scatter_runs())
    if not shown:
        return None
    parts = (("layer", "w²", (1e-6, 0.5)), ("kernels", "w² / τ", (1e-4, 1e4)))

    def draw(figure: Figure) -> None:
        axes = figure.subplots(len(parts), len(shown), sharex="row", sharey="row", squeeze=False)
        for line, (part, unit, limits) in zip(axes, parts, strict=True):
            for ax, row in zip(line, shown, strict=True):
                _draw_points(ax, row[part], limits)
                ax.set(xlabel=f"{unit} before", title=_format_title(row, part))
            line[0].set_ylabel(f"{unit} after learning")

    points = [[row[part] for part, *_ in parts] for row in shown]
    return Drawing(3.1 * len(shown), 6.2, points, draw)


def _draw_points(ax: Axes, seen: Row, limits: tuple[float, float]) -> None:
    """Draw squared weights before and after learning; points beyond the limits are clipped."""
    before, after = (
        np.clip(np.square(parse_numbers(seen[key])), *limits) for key in ("before", "after")
    )
    ax.plot(before, after, ".", ms=2.5, color=BLUE, alpha=0.5, rasterized=True)
    for line in (ax.axhline, ax.axvline):
        line(max(seen["tau"], limits[0]), color=RED, lw=1)
    ax.set(xscale="log", yscale="log", xlim=limits, ylim=limits)
    for axis in (ax.xaxis, ax.yaxis):
        format_log_axis(axis)


def _format_title(row: Row, part: str) -> str:
    """Return the title of a scatter plot of one layer or of all layers."""
    layers = {"layer": "layer", "kernels": "all layers"}[part]
    return f"by ({row['weight_gradient']}), {layers}: {100 * row[part]['kept']:.1f} % kept"


def draw_gap(rows: Sequence[Row]) -> Drawing | None:
    """Draw weights around the threshold and the progress of pruning, by weight gradient."""
    shown = find_rows(rows, plans.iter_gradient_runs())
    if not shown:
        return None

    def draw(figure: Figure) -> None:
        left, right = figure.subplots(1, 2)
        for row in shown:
            _draw_distribution(left, row)
            color, style = LINES[row["weight_gradient"]]
            percents = [100.0, *(100 * s["kept"] for s in row["epochs_seen"])]
            right.plot(
                range(len(percents)), percents, color=color, ls=style, lw=1, marker="o", ms=3.5
            )
        left.set(xlabel="|w| / √τ after learning", ylabel="weights of all layers per bin")
        right.set(xlabel="epoch", ylabel="weights kept in the network, %", yscale="log")
        right.set_yticks((5, 10, 20, 50, 100))
        format_log_axis(right.yaxis)
        right.minorticks_off()
        right.xaxis.get_major_locator().set_params(integer=True)
        add_legend(figure, left)

    return Drawing(8, 3.4, shown, draw)


def draw_gap_by_t0(rows: Sequence[Row]) -> Drawing | None:
    """Draw weights around the threshold for each T0, weight gradient and seed."""
    shown = find_rows(rows, plans.iter_gap_runs())
    if not shown:
        return None

    def draw(figure: Figure) -> None:
        axes = figure.subplots(1, len(plans.GAP_T0), sharey=True)
        for ax, t0 in zip(axes, plans.GAP_T0, strict=True):
            for row in (row for row in shown if row["t0"] == t0):
                _draw_distribution(ax, row)
            ax.set(xlabel="|w| / √τ after learning", title=f"T0 = {t0:g}")
        axes[0].set(ylabel="weights of all layers per bin", ylim=(8, 9000))
        add_legend(figure, axes[0])

    return Drawing(10, 3.2, shown, draw)


def _draw_distribution(ax: Axes, row: Row) -> None:
    """Draw the distribution of the weights of a run around the threshold."""
    color, style = LINES[row["weight_gradient"]]
    label = label_once(ax, KINDS[row["weight_gradient"]])
    ax.stairs(
        parse_numbers(row["kernels"]["about_threshold"]),
        BINS,
        color=color,
        ls=style,
        lw=1,
        label=label,
    )
    if label:
        ax.axvline(1, color="#404040", lw=0.8)
        ax.set(xlim=(0.3, 2), yscale="log")
        ax.set_yticks((10, 100, 1_000, 10_000))
        format_log_axis(ax.yaxis)
        ax.minorticks_off()


def draw_seeds(rows: Sequence[Row]) -> Drawing | None:
    """Draw the trail over seeds, mean and standard deviation, in both modes."""
    shown = find_rows(rows, plans.iter_seed_runs())
    if not shown:
        return None

    def draw(figure: Figure) -> None:
        ax = figure.subplots()
        for mode, color, marker in (("budget", BLUE, "o"), ("paper", PINK, "X")):
            runs = [row for row in shown if row["mode"] == mode]
            if not runs:
                continue
            (x, dx), (y, dy) = _average_trail(runs)
            label = f"{mode} mode, {len(runs)} seeds"
            ax.errorbar(
                x, y, dy, dx, color=color, marker=marker, ms=5, capsize=3, lw=1.2, label=label
            )
        ax.set(xscale="log", xlabel="compression", ylabel="validation top-1 without fine-tuning, %")
        format_compressions(ax)
        ax.legend()

    return Drawing(6, 3.6, shown, draw)


def draw_sensitivity(rows: Sequence[Row]) -> Drawing | None:
    """Draw the trails of paper mode for each value of a hyper-parameter."""
    shown = find_rows(rows, plans.iter_sensitivity_runs())
    if not shown:
        return None

    def draw(figure: Figure) -> None:
        axes = figure.subplots(1, 3, sharey=True, sharex=True)
        for ax, (key, values, name) in zip(axes, plans.VARIED, strict=True):
            for value, color, marker in zip(values, SHADES, MARKERS, strict=False):
                runs = find_repetitions(shown, plans.make_paper_plan, {key: value})
                if runs:
                    (x, dx), (y, dy) = _average_trail(runs)
                    ax.errorbar(
                        x,
                        y,
                        dy,
                        dx,
                        lw=1,
                        color=color,
                        marker=marker,
                        ms=3.5,
                        capsize=2,
                        label=f"{value:g}",
                    )
            ax.set(xscale="log", xlabel="compression", title=name)
            format_compressions(ax)
            if ax.lines:
                ax.legend(loc="lower left")
        axes[0].set_ylabel("validation top-1 without fine-tuning, %")

    return Drawing(10, 3.8, shown, draw)


def draw_budget(rows: Sequence[Row]) -> Drawing | None:
    """Draw the accuracy of budget mode by learning rate and by division of epochs."""
    shown = find_rows(rows, plans.iter_budget_runs())
    if not shown:
        return None

    def draw(figure: Figure) -> None:
        left, right = figure.subplots(1, 2, sharey=True)
        _draw_groups(left, plans.LRS, [_list_accuracies(shown, {"lr": lr}) for lr in plans.LRS])
        left.set(
            xscale="log", xlabel="learning rate", ylabel=f"test top-1 at {plans.COMPRESSION:g}×, %"
        )
        left.set_xticks(plans.LRS)
        left.xaxis.set_major_formatter(lambda value, _: f"{value:.2g}")
        left.minorticks_off()
        names = [f"{epochs} + {after}" for epochs, after in plans.SPLITS]
        positions = list(range(len(names)))
        _draw_groups(
            right,
            positions,
            [_list_accuracies(shown, {"epochs": e, "finetune_epochs": a}) for e, a in plans.SPLITS],
        )
        right.set_xticks(positions, names)
        right.set_xlabel("epochs of learning + of fine-tuning")

    return Drawing(8, 3.2, shown, draw)


def _average_trail(runs: Sequence[Row]) -> "tuple[tuple[Any, Any], tuple[Any, Any]]":
    """Return compression ratio and accuracy in % of each epoch, mean and deviation over runs."""
    ratios = np.array([[1 / s["kept"] for s in run["epochs_seen"]] for run in runs])
    accuracies = np.array([[100 * s["val"] for s in run["epochs_seen"]] for run in runs])
    return _mean_std(ratios), _mean_std(accuracies)


def _mean_std(runs: "np.ndarray[Any, Any]") -> "tuple[Any, Any]":
    """Return mean and sample standard deviation over runs for each epoch."""
    mean, std = zip(*map(mean_std, runs.T.tolist()), strict=True)
    return mean, std


def _list_accuracies(rows: Sequence[Row], changed: Row) -> list[float]:
    """Return the test accuracies in % of the runs with changed settings."""
    return [100 * row["test"] for row in find_repetitions(rows, plans.make_budget_plan, changed)]


def _draw_groups(ax: Axes, x: Sequence[float], groups: Sequence[Sequence[float]]) -> None:
    """Draw a line through the means, and every run as a point."""
    measured = [(at, values) for at, values in zip(x, groups, strict=True) if values]
    means = [float(np.mean(values)) for _, values in measured]
    ax.plot([at for at, _ in measured], means, color=BLUE, lw=1.2)
    for at, values in measured:
        ax.plot([at] * len(values), values, "o", ms=4.5, color=BLUE, alpha=0.7)
