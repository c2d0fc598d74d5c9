"""The pictures of report.html: one pure function each, from report or log to SVG.

A function returns None when its data is missing.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ltp_pipeline.results.schema import Report
from ltp_pipeline.stages.report import filters
from ltp_pipeline.stages.report.svg import (
    BASELINE,
    FAINT,
    INK,
    LEARNED,
    ORIGINAL,
    legend,
    log_axis,
    short,
    svg,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Log = Sequence[Mapping[str, Any]]
DEPTH = [
    "#3f8fd2",
    "#8c8cb4",
    "#d98c1f",
]  # first to last layer: as dark as each other, apart for every eye
STAGES = {"learn": LEARNED, "finetune": ORIGINAL, "baseline": BASELINE}
STAGE_NAMES = {
    "learn": "learning thresholds",
    "finetune": "fine-tuning",
    "baseline": "global magnitude",
}
POINTS = 300  # per curve; more cannot be told apart


def trail(report: Report) -> str | None:
    """Accuracy against compression along the trail, with the original and both results."""
    metric, known = report.metric, [(e.compression, e.accuracy, e.selected) for e in report.trail]
    entries = sorted(
        (x, metric.at_axis(y), chosen) for x, y, chosen in known if x is not None and y is not None
    )
    if not entries:
        return None

    def draw(figure: "Figure") -> None:
        from matplotlib.ticker import LogLocator

        ax = figure.add_subplot()
        x = [compression for compression, _, _ in entries]
        y = [accuracy for _, accuracy, _ in entries]
        ax.plot(
            x,
            y,
            "-o",
            color=LEARNED,
            ms=4,
            lw=1.2,
            alpha=0.75,
            label="trail, before fine-tuning (validation)",
        )
        for compression, accuracy, chosen in entries:
            if chosen:
                ax.plot(
                    compression, accuracy, "o", ms=11, mfc="none", mec=INK, label="chosen entry"
                )
        if report.original.value is not None:
            original = metric.at_axis(report.original.value)
            ax.axhline(original, color=ORIGINAL, lw=0.9, ls="--")
            ax.plot(1, original, "D", color=ORIGINAL, ms=7, label="original (test)")
        marks = (("*", LEARNED, 14), ("s", BASELINE, 8))
        for network, (marker, color, ms) in zip(report.networks, marks, strict=False):
            if network.compression is not None and network.value is not None:
                at, value = network.compression, metric.at_axis(network.value)
                named = f"{filters.short_name(network)} (test{filters.whole(network)})"
                ax.plot(
                    at, value, marker, color=color, ms=ms, mec=INK, mew=0.6, ls="none", label=named
                )
        ax.set_xscale("log")
        ax.xaxis.set_major_locator(
            LogLocator(subs=(1, 1.5, 2, 3, 5, 7) if x[-1] < 15 else (1, 2, 5))
        )
        log_axis(ax.xaxis, "×")
        ax.set_xlabel("compression of the kernels")
        ax.set_ylabel(filters.axis_label(metric))
        legend(figure, ax)

    judged = filters.capital(filters.metric_words(metric))
    return svg("trail", f"{judged} against compression along the trail", 3.7, draw)


def layers(report: Report) -> str | None:
    """Kept share per layer in graph order, learned beside global magnitude."""
    rows = [layer for layer in report.layers if layer.density is not None]
    if not rows:
        return None
    named = len(rows) <= 60

    def draw(figure: "Figure") -> None:
        ax = figure.add_subplot()
        at = range(len(rows))
        learned = [layer.density or 0.0 for layer in rows]
        other = [layer.baseline_density for layer in rows]
        for y, a, b in zip(at, learned, other, strict=True):
            if b is not None:
                ax.plot([a, b], [y, y], color=FAINT, lw=2, zorder=1)
        if any(b is not None for b in other):
            shown = [math.nan if b is None else b for b in other]
            ax.plot(shown, at, "s", color=BASELINE, ms=5, label="global magnitude", ls="none")
        ax.plot(
            learned,
            at,
            "o",
            color=LEARNED,
            ms=5.5,
            label=filters.short_name(report.pruned),
            ls="none",
        )
        ax.set_xscale("symlog", linthresh=0.01, linscale=0.4)
        ticks = [0, 0.01, 0.03, 0.1, 0.3, 1]
        ax.set_xticks(ticks, [f"{100 * t:g} %" for t in ticks])
        ax.set_xticks([], minor=True)
        ax.set_xlim(-0.001, 1.15)
        ax.set_ylim(len(rows) - 0.4, -0.6)
        if named:
            ax.set_yticks(list(at), [short(layer.name) for layer in rows])
        else:
            ax.set_ylabel("layer, in graph order")
        ax.set_xlabel("share of the layer's weights that is kept")
        legend(figure, ax)

    height = 0.9 + (0.19 * len(rows) if named else min(12.0, 0.06 * len(rows) + 3))
    return svg("layers", "Kept share per layer", height, draw)


def thresholds(log: Log) -> str | None:
    """How each layer's threshold moved while it was learned."""
    lines = [x for x in _stage(log, "learn") if x.get("thresholds")]
    names = list(lines[0]["thresholds"]) if lines else []
    if len(lines) < 2 or not names:
        return None

    def draw(figure: "Figure") -> None:
        from matplotlib.colors import LinearSegmentedColormap

        colors = LinearSegmentedColormap.from_list("depth", DEPTH)
        ax = figure.add_subplot()
        chosen = _thin(lines)
        for index, name in enumerate(names):
            curve = [(x["step"], x["thresholds"].get(name)) for x in chosen]
            curve = [(step, tau) for step, tau in curve if tau is not None and tau > 0]
            color = colors(index / max(1, len(names) - 1))
            label = {0: f"first: {short(name)}", len(names) - 1: f"last: {short(name)}"}.get(index)
            if curve:
                ax.plot(*zip(*curve, strict=True), color=color, lw=1.3, label=label)
        ax.set_yscale("log")
        top = max(tau for x in chosen for tau in x["thresholds"].values() if tau is not None)
        if top > 0:
            ax.set_ylim(
                bottom=top * 1e-5
            )  # thresholds start at nothing; where they go is what matters
        log_axis(ax.yaxis)
        ax.set_xlabel("step")
        ax.set_ylabel("threshold τ (of w²)")
        legend(figure, ax)

    return svg("thresholds", "Thresholds over training", 3.5, draw)


