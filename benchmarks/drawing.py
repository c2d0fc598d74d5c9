"""A figure as an SVG that is the same bytes every time, and carries the digest of the rows it was drawn from."""

import hashlib
import io
import json
from collections.abc import Callable
from typing import Any

from matplotlib import rc_context, rcdefaults
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ltp_pipeline.stages.report.svg import format_log_axis

# Okabe and Ito's colours, which every eye can tell apart; black and the yellow are left out
BLUE, ORANGE, GREEN, RED, SKY, PINK = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#d55e00",
    "#56b4e9",
    "#cc79a7",
)
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


class Drawing:
    """A figure and the rows it shows."""

    def __init__(
        self, width: float, height: float, rows: Any, draw: Callable[[Figure], None]
    ) -> None:
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
                about = (
                    {"Date": None, "Creator": None, "Description": f"rows {self.digest}"}
                    if form == "svg"
                    else {}
                )
                figure.savefig(buffer, format=form, dpi=dpi, metadata=about)
        return buffer.getvalue()


def digest(rows: Any) -> str:
    """Short name of what was drawn."""
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()[:16]


def compressions(ax: Axes) -> None:
    """Ticks that are read as compressions."""
    low, high = ax.get_xlim()
    values = (
        (1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 500)
        if high / low > 8
        else (1, 1.5, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70)
    )
    ax.set_xticks([v for v in values if low <= v <= high])
    format_log_axis(ax.xaxis, "×")
    ax.minorticks_off()


def once(ax: Axes, name: str) -> str:
    """A label for the first line of its name, none for the others."""
    return "" if name in ax.get_legend_handles_labels()[1] else name


def legend(figure: Figure, ax: Axes, columns: int = 4) -> None:
    """One legend above everything, where it hides nothing."""
    figure.legend(
        *ax.get_legend_handles_labels(), loc="outside upper left", ncols=columns, borderpad=0
    )
