"""report.md: short, complete, and harmless in a pull-request comment."""

from typing import Any

import pytest

from ltp_pipeline.stages.handoff import text as handoff_text
from ltp_pipeline.stages.report import comparison_facts, filters, html, markdown
from tests.support.sample_report import HOSTILE, report_of, sample


def render(content: dict[str, Any], log: object = None) -> str:
    del log  # of a sample; the page needs none
    return markdown.render(report_of(content))


def test_says_what_decides() -> None:
    filters = render(*sample())
    assert "✅ passed" in filters
    assert "| top-1 | 91.77 % | 91.32 % | 90.41 % |" in filters
    assert "| drop | – | 0.45 points (−0.04 to 0.94) | 1.36 points (0.81 to 1.91) |" in filters
    assert "| compression, kernels | 1× | 8.36× | 8.36× |" in filters
    assert "| compression, whole model | 1× | 7.87× | 7.87× |" in filters
    assert (
        "8.36× fewer weights in kernels, 7.87× in the whole model; top-1 accuracy loses" in filters
    )
    assert "| file, packed |  | 131 kB | 131 kB |" in filters
    assert "| epochs | – | 12 + 6 | 0 + 18 |" in filters
    assert "`model.sparse.onnx`" in filters
    assert "Most pruned: `stage3.block2.conv2.weight` (4.4 % kept)" in filters
    assert "Least pruned: `stage2.block0.shortcut.weight` (67.8 % kept)" in filters


def test_noise_is_told() -> None:
    report, log = sample()
    assert "loses 0.45 points (95 % interval of the drop −0.04 to 0.94)" in render(report, log)
    assert "global magnitude has 90.41 %: LTP is 0.91 points ahead (0.35 to 1.47)." in render(
        report, log
    )
    report["difference"] = {"value": -0.001, "interval": [-0.006, 0.004]}
    assert "LTP is 0.10 points behind (−0.60 to 0.40, which may be chance)." in render(report, log)
    report["pruned"]["drop"] = -0.002
    assert "gains 0.20 points" in render(report, log)


def test_fits_a_comment() -> None:
    assert len(render(*sample())) < 4000


def test_failing_gates_come_first() -> None:
    report, log = sample()
    report["status"] = "failed"
    report["gates"][0] |= {"passed": False, "limit": 0.001}
    filters = render(report, log)
    assert filters.index("❌ **max\\_drop**: limit 0.001, value 0.0045") < filters.index("| top-1")


def test_without_a_baseline() -> None:
    filters = render(*sample(baseline=False))
    assert "No baseline: not asked for" in filters
    assert "| 91.32 % | – |" in filters


def test_nothing_from_a_model_is_markup() -> None:
    report, log = sample()
    report["model"]["name"] = f"{HOSTILE} | [x](y) @all\n# big"
    report["layers"] = [x for x in report["layers"] if x["name"] == HOSTILE]
    report["layers"][0]["name"] = "a`b\n<img src=x>"
    report["data"]["inputs"] = {"in`put\n# x": {"sample_shape": [3, None]}}
    filters = render(report, log)
    assert "<script>" not in filters
    assert "&lt;script&gt;" in filters
    assert "\n# big" not in filters
    assert "`a'b <img src=x>`" in filters
    assert "Inputs, by sample: `in'put # x` (3 × ?)." in filters


@pytest.mark.parametrize(
    "report", [{}, {"pruned": {}, "layers": [{}]}, {"pruned": {"files": []}, "gates": []}]
)
def test_an_almost_empty_report_is_rendered(report: dict[str, Any]) -> None:
    assert "not measured completely" in render(report)


@pytest.mark.parametrize("metric", ["agreement", "r2_vs_original"])
def test_nearness_to_the_original_is_never_called_accuracy(metric: str) -> None:
    changes = {
        "metric": {"name": metric},
        "budget_not_met": "by a little",
        "notes": [],
        "gates": [],
    }
    report = report_of({**sample()[0], **changes})
    pages = (
        markdown.render(report),
        handoff_text.render(report),
        comparison_facts.headline(report),
    )
    for page in (*pages, *(card["label"] for card in html._cards(report))):
        assert "accura" not in page.lower()
        assert "top-1" not in page.lower()
    assert all(filters.METRICS[metric] in page.lower() for page in pages)


def test_the_share_of_equal_argmax_stands_beside_the_variance_explained() -> None:
    content = {**sample()[0], "metric": {"name": "r2_vs_original"}}
    for part, share in (("original", 1.0), ("pruned", 0.9876)):
        content[part]["accuracy"]["argmax_agreement"] = share
    report = report_of(content)
    assert "| equal arg-max | 100.00 % | 98.76 % | – |" in markdown.render(report)
    assert "| equal arg-max | 100.00 % | 98.76 % |" in handoff_text.render(report)
    assert "; equal arg-max 98.76 %" in html.render(report, ())