def training(log: Log) -> str | None:
    """Loss of every stage, and λ below it, over steps."""
    curves = {s: [x for x in _stage(log, s) if _number(x.get("loss")) is not None] for s in STAGES}
    curves = {stage: lines for stage, lines in curves.items() if len(lines) > 1}
    if not curves:
        return None
    weights = [x for x in curves.get("learn", []) if (_number(x.get("lambda")) or 0) > 0]

    def draw(figure: "Figure") -> None:
        axes = (
            figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
            if weights
            else [figure.add_subplot()]
        )
        for stage, lines in curves.items():
            shift = 0
            if (
                stage == "finetune"
                and "learn" in curves
                and lines[0]["step"] <= curves["learn"][-1]["step"]
            ):
                shift = (
                    curves["learn"][-1]["step"] + 1
                )  # it follows learning, also when its steps count from 0
            x, y = _means(lines, "loss")
            axes[0].plot(
                [s + shift for s in x], y, color=STAGES[stage], lw=1.3, label=STAGE_NAMES[stage]
            )
        axes[0].set_ylabel("loss")
        if weights:
            x, y = _means(weights, "lambda")
            axes[1].plot(x, y, color=LEARNED, lw=1.3)
            axes[1].set_yscale("log")
            log_axis(axes[1].yaxis)
            axes[1].set_ylabel("λ")
        axes[-1].set_xlabel("step")
        legend(figure, axes[0])

    return svg("training", "Loss and λ over steps", 3.7, draw)


def histograms(report: Report) -> str | None:
    """|w| of the largest layers before and after, with the threshold."""
    found = [
        h for h in report.histograms if len(h.edges) == len(h.before) + 1 == len(h.after) + 1 > 1
    ][:6]
    if not found:
        return None
    rows = math.ceil(len(found) / 2)

    def draw(figure: "Figure") -> None:
        axes = figure.subplots(rows, 2 if len(found) > 1 else 1, squeeze=False)
        for ax, one in zip(axes.flat, found, strict=False):
            edges = one.edges
            ax.stairs(one.before, edges, fill=True, color=FAINT, label="before")
            ax.stairs(one.after, edges, color=LEARNED, lw=1.3, label="after")
            if one.threshold is not None:
                ax.axvline(
                    math.sqrt(one.threshold), color=BASELINE, lw=1.2, ls="--", label="threshold √τ"
                )
            if edges[0] > 0 and edges[-1] / edges[0] > 50:
                ax.set_xscale("log")
                log_axis(ax.xaxis)
            else:
                ax.locator_params(axis="x", nbins=4)
            ax.set_yscale("symlog", linthresh=1)
            log_axis(ax.yaxis)
            ax.set_title(short(one.name), fontsize=9)
        for ax in list(axes.flat)[len(found) :]:
            ax.set_axis_off()
        for ax in axes[-1]:
            ax.set_xlabel("|w|")
        legend(figure, axes.flat[0])

    return svg("histograms", "Histogram of |w| in the largest layers", 0.6 + 1.6 * rows, draw)


