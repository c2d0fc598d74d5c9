"""Pictures: what they say is not cut off."""

import pytest
from matplotlib.figure import Figure

from ltp_pipeline.stages.report.svg import legend


@pytest.mark.parametrize(
    "label", ["chosen entry", "global magnitude (test, 20.20× in the whole model)"]
)
def test_a_legend_lies_within_its_picture(label: str):
    figure = Figure(figsize=(5.6, 3.7), layout="constrained")
    ax = figure.subplots()
    for name in ("trail, before fine-tuning (validation)", "original (test)", label, label):
        ax.plot([0, 1], label=name)
    legend(figure, ax)
    figure.draw_without_rendering()
    (drawn,) = figure.legends
    box = drawn.get_window_extent()
    assert 0 <= box.x0 < box.x1 <= figure.bbox.width
