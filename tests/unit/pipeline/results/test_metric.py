"""The metric: the same arithmetic in both directions, words in its unit, and the same wherever it is used."""

import copy
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltp_pipeline.gates.evaluation import GATES, evaluate_gates, make_gate_settings
from ltp_pipeline.results.gain import TradeoffPoint, compute_gain, find_compared_value
from ltp_pipeline.results.metric import BUILT_IN_METRICS, ExtraMetric, Metric
from ltp_pipeline.results.schema_parts import LearnedEntry
from ltp_pipeline.stages import select_entry
from ltp_pipeline.stages.baseline_search import next_compression
from ltp_pipeline.stages.learn_thresholds.trail import ThresholdLearningResult
from ltp_pipeline.system.text import format_number
from tests.support.sample_report import in_metric, report_of, sample

UP, DOWN = (
    Metric("score", "dB", is_fraction=False),
    Metric("error", "dB", higher_is_better=False, is_fraction=False),
)
TOP1, ERROR_RATE = Metric(), Metric("error rate", higher_is_better=False)
VALUES = st.floats(-1e6, 1e6)
COMPRESSIONS = st.floats(1.0, 1000.0)
BUDGETS = st.none() | st.floats(0, 1e6)
POINTS = st.lists(st.builds(TradeoffPoint, COMPRESSIONS, VALUES), min_size=1, max_size=4)


def mirrored(points: list[TradeoffPoint]) -> list[TradeoffPoint]:
    return [TradeoffPoint(p.compression, -p.value) for p in points]


@given(VALUES, VALUES)
def test_metric_drop_is_positive_if_worse(before: float, after: float) -> None:
    assert UP.compute_drop(before, after) == DOWN.compute_drop(-before, -after) == before - after


@given(VALUES, st.floats(0, 1e6))
def test_metric_worst_value_drops_by_the_budget(original: float, budget: float) -> None:
    for metric in (UP, DOWN):
        least = metric.find_worst_allowed(original, budget)
        assert metric.compute_drop(original, least) == pytest.approx(budget, abs=1e-9)
        assert metric.is_no_worse(original, least)
        assert not metric.is_no_worse(metric.find_worst_allowed(least, 1.0), least)


@pytest.mark.parametrize(("metric", "best", "worst"), [(UP, 3, 1), (DOWN, 1, 3)])
def test_metric_best_and_worst_follow_the_direction(
    metric: Metric, best: float, worst: float
) -> None:
    assert metric.find_best([2, 3, 1], float) == best
    assert metric.find_worst([2, 3, 1], float) == worst


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_metric_rounding_follows_the_size_of_values(scale: float) -> None:
    assert not UP.is_no_worse(0.9999 * scale, scale)
    assert UP.is_no_worse((1 - 1e-12) * scale, scale)


@pytest.mark.parametrize(
    ("metric", "budget"),
    [(TOP1, 0.01), (ERROR_RATE, 0.01), (UP, 0.4), (DOWN, 0.4), (Metric("R²"), 0.01)],
)
def test_metric_default_budget_is_one_percent(metric: Metric, budget: float) -> None:
    assert metric.default_budget(-40.0) == pytest.approx(budget)


@pytest.mark.parametrize(
    ("metric", "value", "drop", "spread"),
    [
        (TOP1, "231.04 %", "231.04 percentage points", "−0.04 to 231.04"),
        (ERROR_RATE, "231.04 %", "231.04 percentage points", "−0.04 to 231.04"),
        (Metric("MAE", "°C", False, is_fraction=False), "2.31 °C", "2.31 °C", "−0.0004 to 2.31"),
        (Metric("perplexity", None, False, is_fraction=False), "2.31", "2.31", "−0.0004 to 2.31"),
    ],
)
def test_metric_values_and_drops_have_their_unit(
    metric: Metric, value: str, drop: str, spread: str
) -> None:
    assert metric.format_value(2.3104) == value
    assert metric.format_drop(2.3104) == drop
    assert metric.format_interval((-0.0004, 2.3104)) == spread


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2.31042, "2.31"),
        (2.5868, "2.587"),
        (-2.5, "−2.5"),
        (-0.0, "0"),
        (12345.6, "12346"),
        (123456789.0, "123456789"),
        (0.0000123456, "1.235e−05"),
        (1e20, "1e+20"),
    ],
)
def test_metric_numbers_have_four_digits(value: float, text: str) -> None:
    assert format_number(value) == text


def test_metric_description_has_name_unit_and_direction() -> None:
    assert (TOP1.label, TOP1.described) == ("top-1", "top-1")
    assert (DOWN.label, DOWN.described) == (
        "error, lower is better",
        "error in dB, lower is better",
    )
    assert (UP.described, ERROR_RATE.described) == ("score in dB", "error rate, lower is better")


