"""From a drawing to SVG inside a page: the same bytes every time, colours that follow light and dark.

Colours are drawn as placeholders and become CSS variables of the page.
"""

import io
import re
import warnings
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 5.6  # inches: on a phone the letters must not shrink below what can be read
INK, FAINT, LEARNED, BASELINE, ORIGINAL = "#010101", "#020202", "#030303", "#040404", "#050505"
SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
VARIABLES = {
    INK: "ink",
    FAINT: "faint",
    LEARNED: "learned",
    BASELINE: "baseline",
    ORIGINAL: "original",
}
LEGEND_CHARACTERS = 38  # of a label, with which two still stand side by side


def svg(name: str, title: str, height: float, draw: "Callable[[Figure], None]") -> str:
    """Draw without pyplot, so that no display, no user style and no clock has a say in the bytes."""
    from matplotlib import rc_context, rcdefaults
    from matplotlib.figure import Figure

    style: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": name,
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
    with rc_context(), warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # a letter that the measuring font lacks is still written as text
        rcdefaults()
        with rc_context(style):
            figure = Figure(figsize=(WIDTH, height), layout="constrained")
            draw(figure)
            buffer = io.StringIO()
            figure.savefig(
                buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None}
            )
    return _inline(buffer.getvalue(), name, title)


def _inline(document: str, name: str, title: str) -> str:
    """An SVG document as an element: themed colours, own ids, the page's font."""
    document = re.sub(
        r"<metadata>.*?</metadata>", "", document[document.index("<svg") :], flags=re.DOTALL
    )

    def tag(match: re.Match[str]) -> str:
        found = match[0]
        for color, variable in VARIABLES.items():
            found = found.replace(color, f"var(--{variable})")
        found = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", found)
        return re.sub(r"font: ((?:\d+ )?[\d.]+px) [^;\"]*", r"font: \1 var(--sans)", found)

    opening, body = re.sub(r"<[^<>]*>", tag, document).split(">", 1)
    box = re.search(r'viewBox="[^"]*"', opening)
    if box is None:
        raise ValueError("matplotlib wrote an SVG without a viewBox")
    spaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return f'<svg {spaces} {box[0]} role="img" aria-label="{escape(title)}">{body}'.rstrip()


def legend(figure: "Figure", ax: "Axes", scale: float = 1) -> None:
    """One legend above everything, where it hides nothing."""
    handles, labels = ax.get_legend_handles_labels()
    if handles:
        columns = 2 if max(map(len, labels)) <= LEGEND_CHARACTERS else 1
        figure.legend(
            handles,
            labels,
            loc="outside upper left",
            ncols=columns,
            borderpad=0,
            handlelength=1.6,
            markerscale=scale,
        )


def log_axis(axis: Any, unit: str = "") -> None:
    """Plain numbers on a logarithmic axis; matplotlib's own labels need its formula language."""
    from matplotlib.ticker import NullFormatter

    axis.set_major_formatter(lambda value, _: power(value) + unit)
    axis.set_minor_formatter(NullFormatter())


def power(value: float) -> str:
    """1000 → 1000, 0.000001 → 10⁻⁶."""
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.6g}".replace("-", "−")
    digits, exponent = f"{value:.2e}".split("e")
    factor = "" if float(digits) == 1 else f"{float(digits):g}·"
    return f"{factor}10{str(int(exponent)).translate(SUPERSCRIPT)}".replace("-", "−")


def short(name: str, most: int = 30) -> str:
    """The end of a long name: that is where layers differ."""
    clean = "".join(c if c.isprintable() else "?" for c in name)
    return clean if len(clean) <= most else f"…{clean[1 - most :]}"
