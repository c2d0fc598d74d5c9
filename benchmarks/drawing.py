"""Render figures as reproducible SVG files that contain the digest of their rows."""

import hashlib
import io
import json
from collections.abc import Callable
from typing import Any

from matplotlib import rc_context, rcdefaults
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ltp_pipeline.stages.report.svg import format_log_axis

# Colors of Okabe and Ito, which color-blind readers can distinguish; without black and yellow.
BLUE, ORANGE, GREEN, RED, SKY, PINK = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#d55e00",
    "#56b4e9",
    "#cc79a7",
)
STYLE: dict[Any, Any] = {
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
        """Digest of the rows."""
        return hash_rows(self.rows)

    def render(self, form: str = "svg", dpi: int = 100) -> bytes:
        """Return the file of the figure.

        It does not depend on a display, on styles of the user or on the time.

        Args:
            form: File format.
            dpi: Resolution of bitmaps.
        """
        with rc_context():
            rcdefaults()
            with rc_context({**STYLE, "svg.hashsalt": self.digest}):
                figure = Figure(figsize=self.size, layout="constrained", facecolor="white")
                self.draw(figure)
                buffer = io.BytesIO()
                metadata = {}
                if form == "svg":
                    description = f"rows {self.digest}"
                    metadata = {"Date": None, "Creator": None, "Description": description}
                figure.savefig(buffer, format=form, dpi=dpi, metadata=metadata)
        return buffer.getvalue()


def hash_rows(rows: Any) -> str:
    """Return a short hash of rows."""
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()[:16]


def format_compressions(ax: Axes) -> None:
    """Format the horizontal axis as compression ratios."""
    low, high = ax.get_xlim()
    values = (
        (1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 500)
        if high / low > 8
        else (1, 1.5, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70)
    )
    ax.set_xticks([v for v in values if low <= v <= high])
    format_log_axis(ax.xaxis, "×")
    ax.minorticks_off()


def label_once(ax: Axes, name: str) -> str:
    """Return the label of the first line with a name, and nothing for further lines."""
    return "" if name in ax.get_legend_handles_labels()[1] else name


def add_legend(figure: Figure, ax: Axes, columns: int = 4) -> None:
    """Add the legend of an axis above the figure."""
    figure.legend(
        *ax.get_legend_handles_labels(), loc="outside upper left", ncols=columns, borderpad=0
    )
