"""LTP beside the baseline, in sentences."""

from typing import Any

import pytest

from ltp_pipeline.stages.handoff import text as handoff_text
from ltp_pipeline.stages.report import comparison_facts, html, markdown
from tests.support.sample_report import bounded, one_point, report_of, sample

NO_PICTURES = {"trail": [], "histograms": [], "scatter": None, "sizes": {}}
HANDED_OVER = "`ltp-pipeline handoff RUN --network baseline` hands it over."


@pytest.fixture
def report() -> dict[str, Any]:
    return sample()[0]


def sentences(report: dict[str, Any]) -> list[str]:
    return comparison_facts.sentences(report_of(report))


def behind(report: dict[str, Any], low: float, high: float) -> dict[str, Any]:
    """The same with a baseline that is half a point more accurate."""
    return report | {"difference": {"value": -0.005, "interval": [low, high]}}


def test_both_comparisons_are_told(report: dict[str, Any]) -> None:
    assert sentences(report) == [
        "At LTP's compression global magnitude has 90.41 %: LTP is 0.91 points ahead (0.35 to 1.47).",
        "At LTP's top-1 accuracy global magnitude reaches 4.43× (interpolated between 3.20× and 5.10×, which are "
        "far apart): "
        "LTP has 1.89 times fewer weights.",
    ]


def test_equal_accuracy_is_neither_ahead_nor_behind(report: dict[str, Any]) -> None:
    report["difference"] = {"value": 0.0, "interval": [-0.01, 0.01]}
    assert sentences(report)[0] == "At LTP's compression global magnitude has 90.41 %, as LTP has."


def test_beside_blocks_the_baseline_of_single_weights_is_told_in_every_rendering(
    report: dict[str, Any],
) -> None:
    report["baseline"] |= {
        "method": "global-magnitude, in blocks",
        "unstructured": {
            "path": "baseline/single/model.packed.onnx",
            "accuracy": 0.9101,
            "sha256": "f" * 64,
        },
    }
    told = sentences(report)
    assert told[0].startswith(
        "At LTP's compression global magnitude in blocks has 90.41 %: LTP is 0.91 points ahead"
    )
    assert told[1] == "Global magnitude of as many single weights has 91.01 %."
    content = report_of(one_point(report) | NO_PICTURES)
    page = html.render(content, [])
    for rendered in (
        markdown.render(content),
        handoff_text.render(content),
        page.split("</header>")[0],
    ):
        assert told[1] in rendered
    assert "baseline/single/model.packed.onnx" in page.split('id="files"')[1]


def test_at_a_measured_point_nothing_is_interpolated(report: dict[str, Any]) -> None:
    report["baseline"] |= {"compression_at_equal_accuracy": 3.2, "gain": 2.61}
    assert sentences(report)[-1] == (
        "At LTP's top-1 accuracy global magnitude reaches 3.20×: LTP has 2.61 times fewer weights."
    )


def test_they_stand_in_every_rendering(report: dict[str, Any]) -> None:
    told = "LTP has 1.89 times fewer weights."
    content = report_of(report | NO_PICTURES)
    header = html.render(content, []).split("</header>")[0]
    for rendered in (markdown.render(content), handoff_text.render(content), header):
        assert told in rendered


def test_without_a_baseline_nothing_is_told() -> None:
    assert sentences(sample(baseline=False)[0]) == []


def test_of_one_point_only_accuracy_is_told(report: dict[str, Any]) -> None:
    (told,) = sentences(one_point(report))
    assert told.startswith("At LTP's compression")


def test_a_bound_from_below_names_the_mildest_network(report: dict[str, Any]) -> None:
    told = sentences(bounded(report, "at least", 2.6134))[-1]
    assert told == (
        "No measured network of global magnitude, down to 3.20×, is as good: LTP has at least 2.61 times fewer weights."
    )


def test_a_bound_from_below_that_is_one_does_not_say_as_many(report: dict[str, Any]) -> None:
    told = sentences(bounded(report, "at least", 1.0))[-1]
    assert told.endswith(": LTP has fewer weights.")


def test_a_bound_from_above_names_the_sparsest_network_and_comes_first(
    report: dict[str, Any],
) -> None:
    first, *_, last = sentences(bounded(report, "at most", 0.5))
    assert first.startswith(
        "Global magnitude pruning wins here: it needs fewer weights at the same top-1 accuracy"
    )
    assert last == (
        "Global magnitude is still as good at 8.36×, the sparsest that was measured: "
        "LTP has at least 2 times as many weights."
    )
    assert sentences(bounded(report, "at most", 1.0))[-1].endswith("LTP has no fewer weights.")


def test_a_baseline_that_is_more_accurate_is_the_first_thing_said(report: dict[str, Any]) -> None:
    sure = f"Global magnitude pruning wins here: it is better at the same compression, beyond chance. {HANDED_OVER}"
    assert sentences(behind(report, -0.008, -0.002))[0] == sure
    assert comparison_facts.headline(report_of(behind(report, -0.008, -0.002))).startswith(sure)
    unsure = sentences(behind(report, -0.011, 0.001))[0]
    assert unsure.startswith("Global magnitude pruning is ahead here: it is better")
    assert f"which may be chance. {HANDED_OVER}" in unsure


def test_a_baseline_that_wins_in_both_ways_is_said_to(report: dict[str, Any]) -> None:
    report["baseline"]["gain"] = 0.8
    first = sentences(behind(report, -0.008, -0.002))[0]
    assert first.startswith(
        "Global magnitude pruning wins here: it is better at the same compression"
    )
    assert "And it needs fewer weights at the same top-1 accuracy" in first


def test_a_gain_below_one_is_said_first_and_in_weights(report: dict[str, Any]) -> None:
    report["baseline"]["gain"] = 0.8
    first, *_, last = sentences(report)
    assert first.startswith("Global magnitude pruning wins here")
    assert last.endswith("LTP has 1.25 times as many weights.")


def test_within_a_budget_the_search_is_told_beside_the_trainings(report: dict[str, Any]) -> None:
    report["baseline"] |= {"budget": 0.01, "compression_at_equal_accuracy": 5.1, "gain": 1.64}
    report["pruned"]["num_trainings"] = 3
    assert sentences(report)[-1] == (
        "Within the same budget the sparsest measured network of global magnitude has 5.10×: LTP has 1.64 times fewer "
        "weights. LTP's network was found by fine-tuning 3 networks of its trail, the baseline's by 3 trainings."
    )


def test_outside_the_budget_the_two_are_compared_at_ltps_accuracy(report: dict[str, Any]) -> None:
    report["baseline"] |= {"budget": 0.001, "compression_at_equal_accuracy": 3.2, "gain": 2.61}
    assert sentences(report)[-1].startswith("At LTP's top-1 accuracy the sparsest measured network")


def test_a_classifier_that_is_spared_is_told(report: dict[str, Any]) -> None:
    report["baseline"]["method"] = "global-magnitude, classifier excluded"
    assert "global magnitude with its classifier excluded has 90.41 %" in sentences(report)[0]
    report["baseline"]["method"] = "global-magnitude, in blocks, classifier excluded"
    assert (
        "global magnitude in blocks with its classifier excluded has 90.41 %"
        in sentences(report)[0]
    )


@pytest.mark.parametrize("missing", ["gain", "curve", "accuracy", "compression_at_equal_accuracy"])
def test_a_report_that_lacks_a_value_is_rendered(report: dict[str, Any], missing: str) -> None:
    report["baseline"][missing] = None
    assert comparison_facts.headline(report_of(report))
