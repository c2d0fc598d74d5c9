"""Draw matplotlib figures as SVG elements of a page.

The same figure gives the same bytes. Colors are drawn as placeholders that become CSS variables of
the page, so that they follow its light or dark theme.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

from ltp_pipeline.system.text import make_printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 5.6  # inches; on a phone, text in a wider figure becomes too small to read
INK, FAINT, LEARNED, BASELINE, ORIGINAL = "#010101", "#020202", "#030303", "#040404", "#050505"
GRADUAL = "#060606"
VARIABLES = {
    INK: "ink",
    FAINT: "faint",
    LEARNED: "learned",
    BASELINE: "baseline",
    ORIGINAL: "original",
    GRADUAL: "gradual",
}
SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
MAX_LABEL = 38  # characters of a label that still fits into a legend of two columns
MAX_NAME = 30  # characters of the name of a layer
STYLE: Any = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a layer may be called $\frac$
    "font.size": 9.5,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": True,
    "grid.color": FAINT,
    "grid.alpha": 0.5,
    "grid.linewidth": 0.5,
    "text.color": INK,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 9,
}


def draw_svg(name: str, title: str, height: float, draw: Callable[[Figure], None]) -> str:
    """Draw a figure as an SVG element.

    Drawn without pyplot, so that the bytes depend neither on a display nor on the user's style.

    Args:
        name: Prefix of all ids in the element.
        title: Description for screen readers.
        height: Height in inches.
        draw: Function that draws into an empty figure.
    """
    from matplotlib import rc_context, rcdefaults
    from matplotlib.figure import Figure

    with rc_context(), warnings.catch_warnings():
        # A character that the measuring font lacks is still written as text.
        warnings.simplefilter("ignore")
        rcdefaults()
        with rc_context({**STYLE, "svg.hashsalt": name}):
            figure = Figure(figsize=(WIDTH, height), layout="constrained")
            draw(figure)
            buffer = io.StringIO()
            metadata = {"Date": None, "Creator": None}
            figure.savefig(buffer, format="svg", transparent=True, metadata=metadata)
    return _to_element(buffer.getvalue(), name, title)


def _to_element(document: str, name: str, title: str) -> str:
    """Return an SVG document as an element with themed colors, its own ids and the page's font."""
    document = document[document.index("<svg") :]
    document = re.sub(r"<metadata>.*?</metadata>", "", document, flags=re.DOTALL)

    def adapt_tag(match: re.Match[str]) -> str:
        tag = match[0]
        for color, variable in VARIABLES.items():
            tag = tag.replace(color, f"var(--{variable})")
        tag = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", tag)
        return re.sub(r"font: ((?:\d+ )?[\d.]+px) [^;\"]*", r"font: \1 var(--sans)", tag)

    opening, body = re.sub(r"<[^<>]*>", adapt_tag, document).split(">", 1)
    box = re.search(r'viewBox="[^"]*"', opening)
    if box is None:
        raise ValueError("matplotlib wrote an SVG without a viewBox")
    spaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return f'<svg {spaces} {box[0]} role="img" aria-label="{escape(title)}">{body}'.rstrip()


def add_legend(figure: Figure, axes: Axes, marker_scale: float = 1) -> None:
    """Add the legend above the axes, where it hides nothing."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        num_columns = 1
        if max(map(len, labels)) <= MAX_LABEL:
            num_columns = 2
        figure.legend(
            handles,
            labels,
            loc="outside upper left",
            ncols=num_columns,
            borderpad=0,
            handlelength=1.6,
            markerscale=marker_scale,
        )


def format_log_axis(axis: Any, unit: str = "") -> None:
    """Label a logarithmic axis without matplotlib's formula language, which is turned off."""
    from matplotlib.ticker import NullFormatter

    axis.set_major_formatter(lambda value, _: format_power(value) + unit)
    axis.set_minor_formatter(NullFormatter())


def format_power(value: float) -> str:
    """Return a number as text, very small and large ones as a power: 0.000001 → 10⁻⁶."""
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.6g}".replace("-", "−")
    digits, exponent = f"{value:.2e}".split("e")
    factor = "" if float(digits) == 1 else f"{float(digits):g}·"
    return f"{factor}10{str(int(exponent)).translate(SUPERSCRIPT)}".replace("-", "−")


def shorten_name(name: str) -> str:
    """Return the end of a long name, because that is where the names of layers differ."""
    printable = make_printable(name)
    if len(printable) <= MAX_NAME:
        return printable
    return f"…{printable[1 - MAX_NAME :]}"
