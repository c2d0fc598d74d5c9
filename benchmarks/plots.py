"""The figures of docs/results.md: one function each, from results to an SVG that is the same bytes every time.

A function returns None when its rows are missing. Each figure carries the digest of the rows it was drawn from.
"""

import hashlib
import io
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context, rcdefaults
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.ablations import plans
from benchmarks.ablations.runs import BINS
from ltp_pipeline.stages.report.svg import log_axis

Row = dict[str, Any]
# Okabe and Ito's colours, which every eye can tell apart; black and the yellow are left out
BLUE, ORANGE, GREEN, RED, SKY, PINK = "#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7"
SHADES = ["#9ecae1", "#6baed6", "#3182bd", "#08519c", "#08204d"]  # light to dark: small to large values
MARKERS = "osD^v"
STYLE = {
    "svg.fonttype": "none",
    "font.size": 9.5,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "grid.color": "#d0d0d0",
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "legend.fontsize": 9,
}
SHOWN = (1e-6, 0.5)  # squared weights of the scatter plot; smaller ones lie on its edge
KINDS = {"4": "∂v/∂w by (4)", "10": "∂v/∂w by (10)"}
REGULARISERS = {"l0": ("soft L0", BLUE, "o"), "l2": ("L2", ORANGE, "s"), "none": ("none", GREEN, "^")}
METHODS = {
    "one-shot": ("one-shot magnitude", SKY, "v"),
    "gradual": ("gradual magnitude", GREEN, "^"),
    "str": ("STR", ORANGE, "s"),
    "str-finetuned": ("STR, then fine-tuned", RED, "D"),
    "ltp-paper": ("LTP, paper mode", PINK, "X"),
    "ltp-budget": ("LTP, budget mode", BLUE, "o"),
}


class Drawing:
    """A figure and the rows it shows."""

    def __init__(self, width: float, height: float, rows: Any, draw: Callable[[Figure], None]) -> None:
        self.size, self.rows, self.draw = (width, height), rows, draw

    @property
    def digest(self) -> str:
        """Of the rows."""
        return digest(self.rows)

    def render(self, form: str = "svg", dpi: int = 100) -> bytes:
        """Draw without pyplot, so that no display, no user style and no clock has a say in the bytes."""
        with rc_context():
            rcdefaults()
            with rc_context({**STYLE, "svg.hashsalt": self.digest}):
                figure = Figure(figsize=self.size, layout="constrained", facecolor="white")
                self.draw(figure)
                buffer = io.BytesIO()
                about = {"Date": None, "Creator": None, "Description": f"rows {self.digest}"} if form == "svg" else {}
                figure.savefig(buffer, format=form, dpi=dpi, metadata=about)
        return buffer.getvalue()


def digest(rows: Any) -> str:
    """Short name of what was drawn."""
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()[:16]


def find(rows: Iterable[Row], plan: Row) -> Row | None:
    """The row of a plan, when it was measured."""
    return next((row for row in rows if plan.items() <= row.items()), None)


def found(rows: Sequence[Row], wanted: Iterable[Row]) -> list[Row]:
    """Rows of these plans, as many as were measured."""
    return [row for plan in wanted if (row := find(rows, plan)) is not None]


def repeated(rows: Sequence[Row], mode: Callable[..., Row], changed: Row) -> list[Row]:
    """Rows of the small network with these settings changed, one for each seed."""
    return found(rows, (mode("resnet", seed, **changed) for seed in plans.SENSITIVITY_SEEDS))


