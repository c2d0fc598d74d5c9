"""The figures of docs/results.md: one function each, which returns None when its rows are missing."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.ablations import plans
from benchmarks.ablations.runs import BINS
from benchmarks.drawing import BLUE, GREEN, ORANGE, PINK, RED, Drawing, compressions, legend, once
from benchmarks.rows import Row, found, mean_std, numbers, repeated
from ltp_pipeline.stages.report.svg import format_log_axis

SHADES = ["#9ecae1", "#4292c6", "#08519c", "#08204d"]  # light to dark: small to large values
MARKERS = "osD^"
KINDS = {"4": "∂v/∂w by (4)", "10": "by (10)", "20": "by (20) and (17)"}
LINES = {"4": (BLUE, "-"), "10": (RED, "--"), "20": (GREEN, ":")}
REGULARISERS = {
    "l0": ("soft L0", BLUE, "o"),
    "l2": ("L2", ORANGE, "s"),
    "none": ("none", GREEN, "^"),
}


def regulariser(rows: Sequence[Row]) -> Drawing | None:
    """Kept weights, training accuracy and mean squared weight over epochs."""
    shown = found(rows, plans.regulariser())
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
                name, color, marker = REGULARISERS[row["regulariser"]]
                scale = factor / row["before"]["mean_square"] if key == "mean_square" else factor
                x, y = (
                    [s["epoch"] for s in row["epochs_seen"]],
                    [scale * s[key] for s in row["epochs_seen"]],
                )
                if key != "train":
                    x, y = [0, *x], [1.0 if key == "mean_square" else 100.0, *y]
                ax.plot(x, y, marker=marker, ms=4.5, lw=1.2, color=color, label=once(ax, name))
            ax.set(xlabel="epoch", ylabel=label)
        axes[0].set_ylim(bottom=0)
        axes[2].set_yscale("log")
        format_log_axis(axes[2].yaxis)
        legend(figure, axes[0])

    return Drawing(9, 3.2, shown, draw)


def scatter(rows: Sequence[Row]) -> Drawing | None:
    """Squared weights before and after, with the threshold, for each weight gradient: of one layer, and of all."""
    shown = found(rows, plans.drawn())
    if not shown:
        return None
    parts = (("layer", "w²", (1e-6, 0.5)), ("kernels", "w² / τ", (1e-4, 1e4)))

    def draw(figure: Figure) -> None:
        axes = figure.subplots(len(parts), len(shown), sharex="row", sharey="row", squeeze=False)
        for line, (part, unit, limits) in zip(axes, parts, strict=True):
            for ax, row in zip(line, shown, strict=True):
                _before_and_after(ax, row[part], limits)
                ax.set(xlabel=f"{unit} before", title=_kept_of(row, part))
            line[0].set_ylabel(f"{unit} after learning")

    return Drawing(
        3.1 * len(shown), 6.2, [[row[part] for part, *_ in parts] for row in shown], draw
    )


def _before_and_after(ax: Axes, seen: Row, limits: tuple[float, float]) -> None:
    """Points beyond the limits lie on the edge."""
    before, after = (np.clip(np.square(numbers(seen[key])), *limits) for key in ("before", "after"))
    ax.plot(before, after, ".", ms=2.5, color=BLUE, alpha=0.5, rasterized=True)
    for line in (ax.axhline, ax.axvline):
        line(max(seen["tau"], limits[0]), color=RED, lw=1)
    ax.set(xscale="log", yscale="log", xlim=limits, ylim=limits)
    for axis in (ax.xaxis, ax.yaxis):
        format_log_axis(axis)


def _kept_of(row: Row, part: str) -> str:
    what = {"layer": "layer", "kernels": "all kernels"}[part]
    return f"by ({row['weight_gradient']}), {what}: {100 * row[part]['kept']:.1f} % kept"


def gap(rows: Sequence[Row]) -> Drawing | None:
    """Where weights lie about the threshold, and how pruning goes on, for each weight gradient and seed."""
    shown = found(rows, plans.gradient())
    if not shown:
        return None

    def draw(figure: Figure) -> None:
        left, right = figure.subplots(1, 2)
        for row in shown:
            _about_threshold(left, row)
            color, style = LINES[row["weight_gradient"]]
            kept = [100.0, *(100 * s["kept"] for s in row["epochs_seen"])]
            right.plot(range(len(kept)), kept, color=color, ls=style, lw=1, marker="o", ms=3.5)
        left.set(xlabel="|w| / √τ after learning", ylabel="weights of all kernels per bin")
        right.set(xlabel="epoch", ylabel="weights kept in the network, %", yscale="log")
        right.set_yticks((5, 10, 20, 50, 100))
        format_log_axis(right.yaxis)
        right.minorticks_off()
        right.xaxis.get_major_locator().set_params(integer=True)
        legend(figure, left)

    return Drawing(8, 3.4, shown, draw)


def gap_by_t0(rows: Sequence[Row]) -> Drawing | None:
    """Where weights lie about the threshold for each T0, weight gradient and seed."""
    shown = found(rows, plans.gap())
    if not shown:
        return None

    def draw(figure: Figure) -> None:
        axes = figure.subplots(1, len(plans.GAP_T0), sharey=True)
        for ax, t0 in zip(axes, plans.GAP_T0, strict=True):
            for row in (row for row in shown if row["t0"] == t0):
                _about_threshold(ax, row)
            ax.set(xlabel="|w| / √τ after learning", title=f"T0 = {t0:g}")
        axes[0].set(ylabel="weights of all kernels per bin", ylim=(8, 9000))
        legend(figure, axes[0])

    return Drawing(10, 3.2, shown, draw)


def _about_threshold(ax: Axes, row: Row) -> None:
    """A line for the weights of one run."""
    color, style = LINES[row["weight_gradient"]]
    label = once(ax, KINDS[row["weight_gradient"]])
    ax.stairs(
        numbers(row["kernels"]["about_threshold"]), BINS, color=color, ls=style, lw=1, label=label
    )
    if label:
        ax.axvline(1, color="#404040", lw=0.8)
        ax.set(xlim=(0.3, 2), yscale="log")
        ax.set_yticks((10, 100, 1_000, 10_000))
        format_log_axis(ax.yaxis)
        ax.minorticks_off()


def seeds(rows: Sequence[Row]) -> Drawing | None:
    """The trail over seeds, mean and standard deviation, in both modes."""
    shown = found(rows, plans.seeds())
    if not shown:
        return None

    def draw(figure: Figure) -> None:
        ax = figure.subplots()
        for mode, color, marker in (("budget", BLUE, "o"), ("paper", PINK, "X")):
            runs = [row for row in shown if row["mode"] == mode]
            if not runs:
                continue
            (x, dx), (y, dy) = _trail(runs)
            label = f"{mode} mode, {len(runs)} seeds"
            ax.errorbar(
                x, y, dy, dx, color=color, marker=marker, ms=5, capsize=3, lw=1.2, label=label
            )
        ax.set(xscale="log", xlabel="compression", ylabel="validation top-1 without fine-tuning, %")
        compressions(ax)
        ax.legend()

    return Drawing(6, 3.6, shown, draw)


def sensitivity(rows: Sequence[Row]) -> Drawing | None:
    """Paper mode: trails of the runs in which one hyper-parameter was changed."""
    shown = found(rows, plans.sensitivity())
    if not shown:
        return None

    def draw(figure: Figure) -> None:
        axes = figure.subplots(1, 3, sharey=True, sharex=True)
        for ax, (key, values, name) in zip(axes, plans.VARIED, strict=True):
            for value, color, marker in zip(values, SHADES, MARKERS, strict=False):
                runs = repeated(shown, plans.paper, {key: value})
                if runs:
                    (x, dx), (y, dy) = _trail(runs)
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
            compressions(ax)
            if ax.lines:
                ax.legend(loc="lower left")
        axes[0].set_ylabel("validation top-1 without fine-tuning, %")

    return Drawing(10, 3.8, shown, draw)


def budget_sensitivity(rows: Sequence[Row]) -> Drawing | None:
    """Budget mode: accuracy after fine-tuning against the learning rate and the division of epochs."""
    shown = found(rows, plans.budget_sensitivity())
    if not shown:
        return None

    def draw(figure: Figure) -> None:
        left, right = figure.subplots(1, 2, sharey=True)
        _spread(left, plans.LRS, [_tests(shown, {"lr": lr}) for lr in plans.LRS])
        left.set(
            xscale="log", xlabel="learning rate", ylabel=f"test top-1 at {plans.COMPRESSION:g}×, %"
        )
        left.set_xticks(plans.LRS)
        left.xaxis.set_major_formatter(lambda value, _: f"{value:.2g}")
        left.minorticks_off()
        names = [f"{epochs} + {after}" for epochs, after in plans.SPLITS]
        places = list(range(len(names)))
        _spread(
            right,
            places,
            [_tests(shown, {"epochs": e, "finetune_epochs": a}) for e, a in plans.SPLITS],
        )
        right.set_xticks(places, names)
        right.set_xlabel("epochs of learning + of fine-tuning")

    return Drawing(8, 3.2, shown, draw)


def _trail(runs: Sequence[Row]) -> "tuple[tuple[Any, Any], tuple[Any, Any]]":
    """Compression and accuracy in % of each epoch, mean and standard deviation over runs."""
    compressions = np.array([[1 / s["kept"] for s in run["epochs_seen"]] for run in runs])
    accuracies = np.array([[100 * s["val"] for s in run["epochs_seen"]] for run in runs])
    return _mean_std(compressions), _mean_std(accuracies)


def _mean_std(runs: "np.ndarray[Any, Any]") -> "tuple[Any, Any]":
    """Mean and sample standard deviation over runs, of each epoch."""
    mean, std = zip(*map(mean_std, runs.T.tolist()), strict=True)
    return mean, std


def _tests(rows: Sequence[Row], changed: Row) -> list[float]:
    return [100 * row["test"] for row in repeated(rows, plans.budget, changed)]


def _spread(ax: Axes, x: Sequence[float], groups: Sequence[Sequence[float]]) -> None:
    """A line through the means, and every run as a point."""
    there = [(at, values) for at, values in zip(x, groups, strict=True) if values]
    ax.plot([at for at, _ in there], [np.mean(values) for _, values in there], color=BLUE, lw=1.2)
    for at, values in there:
        ax.plot([at] * len(values), values, "o", ms=4.5, color=BLUE, alpha=0.7)
