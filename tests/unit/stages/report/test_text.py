"""Words that every rendering of a report shares."""

from typing import Any

import pytest

from ltp_pipeline.stages.handoff import text as handoff_text
from ltp_pipeline.stages.report import html, markdown, text
from ltp_pipeline.stages.report.plots import trail
from tests.support.sample_report import report_of, sample


@pytest.fixture
def recurrent() -> dict[str, Any]:
    """A report of a model of whose 30,144 weights 192 are in kernels."""
    report = sample()[0]
    report["model"] |= {"kernel_elements": 192, "float_elements": 30_144}
    report["pruned"] |= {"compression": 5.05, "model_compression": 1.0052}
    report["baseline"] |= {"compression": 5.05, "model_compression": 1.0052}
    return report


def test_the_result_says_both_compressions(recurrent: dict[str, Any]) -> None:
    assert text.result(report_of(recurrent)).startswith("5.05× fewer weights in kernels, 1.01× in the whole model; ")


def test_few_weights_in_kernels_are_a_warning_in_every_rendering(recurrent: dict[str, Any]) -> None:
    told = "ernels hold only 0.6 % of the model's 30\u202f144 weights: the whole model has 1.01× fewer"
    pictures = {"trail": [], "histograms": [], "scatter": None, "sizes": {}}
    page = html.render(report_of(recurrent | pictures), []).split("</header>")[0].replace("&#39;", "'")
    for rendered in (markdown.render(report_of(recurrent)), handoff_text.render(report_of(recurrent)), page):
        assert told in rendered
    assert text.few_kernels(report_of(sample()[0])) is None
    recurrent["model"] |= {"kernel_elements": 9, "float_elements": 10}
    assert text.few_kernels(report_of(recurrent)) is None


def test_both_stand_wherever_one_does(recurrent: dict[str, Any]) -> None:
    page = html.render(report_of(recurrent | {"histograms": [], "scatter": None, "sizes": {}}), [])
    assert page.count("5.05× / 1.01×") == 2
    assert "LTP (test, 1.01× in the whole model)" in str(trail(report_of(recurrent)))
    assert "(compression 5.05× in the kernels, 1.01× in the whole model)" in handoff_text.render(report_of(recurrent))
    assert "| compression, whole model | 1× | 1.01× | 1.01× |" in markdown.render(report_of(recurrent))


def test_a_report_that_does_not_know_the_whole_model_is_rendered(recurrent: dict[str, Any]) -> None:
    del recurrent["pruned"]["model_compression"], recurrent["model"]["float_elements"]
    assert text.result(report_of(recurrent)).startswith("5.05× fewer weights in kernels; ")
    assert "| compression, whole model | 1× | – |" in markdown.render(report_of(recurrent))