def mean_std(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation."""
    return float(np.mean(values)), float(np.std(values))


def numbers(line: str) -> "np.ndarray[Any, Any]":
    """The weights of a layer, which are kept as one line."""
    return np.array(line.split(), float)


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
                x, y = [s["epoch"] for s in row["epochs_seen"]], [scale * s[key] for s in row["epochs_seen"]]
                if key != "train":
                    x, y = [0, *x], [1.0 if key == "mean_square" else 100.0, *y]
                ax.plot(x, y, marker=marker, ms=4.5, color=color, label=name)
            ax.set(xlabel="epoch", ylabel=label)
        axes[0].set_ylim(bottom=0)
        axes[2].set_yscale("log")
        log_axis(axes[2].yaxis)
        _legend(figure, axes[0])

    return Drawing(9, 3.2, shown, draw)


def scatter(rows: Sequence[Row]) -> Drawing | None:
    """Squared weights of one layer before and after, with the threshold, for each weight gradient."""
    shown = found(rows, plans.gradient())
    if not shown:
        return None

    def draw(figure: Figure) -> None:
        axes = figure.subplots(1, len(shown), sharex=True, sharey=True, squeeze=False)[0]
        for ax, row in zip(axes, shown, strict=True):
            layer = row["layer"]
            before, after = (np.maximum(np.square(numbers(layer[key])), SHOWN[0]) for key in ("before", "after"))
            ax.plot(before, after, ".", ms=2.5, color=BLUE, alpha=0.5, rasterized=True)
            for line in (ax.axhline, ax.axvline):
                line(max(layer["tau"], SHOWN[0]), color=RED, lw=1)
            ax.set(xscale="log", yscale="log", xlabel="w² before", xlim=SHOWN, ylim=SHOWN)
            ax.set_title(f"{KINDS[row['weight_gradient']]}: {100 * layer['kept']:.1f} % kept")
            for axis in (ax.xaxis, ax.yaxis):
                axis.set_ticks([1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1])
                log_axis(axis)
        axes[0].set_ylabel("w² after learning")

    return Drawing(3.1 * len(shown), 3.3, [row["layer"] for row in shown], draw)


def gap(rows: Sequence[Row]) -> Drawing | None:
    """Where weights lie about the threshold, and how pruning goes on, for each weight gradient."""
    shown = found(rows, plans.gradient())
    if not shown:
        return None

    def draw(figure: Figure) -> None:
        left, right = figure.subplots(1, 2)
        for row, color, style in zip(shown, (BLUE, RED), ("-", "--"), strict=False):
            counts = np.array(row["layer"]["about_threshold"])
            left.stairs(counts, BINS, color=color, ls=style, lw=1.4, label=KINDS[row["weight_gradient"]])
            kept = [100.0, *(100 * s["kept"] for s in row["epochs_seen"])]
            right.plot(range(len(kept)), kept, color=color, ls=style, marker="o", ms=4)
        left.axvline(1, color="#404040", lw=0.8)
        left.set(xlabel="|w| / √τ after learning", ylabel="weights of the layer per bin", xlim=(0.3, 2), yscale="log")
        right.set(xlabel="epoch", ylabel="weights kept in the network, %", yscale="log")
        for ax, ticks in ((left, (1, 10, 100, 1000)), (right, (5, 10, 20, 50, 100))):
            ax.set_yticks(ticks)
            log_axis(ax.yaxis)
            ax.minorticks_off()
        right.xaxis.get_major_locator().set_params(integer=True)
        _legend(figure, left)

    return Drawing(8, 3.4, shown, draw)


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
            ax.errorbar(x, y, dy, dx, color=color, marker=marker, ms=5, capsize=3, lw=1.2, label=label)
        ax.set(xscale="log", xlabel="compression", ylabel="validation top-1 without fine-tuning, %")
        _compressions(ax)
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
            for value, color, marker in zip(values, SHADES, MARKERS, strict=True):
                runs = repeated(shown, plans.paper, {key: value})
                if runs:
                    (x, dx), (y, dy) = _trail(runs)
                    ax.errorbar(x, y, dy, dx, lw=1, color=color, marker=marker, ms=3.5, capsize=2, label=f"{value:g}")
            ax.set(xscale="log", xlabel="compression", title=name)
            _compressions(ax)
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
        left.set(xscale="log", xlabel="learning rate", ylabel=f"test top-1 at {plans.COMPRESSION:g}×, %")
        left.set_xticks(plans.LRS)
        left.xaxis.set_major_formatter(lambda value, _: f"{value:.2g}")
        left.minorticks_off()
        names = [f"{epochs} + {after}" for epochs, after in plans.SPLITS]
        places = list(range(len(names)))
        _spread(right, places, [_tests(shown, {"epochs": e, "finetune_epochs": a}) for e, a in plans.SPLITS])
        right.set_xticks(places, names)
        right.set_xlabel("epochs of learning + of fine-tuning")

    return Drawing(8, 3.2, shown, draw)


def quality(rows: Sequence[Row], network: str) -> Drawing | None:
    """Test accuracy against the compression reached, mean and standard deviation over seeds."""
    shown = [row for row in rows if row["network"] == network]
    if not shown:
        return None

    def draw(figure: Figure) -> None:
        ax = figure.subplots()
        for method, (name, color, marker) in METHODS.items():
            points = []
            for wanted in sorted({row["compression"] for row in shown}):
                runs = [row for row in shown if row["method"] == method and row["compression"] == wanted]
                if runs:
                    reached = float(np.mean([row["reached"] for row in runs]))
                    points.append((reached, *mean_std([100 * row["test"] for row in runs])))
            if points:
                x, y, dy = zip(*sorted(points), strict=True)
                ax.errorbar(x, y, dy, color=color, marker=marker, ms=5, capsize=3, lw=1.2, label=name)
        ax.set(xscale="log", xlabel="compression reached", ylabel="test top-1, %")
        _compressions(ax)
        _legend(figure, ax, columns=3)

    return Drawing(6.5, 4.2, shown, draw)


def _trail(runs: Sequence[Row]) -> "tuple[tuple[Any, Any], tuple[Any, Any]]":
    """Compression and accuracy in % of each epoch, mean and standard deviation over runs."""
    compressions = np.array([[1 / s["kept"] for s in run["epochs_seen"]] for run in runs])
    accuracies = np.array([[100 * s["val"] for s in run["epochs_seen"]] for run in runs])
    return (compressions.mean(0), compressions.std(0)), (accuracies.mean(0), accuracies.std(0))


def _tests(rows: Sequence[Row], changed: Row) -> list[float]:
    return [100 * row["test"] for row in repeated(rows, plans.budget, changed)]


def _spread(ax: Axes, x: Sequence[float], groups: Sequence[Sequence[float]]) -> None:
    """A line through the means, and every run as a point."""
    there = [(at, values) for at, values in zip(x, groups, strict=True) if values]
    ax.plot([at for at, _ in there], [np.mean(values) for _, values in there], color=BLUE, lw=1.2)
    for at, values in there:
        ax.plot([at] * len(values), values, "o", ms=4.5, color=BLUE, alpha=0.7)


def _compressions(ax: Axes) -> None:
    """Ticks that are read as compressions."""
    low, high = ax.get_xlim()
    values = (
        (1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 500) if high / low > 8 else (1, 1.5, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70)
    )
    ax.set_xticks([v for v in values if low <= v <= high])
    log_axis(ax.xaxis, "×")
    ax.minorticks_off()


def _legend(figure: Figure, ax: Axes, columns: int = 4) -> None:
    """One legend above everything, where it hides nothing."""
    figure.legend(*ax.get_legend_handles_labels(), loc="outside upper left", ncols=columns, borderpad=0)
