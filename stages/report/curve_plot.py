"""The picture of both methods: accuracy against compression, with the gap at equal accuracy."""

import math
from typing import TYPE_CHECKING

from ltp_pipeline.results.gain import compared_at
from ltp_pipeline.results.schema import BaselineResult, Report
from ltp_pipeline.stages.report import filters
from ltp_pipeline.stages.report.svg import BASELINE, INK, LEARNED, ORIGINAL, legend, log_axis, svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARGIN = 0.12  # of the range of accuracies, above and below
NARROWEST = 0.5  # range of the accuracies shown, in default budgets
TICKS = (1, 1.5, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70)


def curve(report: Report) -> str | None:
    """The baseline's measured points and LTP's result; None where there is no curve."""
    metric, at = report.metric, report.metric.at_axis
    points = sorted((p.compression, at(p.accuracy)) for p in report.points)
    ltp, accuracy = report.pruned.compression, report.pruned.value
    if not points or ltp is None or accuracy is None or report.baseline is None:
        return None
    baseline, original = report.baseline, report.original.value
    level = at(compared_at(metric, accuracy, original, baseline.budget))
    shown = [
        at(accuracy),
        level,
        *(y for _, y in points),
        *([] if original is None else [at(original)]),
    ]
    span = max(max(shown) - min(shown), at(NARROWEST * metric.default_budget(accuracy)))

    def draw(figure: "Figure") -> None:
        ax = figure.add_subplot()
        trail = sorted(
            (e.compression, at(e.accuracy))
            for e in report.trail
            if e.compression and e.accuracy is not None
        )
        if trail:
            label = "trail before fine-tuning (validation)"
            ax.plot(
                *zip(*trail, strict=True),
                "-o",
                color=LEARNED,
                ms=2.5,
                lw=0.9,
                alpha=0.35,
                label=label,
            )
        if original is not None:
            ax.axhline(at(original), color=ORIGINAL, lw=0.9, ls="--", label="original (test)")
        label = f"{filters.network_words(baseline)} (test)"
        ax.plot(
            *zip(*points, strict=True),
            "-s",
            color=BASELINE,
            ms=6.5,
            lw=1.5,
            mec=INK,
            mew=0.5,
            label=label,
        )
        _gap(ax, report, baseline, level)
        ax.plot(
            ltp,
            at(accuracy),
            "*",
            color=LEARNED,
            ms=15,
            mec=INK,
            mew=0.6,
            ls="none",
            label="LTP (test)",
            zorder=5,
        )
        ax.set_xscale("log")
        first, last = min(points[0][0], ltp), max(points[-1][0], ltp)
        ax.set_xlim(max(1.0, first / 1.25), last * 1.25)
        ax.set_ylim(min(shown) - MARGIN * span, max(shown) + MARGIN * span)
        _ticks(ax)
        log_axis(ax.xaxis, "×")
        ax.set_xlabel("compression of the kernels")
        ax.set_ylabel(filters.axis_label(metric))
        legend(figure, ax)

    judged = filters.capital(filters.metric_words(metric))
    return svg("curve", f"{judged} against compression, LTP and global magnitude", 3.9, draw)


def _gap(ax: "Axes", report: Report, baseline: BaselineResult, level: float) -> None:
    """The gain as a line at that level, from the baseline's compression there, or the nearest known, to LTP's."""
    ltp, gain = report.pruned.compression, baseline.gain
    if ltp is None or gain is None or math.isclose(gain, 1, rel_tol=0.02):
        return
    other = ltp / gain
    bound = f"{baseline.gain_bound} " if baseline.gain_bound else ""
    ends = {
        "arrowstyle": "|-|,widthA=0.3,widthB=0.3",
        "color": INK,
        "lw": 1.1,
        "shrinkA": 0,
        "shrinkB": 0,
    }
    if baseline.budget is not None:
        label = "accuracy budget" if report.metric.counts_right_answers else "budget"
        ax.axhline(level, color=INK, lw=0.8, ls=":", label=label)
    ax.annotate("", (other, level), (ltp, level), arrowprops=ends)
    middle = baseline.budget is None  # else the curve of the baseline crosses the line there
    place = (math.sqrt(other * ltp) if middle else max(other, ltp), level)
    aligned, shift = ("center", 0) if middle else ("right", -4)
    free, side = (
        (4, "bottom") if report.metric.higher_is_better else (-4, "top")
    )  # the baseline gets worse there
    ax.annotate(
        f"gain {bound}{gain:.3g}",
        place,
        (shift, free),
        textcoords="offset points",
        ha=aligned,
        va=side,
    )


def _ticks(ax: "Axes") -> None:
    """Some of the round numbers, as many as stand side by side."""
    from matplotlib.ticker import FixedLocator, NullLocator

    low, high = ax.get_xlim()
    round_numbers = [t * 10**e for e in (0, 2) for t in TICKS]
    inside = [t for t in round_numbers if low * 0.999 <= t <= high]
    ax.xaxis.set_major_locator(
        FixedLocator(inside[:: math.ceil(len(inside) / 9)] if inside else [low, high])
    )
    ax.xaxis.set_minor_locator(NullLocator())