def scatter(report: Report) -> str | None:
    """w² before and after in one layer: what stayed and what went, beside where the threshold ended."""
    one = report.scatter
    if one is None or len(one.before) != len(one.after):
        return None
    positive = [v for v in [*one.before, *one.after] if v > 0]
    if not positive:
        return None

    before, after, tau = one.before, one.after, one.threshold

    def draw(figure: "Figure") -> None:
        ax = figure.add_subplot()
        floor = max(min(positive), (tau or max(positive)) * 1e-5)  # zeros are drawn at the edge
        pairs = [(max(a, floor), max(b, floor), b > 0) for a, b in zip(before, after, strict=True)]
        above = [(a > tau) if tau else True for a, _, _ in pairs]
        groups = [
            (
                label,
                color,
                [p[:2] for p, was in zip(pairs, above, strict=True) if (p[2], was) == wanted],
            )
            for label, color, wanted in (
                ("kept, was above", LEARNED, (True, True)),
                ("kept, was below", ORIGINAL, (True, False)),
                ("pruned, was below", FAINT, (False, False)),
                ("pruned, was above", BASELINE, (False, True)),
            )
        ]
        if tau:
            ax.axvline(tau, color=INK, lw=0.9, ls="--")
        for label, color, some in groups:
            if some:
                ax.plot(
                    *zip(*some, strict=True),
                    ".",
                    color=color,
                    ms=3,
                    mew=0,
                    label=f"{label}: {len(some)}",
                )
        ax.set_xscale("log")
        ax.set_yscale("log")
        log_axis(ax.xaxis)
        log_axis(ax.yaxis)
        ax.set_xlabel("w² before")
        ax.set_ylabel("w² after")
        legend(figure, ax, 2)

    return svg("scatter", f"w² before and after in {one.name}", 4.2, draw)


def sizes(report: Report) -> str | None:
    """Bytes per format against the bound."""
    known = {name: size for name, size in report.sizes.items() if size and name != "entropy_bound"}
    bound = report.sizes.get("entropy_bound")
    if not known:
        return None

    def draw(figure: "Figure") -> None:
        ax = figure.add_subplot()
        names, values = list(known), list(known.values())
        colors = [ORIGINAL if n in ("original", "dense") else LEARNED for n in names]
        whole = known.get("original") or known.get("dense")
        ax.barh(range(len(names)), values, color=colors, height=0.6)
        for y, value in enumerate(values):
            share = f" ({100 * value / whole:.3g} %)" if whole else ""
            ax.annotate(
                filters.size(value) + share,
                (value, y),
                (4, 0),
                textcoords="offset points",
                va="center",
            )
        if bound:
            ax.axvline(
                bound, color=BASELINE, lw=1.4, ls="--", label=f"bound: {filters.size(bound)}"
            )
        ax.set_yticks(range(len(names)), names)
        ax.set_ylim(len(names) - 0.4, -0.6)
        ax.set_xlim(0, 1.3 * max(values))
        ax.locator_params(axis="x", nbins=5)
        ax.xaxis.set_major_formatter(lambda v, _: filters.size(v) if v else "0")
        ax.grid(axis="y", visible=False)
        legend(figure, ax)

    return svg("sizes", "File size per format", 1.3 + 0.38 * len(known), draw)


def _stage(log: Log, stage: str) -> Log:
    """The lines of a stage by step; of fine-tuning, which is named by the trail entry, the last that was run."""
    names = [name for x in log if (name := str(x.get("stage"))).split("-")[0] == stage]
    found = {
        x["step"]: x for x in log if names and x.get("stage") == names[-1]
    }  # a step done again counts once
    return [found[step] for step in sorted(found)]


def _number(value: Any) -> float | None:
    """A value of the log, when it is a finite number."""
    return value if isinstance(value, int | float) and math.isfinite(value) else None


def _thin(lines: Log) -> Log:
    step = max(1, math.ceil(len(lines) / POINTS))
    return [*lines[:-1:step], lines[-1]]


def _means(lines: Log, key: str) -> tuple[list[float], list[float]]:
    """Step and mean value of neighbouring lines, few enough to draw."""
    width = max(1, math.ceil(len(lines) / POINTS))
    groups = [lines[i : i + width] for i in range(0, len(lines), width)]
    return [g[-1]["step"] for g in groups], [sum(x[key] for x in g) / len(g) for g in groups]
