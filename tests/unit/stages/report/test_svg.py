"""Figures as SVG elements: nothing is cut off, and the page decides the colors."""

import re

import pytest
from matplotlib import rc_context
from matplotlib.figure import Figure

from ltp_pipeline.stages.report import svg


def draw_line(figure: Figure) -> None:
    axes = figure.add_subplot()
    axes.plot([1, 10], [1, 2], color=svg.LEARNED, label="</text><script>")
    axes.set_xscale("log")
    svg.format_log_axis(axes.xaxis, "×")
    svg.add_legend(figure, axes)


def test_draw_svg_colors_are_variables_of_the_page() -> None:
    element = svg.draw_svg("name", "<title>", 2, draw_line)
    assert "var(--learned)" in element
    assert not re.search(r"#0[1-5]0[1-5]0[1-5]|#000000", element)
    assert 'aria-label="&lt;title&gt;"' in element
    assert "<script>" not in element


def test_draw_svg_ids_begin_with_the_name() -> None:
    element = svg.draw_svg("name", "title", 2, draw_line)
    ids = re.findall(r'\bid="([^"]+)"', element)
    references = re.findall(r'(?:href="#|url\(#)([^")]+)', element)
    assert references
    assert all(name.startswith("name-") for name in ids)
    assert set(references) <= set(ids)


def test_draw_svg_user_style_changes_nothing() -> None:
    expected = svg.draw_svg("name", "title", 2, draw_line)
    with rc_context({"font.size": 30, "lines.linewidth": 9}):
        assert svg.draw_svg("name", "title", 2, draw_line) == expected


@pytest.mark.parametrize("label", ["selected entry", "global magnitude in blocks (test), 4.43×"])
def test_add_legend_long_label_lies_within_the_figure(label: str) -> None:
    figure = Figure(figsize=(svg.WIDTH, 3.7), layout="constrained")
    axes = figure.subplots()
    for name in ("trail before fine-tuning (validation)", "original (test)", label, label):
        axes.plot([0, 1], label=name)
    svg.add_legend(figure, axes)
    figure.draw_without_rendering()
    (legend,) = figure.legends
    box = legend.get_window_extent()
    assert 0 <= box.x0 < box.x1 <= figure.bbox.width


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, "0"), (1000, "1000"), (-0.5, "−0.5"), (1e-6, "10⁻⁶"), (2.5e7, "2.5·10⁷")],
)
def test_format_power_small_and_large_numbers(value: float, expected: str) -> None:
    assert svg.format_power(value) == expected


def test_shorten_name_keeps_the_end_of_a_name() -> None:
    assert svg.shorten_name("layer") == "layer"
    shortened = svg.shorten_name("x" * 40 + "\n.weight")
    assert len(shortened) == 30
    assert shortened.endswith("?.weight")