def test_metric_extra_value_has_its_own_unit() -> None:
    assert ExtraMetric("pixel accuracy", 0.9132).text == "91.32 %"
    assert (
        ExtraMetric("error", 1.5, "mm", higher_is_better=False, is_fraction=False).text == "1.5 mm"
    )


@given(COMPRESSIONS, VALUES, VALUES, BUDGETS, POINTS)
def test_mirrored_values_give_the_same_gain(
    compression, accuracy, original, budget, points
) -> None:
    least = find_compared_value(UP, accuracy, original, budget)
    mirrored_least = find_compared_value(DOWN, -accuracy, -original, budget)
    actual = compute_gain(UP, compression, least, points, budget is None)
    turned = compute_gain(DOWN, compression, mirrored_least, mirrored(points), budget is None)
    assert (turned.value, turned.bound, turned.reason) == (
        actual.value,
        actual.bound,
        actual.reason,
    )
    assert turned.compression_at_equal_accuracy == actual.compression_at_equal_accuracy
    assert mirrored(list(turned.ends)) == list(actual.ends)


@given(POINTS, VALUES, VALUES)
def test_mirrored_values_have_the_same_point_measured_next(points, original, target) -> None:
    actual = next_compression(UP, points, TradeoffPoint(1.0, original), target, 900.0)
    assert (
        next_compression(DOWN, mirrored(points), TradeoffPoint(1.0, -original), -target, 900.0)
        == actual
    )


@given(st.lists(st.tuples(COMPRESSIONS, VALUES, VALUES), min_size=1, max_size=6), VALUES)
def test_mirrored_values_select_the_same_entry(networks, least) -> None:
    assert _selected(UP, networks, least, 1) == _selected(DOWN, networks, -least, -1)


def _selected(
    metric: Metric, networks: list[tuple[float, float, float]], least: float, sign: int
) -> Any:
    """What is selected of networks with a compression and the metric's value before and after fine-tuning."""
    trail = tuple(
        LearnedEntry(entry=i, epoch=i, compression=c, accuracy=sign * before)
        for i, (c, before, _) in enumerate(networks)
    )
    tuned = {i: sign * after for i, (_, _, after) in enumerate(networks)}
    context: Any = SimpleNamespace(
        task=SimpleNamespace(metric=metric),
        data=SimpleNamespace(val=None),
        run_directory=SimpleNamespace(progress=SimpleNamespace(say=lambda _: None)),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            select_entry, "finish_entry", lambda _, entry: SimpleNamespace(state=entry.entry)
        )
        patch.setattr(select_entry, "evaluate_metric", lambda _, state, __: tuned[state])
        selected, _ = select_entry.run(context, ThresholdLearningResult(trail), least)
    return (
        selected.entry.entry,
        selected.num_trainings,
        selected.budget_not_met is None,
        select_entry.pareto_entries(trail, metric),
    )


@given(st.floats(0.5, 1.5), st.floats(-0.05, 0.05), st.none() | st.floats(0.5, 0.99))
def test_mirrored_values_give_the_same_verdicts(least, drop, confidence) -> None:
    limits = {
        "max_drop": drop,
        "beat_baseline": True,
        "baseline_margin": abs(drop),
        "min_gain": 1.2,
        "confidence": confidence,
    }
    upright = evaluate_gates(MIRRORS[0], make_gate_settings({**limits, "min_accuracy": least}))
    turned = evaluate_gates(MIRRORS[1], make_gate_settings({**limits, "min_accuracy": -least}))
    assert [v.passed for v in turned] == [v.passed for v in upright]
    assert [v.value for v in turned[1:]] == [v.value for v in upright[1:]]
    assert {v.name for v in upright} <= GATES.keys()


def _mirrors() -> list[Any]:
    reports = []
    for metric, sign in ((UP, 1), (DOWN, -1)):
        content = in_metric(copy.deepcopy(sample()[0]), lambda value, sign=sign: sign * value)
        reports.append(report_of(content | {"metric": vars(metric)}))
    return reports


MIRRORS = _mirrors()


def test_inferred_metrics_are_fractions_and_higher_is_better() -> None:
    from ltp_pipeline.tasks import (
        classification,
        distillation,
        multilabel,
        regression,
        segmentation,
    )

    actual = (
        classification.TOP1,
        distillation.AGREEMENT,
        distillation.R2_VS_ORIGINAL,
        regression.RegressionTask.metric,
        segmentation.SegmentationTask.metric,
        multilabel.MultilabelTask.metric,
    )
    assert list(actual) == [Metric(name) for name in BUILT_IN_METRICS]
