"""Words that every rendering of a report shares."""

import re
from typing import Any

import pytest

from ltp_pipeline.results.metric import Metric
from ltp_pipeline.stages.handoff import text as handoff_text
from ltp_pipeline.stages.report import filters, html, markdown
from ltp_pipeline.stages.report.plots import trail
from tests.support.sample_report import in_celsius, report_of, sample

NO_PICTURES: dict[str, Any] = {
    "trail": [],
    "sizes": {},
    "histograms": [],
    "scatter": None,
}  # saves time


@pytest.fixture
def recurrent() -> dict[str, Any]:
    """A report of a model of whose 30,144 weights 192 are in kernels."""
    report = sample()[0]
    report["model"] |= {"layer_elements": 192, "float_elements": 30_144}
    report["pruned"] |= {"compression": 5.05, "model_compression": 1.0052}
    report["baseline"] |= {"compression": 5.05, "model_compression": 1.0052}
    return report


def test_the_result_says_both_compressions(recurrent: dict[str, Any]) -> None:
    assert filters.result(report_of(recurrent)).startswith(
        "5.05× fewer weights in kernels, 1.01× in the whole model; "
    )


def test_few_weights_in_kernels_are_a_warning_in_every_rendering(recurrent: dict[str, Any]) -> None:
    told = (
        "ernels hold only 0.6 % of the model's 30\u202f144 weights: the whole model has 1.01× fewer"
    )
    pictures = {"trail": [], "histograms": [], "scatter": None, "sizes": {}}
    page = (
        html.render(report_of(recurrent | pictures), []).split("</header>")[0].replace("&#39;", "'")
    )
    for rendered in (
        markdown.render(report_of(recurrent)),
        handoff_text.render(report_of(recurrent)),
        page,
    ):
        assert told in rendered
    assert filters.few_kernels(report_of(sample()[0])) is None
    recurrent["model"] |= {"layer_elements": 9, "float_elements": 10}
    assert filters.few_kernels(report_of(recurrent)) is None


def test_both_stand_wherever_one_does(recurrent: dict[str, Any]) -> None:
    page = html.render(report_of(recurrent | {"histograms": [], "scatter": None, "sizes": {}}), [])
    assert page.count("5.05× / 1.01×") == 2
    assert "LTP (test, 1.01× in the whole model)" in str(trail(report_of(recurrent)))
    assert "(compression 5.05× in the kernels, 1.01× in the whole model)" in handoff_text.render(
        report_of(recurrent)
    )
    assert "| compression, whole model | 1× | 1.01× | 1.01× |" in markdown.render(
        report_of(recurrent)
    )


def test_a_report_that_does_not_know_the_whole_model_is_rendered(recurrent: dict[str, Any]) -> None:
    del recurrent["pruned"]["model_compression"], recurrent["model"]["float_elements"]
    assert filters.result(report_of(recurrent)).startswith("5.05× fewer weights in kernels; ")
    assert "| compression, whole model | 1× | – |" in markdown.render(report_of(recurrent))


def with_figures() -> dict[str, Any]:
    """A report in °C with two figures beside the metric, one of them hostile."""
    report = in_celsius()
    figures = [
        {
            "name": "R²",
            "value": 0.9512,
            "unit": None,
            "is_fraction": True,
            "higher_is_better": True,
        },
        {
            "name": "worst | <i>error</i>",
            "value": 12.3,
            "unit": "°C",
            "is_fraction": False,
            "higher_is_better": False,
        },
    ]
    for part in ("original", "pruned", "baseline"):
        report[part]["accuracy"]["extra_metrics"] = figures
    return report


