"""The pruned network next to the baseline, as facts."""

from typing import Any

import pytest

from ltp_pipeline.stages.report.comparison_facts import (
    BaselineComparison,
    compare_with_baseline,
    group_reasons,
    has_few_layer_weights,
)
from tests.support.sample_report import one_point, report_of, sample, with_bounded_gain


@pytest.fixture
def report() -> dict[str, Any]:
    return sample()[0]


def compare(report: dict[str, Any]) -> BaselineComparison:
    comparison = compare_with_baseline(report_of(report))
    assert comparison is not None
    return comparison


def test_compare_with_baseline_curve_gives_both_comparisons(report: dict[str, Any]) -> None:
    comparison = compare(report)
    assert comparison.difference == pytest.approx(0.0091)
    assert comparison.interval == pytest.approx((0.0035, 0.0147), abs=5e-5)
    assert comparison.gain == pytest.approx(1.89, abs=5e-3)
    assert comparison.baseline_compression == pytest.approx(4.43, abs=5e-3)
    assert comparison.interpolated_between == pytest.approx((3.2, 5.1), abs=1e-3)
    assert comparison.is_interpolation_wide
    assert not comparison.may_be_chance
    assert not comparison.is_baseline_better
    assert not comparison.is_baseline_smaller


def test_compare_with_baseline_no_baseline_gives_none() -> None:
    assert compare_with_baseline(report_of(sample(baseline=False)[0])) is None


def test_compare_with_baseline_unmeasured_baseline_gives_none(report: dict[str, Any]) -> None:
    report["baseline"]["files"][0]["accuracy"] = None
    assert compare_with_baseline(report_of(report)) is None


def test_compare_with_baseline_one_point_gives_no_gain(report: dict[str, Any]) -> None:
    comparison = compare(one_point(report))
    assert comparison.difference == pytest.approx(0.0091)
    assert comparison.gain is None
    assert comparison.baseline_compression is None


def test_compare_with_baseline_measured_point_is_not_interpolated(report: dict[str, Any]) -> None:
    report["baseline"] |= {"compression_at_equal_accuracy": 3.2, "gain": 2.61}
    comparison = compare(report)
    assert comparison.baseline_compression == 3.2
    assert comparison.interpolated_between == ()


@pytest.mark.parametrize(("bound", "expected"), [("at least", 3.2), ("at most", 8.36)])
def test_compare_with_baseline_bound_names_the_outermost_point(
    report: dict[str, Any], bound: str, expected: float
) -> None:
    comparison = compare(with_bounded_gain(report, bound, 2.0))
    assert comparison.bound == bound
    assert comparison.baseline_compression == pytest.approx(expected, abs=5e-3)


@pytest.mark.parametrize(
    ("interval", "may_be_chance"),
    [((-0.008, -0.002), False), ((-0.011, 0.001), True), (None, False)],
)
def test_compare_with_baseline_negative_difference_is_a_better_baseline(
    report: dict[str, Any], interval: tuple[float, float] | None, may_be_chance: bool
) -> None:
    comparison = compare(report | {"difference": {"value": -0.005, "interval": interval}})
    assert comparison.is_baseline_better
    assert comparison.may_be_chance == may_be_chance


@pytest.mark.parametrize(
    ("bound", "gain", "is_smaller"),
    [
        (None, 0.8, True),
        (None, 0.9999, False),
        (None, 1.2, False),
        ("at most", 0.5, True),
        ("at least", 0.5, False),
    ],
)
def test_is_baseline_smaller_only_below_one(
    report: dict[str, Any], bound: str | None, gain: float, is_smaller: bool
) -> None:
    report["baseline"] |= {"gain": gain, "gain_bound": bound}
    assert compare(report).is_baseline_smaller == is_smaller


@pytest.mark.parametrize(("budget", "is_within"), [(0.01, True), (0.001, False)])
def test_is_within_budget_compares_the_drop(
    report: dict[str, Any], budget: float, is_within: bool
) -> None:
    report["baseline"]["budget"] = budget
    comparison = compare(report)
    assert comparison.has_budget
    assert comparison.is_within_budget == is_within
    assert comparison.interpolated_between == ()


@pytest.mark.parametrize(
    ("layer_elements", "float_elements", "expected"),
    [(192, 30_144, True), (9, 10, False), (None, 10, False), (9, None, False), (0, 0, False)],
)
def test_has_few_layer_weights_below_nine_tenths(
    layer_elements: int | None, float_elements: int | None, expected: bool
) -> None:
    model = {"layer_elements": layer_elements, "float_elements": float_elements}
    assert has_few_layer_weights(report_of({"model": model})) == expected


def test_group_reasons_joins_equal_reasons(report: dict[str, Any]) -> None:
    for part in ("original", "pruned"):
        report[part]["reasons"] = {"accuracy.top5": "five classes"}
    report["baseline"]["reasons"] = {"curve": "one point", "gain": "one point"}
    assert group_reasons(report_of(report)) == [
        ("accuracy.top5", "original, LTP", "five classes"),
        ("curve, gain", "global magnitude", "one point"),
    ]