def test_a_metric_of_which_less_is_better_has_its_unit_and_direction_in_markdown() -> None:
    page = markdown.render(report_of(in_celsius()))
    assert "MAE is worse by 0.0045 °C (95 % interval of the drop −0.0004 to 0.0094)" in page
    assert (
        "At LTP's compression global magnitude has 2.596 °C: LTP is 0.0091 °C ahead (0.0035 to 0.0147)."
        in page
    )
    assert "At LTP's MAE global magnitude reaches 4.43×" in page
    assert "| MAE, lower is better | 2.582 °C | 2.587 °C | 2.596 °C |" in page
    assert "| drop | – | 0.0045 °C (−0.0004 to 0.0094) | 0.0136 °C (0.0081 to 0.0191) |" in page
    assert not re.search("accuracy|points|top-1", page)


def test_a_metric_of_which_less_is_better_has_its_unit_and_direction_in_html() -> None:
    page = html.render(report_of(in_celsius() | NO_PICTURES), [])
    top = page[page.index("<header>") : page.index("</header>")]
    for told in (
        "Rise in MAE",
        "0.0045 °C",
        "MAE, lower is better",
        "2.587 °C",
        "original 2.582 °C",
        "2.596 °C",
    ):
        assert told in top
    assert not re.search("ccuracy|points|top-1", top)


def test_a_metric_of_which_less_is_better_has_its_unit_and_direction_in_the_handoff() -> None:
    page = handoff_text.render(report_of(in_celsius() | {"budget_not_met": "by a little"}))
    assert "| MAE, lower is better | 2.582 °C | 2.587 °C |" in page
    assert "| model.packed.onnx | 131072 | 11.9 % | 2.587 °C |" in page
    assert "Drop: 0.0045 °C (95 % interval −0.0004 to 0.0094)." in page
    assert "outside the budget" in page
    assert "--against" not in page  # it has labels
    assert "argmax" not in page
    assert not re.search("ccuracy|points|top-1", page)


def test_a_better_network_of_a_metric_of_which_less_is_better_is_called_so() -> None:
    report = in_celsius()
    report["pruned"] |= {"drop": -0.02, "drop_interval": None}
    assert "MAE is better by 0.02 °C." in filters.result(report_of(report))


def test_figures_beside_the_metric_stand_in_every_rendering() -> None:
    report = report_of(with_figures() | NO_PICTURES)
    for page in (markdown.render(report), handoff_text.render(report)):
        assert "| R² | 95.12 % | 95.12 % |" in page
        assert "| worst \\| &lt;i&gt;error&lt;/i&gt;, lower is better | 12.3 °C | 12.3 °C |" in page
    page = html.render(report, [])
    assert "; R² 95.12 %; worst | &lt;i&gt;error&lt;/i&gt;, lower is better 12.3 °C" in page


@pytest.mark.parametrize("field", ["name", "unit"])
def test_name_and_unit_of_the_metric_are_escaped_in_every_rendering(field: str) -> None:
    report = in_celsius() | NO_PICTURES
    report["metric"][field] = "<script>alert(1)</script> | [x](http://y)\n# z\x07"
    for page in (markdown.render(report_of(report)), handoff_text.render(report_of(report))):
        assert "<script>" not in page
        assert "](http" not in page
        assert "\n# z" not in page
        assert "\\| \\[x\\]" in page
    assert "<script>alert" not in html.render(report_of(report), [])


def test_a_title_begins_with_a_capital_unless_the_word_has_its_own() -> None:
    assert filters.capital("mean average precision") == "Mean average precision"
    assert [filters.capital(name) for name in ("mIoU", "R²", "")] == ["mIoU", "R²", ""]


@pytest.mark.parametrize(
    ("metric", "label"),
    [
        (Metric(), "top-1 accuracy, %"),
        (
            Metric("MAE", "°C", higher_is_better=False, is_fraction=False),
            "MAE, °C (lower is better)",
        ),
        (Metric("log-likelihood", is_fraction=False), "log-likelihood"),
        (Metric("error rate", higher_is_better=False), "error rate, % (lower is better)"),
    ],
)
def test_an_axis_has_the_metric_its_unit_and_where_better_is(metric: Metric, label: str) -> None:
    assert filters.axis_label(metric) == label
