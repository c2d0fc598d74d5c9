"""Assembling the report: the baseline with its curve and its gain."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ltp_pipeline.results.complete import complete
from ltp_pipeline.results.intervals import UNDEFINED
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.results.schema import BaselineResult, FileResult, NetworkResult, OriginalResult
from ltp_pipeline.results.schema import Report as ReportModel
from ltp_pipeline.results.schema_parts import AccuracyResult, CustomTaskInfo, LayerResult
from ltp_pipeline.settings.schema import Settings
from ltp_pipeline.stages.measure.network import MeasuredBaseline, MeasuredNetwork, MeasuredPoint
from ltp_pipeline.stages.report import assemble
from ltp_pipeline.stages.report.assemble import RunFindings

ELEMENTS = 1600
ERROR = Metric("MAE", "°C", higher_is_better=False, is_fraction=False)


def make_accuracy(value: float) -> AccuracyResult:
    return AccuracyResult(value=value, top1=value if value <= 1 else None, samples=100)


def measured(
    compression: float, value: float, folder: str = "", rounded: float | None = None
) -> MeasuredNetwork:
    """A network with a packed file, and one with rounded weights if their accuracy is given."""
    values = {"exact": value} | ({} if rounded is None else {"int8": rounded})
    files = [
        FileResult(
            path=f"{folder}model.packed.{storage}.onnx",
            encoding="packed",
            weight_storage=storage,
            sha256="0" * 64,
            nonzeros=round(ELEMENTS / compression),
            accuracy=make_accuracy(value),
        )
        for storage, value in values.items()
    ]
    scores = np.ones(1)
    return MeasuredNetwork(NetworkResult(files=tuple(files)), scores, {})


def make_findings(
    pruned: MeasuredNetwork,
    baseline: MeasuredBaseline | None,
    budget: float | None = None,
    settings: dict[str, Any] | None = None,
    task: Any = None,
    delivered: str = "ltp",
) -> RunFindings:
    """What a run found out, as far as networks are concerned."""
    context: Any = SimpleNamespace(settings=Settings.model_validate(settings or {}), task=task)
    nothing: Any = None
    return RunFindings(
        context=context,
        original=nothing,
        learned=nothing,
        selected=nothing,
        ltp=pruned,
        baseline=baseline,
        validation=assemble.ComparedNetworks({"ltp": 0.9}),
        delivered=delivered,
        weights=nothing,
        notes=(),
        budget_not_met=None,
        baseline_reason=None if baseline else "skipped",
        num_trainings=2,
        budget=budget,
    )


def make_report(
    pruned: MeasuredNetwork,
    baseline: MeasuredBaseline,
    budget: float | None = None,
    original: float = 0.97,
) -> ReportModel:
    """The completed report of a network with one layer, and a baseline."""
    first = baseline.points[0].measured
    counts = [network.result.files[0].nonzeros for network in (pruned, first)]
    layer = LayerResult(
        name="w", elements=ELEMENTS, nonzeros=counts[0], baseline_nonzeros=counts[1]
    )
    is_error = original > 1
    report = ReportModel(
        metric=ERROR if is_error else Metric(),
        custom_task=CustomTaskInfo(name="task.py") if is_error else None,
        original=OriginalResult(accuracy=make_accuracy(original)),
        pruned=pruned.result,
        baseline=assemble._build_baseline(make_findings(pruned, baseline, budget)),
        layers=(layer,),
    )
    return complete(report)


def complete_baseline(
    pruned: MeasuredNetwork,
    points: list[MeasuredNetwork],
    is_curve: bool = True,
    **options: Any,
) -> BaselineResult:
    listed = tuple(MeasuredPoint(point, 0.5) for point in points)
    result = make_report(pruned, MeasuredBaseline(listed, is_curve), **options).baseline
    assert result is not None
    return result


POINTS = [
    measured(16, 0.90, "baseline/"),
    measured(4, 0.98, "baseline/2/"),
    measured(8, 0.96, "baseline/3/"),
]


def test_build_baseline_curve_has_every_point_and_an_interpolated_gain() -> None:
    baseline = complete_baseline(measured(16, 0.97), POINTS)
    assert baseline.curve is not None
    assert [
        (p.compression, p.accuracy, p.nonzeros, p.validation_accuracy) for p in baseline.curve
    ] == [(16, 0.90, 100, 0.5), (4, 0.98, 400, 0.5), (8, 0.96, 200, 0.5)]
    folders = [point.path.rpartition("/")[0] for point in baseline.curve]
    assert folders == ["baseline", "baseline/2", "baseline/3"]
    assert baseline.compression_at_equal_accuracy == pytest.approx(32**0.5)
    assert baseline.gain == pytest.approx(16 / 32**0.5)
    assert (baseline.gain_bound, baseline.num_trainings, baseline.compression) == (None, 3, 16)


@pytest.mark.parametrize(
    ("budget", "value", "equal"),
    [
        (0.02, 0.96, 8.0),  # at 95 %, although LTP is better
        (0.02, 0.97, 8.0),
        (0.05, 0.97, 8.0),
        (0.005, 0.95, 8.0),  # LTP is outside the budget, so that its own accuracy counts
        (0.0, 0.97, 4.0),
    ],
)
def test_build_baseline_within_a_budget_the_sparsest_point_counts(
    budget: float, value: float, equal: float
) -> None:
    baseline = complete_baseline(measured(16, value), POINTS, budget=budget)
    assert (baseline.compression_at_equal_accuracy, baseline.gain, baseline.budget) == (
        equal,
        16 / equal,
        budget,
    )


def test_build_baseline_bound_has_a_reason() -> None:
    baseline = complete_baseline(measured(16, 0.99), POINTS)
    assert (baseline.compression_at_equal_accuracy, baseline.gain) == (None, 4.0)
    assert baseline.gain_bound == "at least"
    assert "4×" in baseline.reasons["compression_at_equal_accuracy"]
    assert "gain" not in baseline.reasons


def test_build_baseline_gain_compares_exact_files_and_accuracy_is_of_the_worst() -> None:
    pruned = measured(16, 0.97, rounded=0.5)
    baseline = complete_baseline(
        pruned, [measured(16, 0.90, "baseline/", rounded=0.4), *POINTS[1:]]
    )
    assert baseline.gain == pytest.approx(16 / 32**0.5)
    assert baseline.value == 0.4
    assert baseline.curve is not None
    assert baseline.curve[0].accuracy == 0.90


def test_build_baseline_one_point_has_no_curve_and_a_reason() -> None:
    baseline = complete_baseline(measured(16, 0.97), POINTS[:1], is_curve=False)
    unmeasured = (baseline.curve, baseline.gain, baseline.compression_at_equal_accuracy)
    assert unmeasured == (None, None, None)
    assert baseline.num_trainings == 1
    for key in ("curve", "gain", "compression_at_equal_accuracy"):
        assert "--baseline curve" in baseline.reasons[key]


def test_build_baseline_error_metric_is_worst_at_its_largest_value() -> None:
    pruned = measured(16, 2.5, rounded=3.0)
    first = measured(16, 4.0, "baseline/", rounded=3.5)
    points = [first, measured(4, 2.2, "2/"), measured(8, 2.8, "3/")]
    baseline = complete_baseline(pruned, points, original=2.0)
    assert (baseline.value, baseline.drop) == (4.0, 2.0)
    # 2.5 lies in the middle between 2.2 at 4× and 2.8 at 8×
    assert baseline.gain == pytest.approx(16 / 32**0.5)


def compare(interval: tuple[float, float] | None) -> Any:
    """The difference of two networks whose samples are not counted."""
    task: Any = SimpleNamespace(
        compute_drop_interval=lambda *_: interval, correct_samples=lambda _: None
    )
    baseline = MeasuredBaseline((MeasuredPoint(POINTS[0], 0.9),), False)
    findings = make_findings(measured(16, 0.97), baseline, task=task)
    return assemble._compare_with(findings, "global-magnitude")


def test_compare_networks_keeps_a_measured_interval() -> None:
    difference = compare((0.05, 0.1))
    assert (difference.interval, difference.paired_counts) == ((0.05, 0.1), None)
    assert difference.reasons.keys() == {"paired_counts"}


def test_compare_networks_undefined_interval_has_a_reason() -> None:
    assert compare(None).reasons["interval"] == UNDEFINED


@pytest.mark.parametrize(
    ("excludes_classifier", "method"), [(False, ""), (True, ", classifier excluded")]
)
@pytest.mark.parametrize("is_trained", [False, True])
def test_build_baseline_in_blocks_has_an_unstructured_point_or_a_reason(
    excludes_classifier: bool, method: str, is_trained: bool
) -> None:
    unstructured = MeasuredPoint(measured(16, 0.95, "baseline/single/"), 0.94)
    measured_baseline = MeasuredBaseline(
        (MeasuredPoint(POINTS[0], 0.9),),
        is_curve=False,
        excludes_classifier=excludes_classifier,
        in_blocks=True,
        unstructured=unstructured if is_trained else None,
    )
    baseline = make_report(measured(16, 0.97), measured_baseline).baseline
    assert baseline is not None
    assert baseline.method == f"global-magnitude, in blocks{method}"
    assert ("unstructured" in baseline.reasons) == (not is_trained)
    if not is_trained:
        assert baseline.unstructured is None
        return
    point = baseline.unstructured
    assert point is not None
    assert (point.accuracy, point.validation_accuracy, point.compression) == (0.95, 0.94, 16)


def test_build_baseline_without_blocks_has_no_unstructured_point() -> None:
    baseline = complete_baseline(measured(16, 0.97), POINTS[:1], is_curve=False)
    assert baseline.unstructured is None
    assert "unstructured" not in baseline.reasons


@pytest.mark.parametrize("key", ["target_macs", "target_bytes", "target_latency"])
def test_build_baseline_of_a_cost_budget_names_it_as_the_reason_for_no_gain(key: str) -> None:
    baseline = MeasuredBaseline((MeasuredPoint(measured(4, 0.95), 0.95),), is_curve=False)
    target = 2000.0 if key == "target_bytes" else 0.2
    findings = make_findings(POINTS[0], baseline, settings={"budget": {key: target}})
    result = assemble._build_baseline(findings)
    assert result is not None
    assert result.gain is None
    assert key in result.reasons["gain"]


def test_explain_uncounted_names_a_layer_without_uses() -> None:
    baseline = MeasuredBaseline(
        (MeasuredPoint(measured(4, 0.95, "baseline/"), 0.95),), is_curve=False
    )
    report = make_report(measured(4, 0.96), baseline)
    assert report.pruned.macs_left is None
    explained = assemble._explain_uncounted(report)
    for network in explained.networks:
        assert "'w' cannot be counted" in network.reasons["macs_left"]
    layers = (report.layers[0].replace(uses=3),)
    counted = complete(report.replace(layers=layers))
    assert counted.pruned.macs_left == pytest.approx(1 / 4)
    assert assemble._explain_uncounted(counted) == counted


def make_compared(delivered: str, interval: tuple[float, float] | None = (0.01, 0.05)) -> Any:
    """Findings of a run with both baselines, whose samples are not counted."""
    task: Any = SimpleNamespace(
        compute_drop_interval=lambda *_: interval, correct_samples=lambda _: None
    )
    gradual = MeasuredPoint(measured(16, 0.95, "gradual/"), 0.94)
    baseline = MeasuredBaseline((MeasuredPoint(POINTS[0], 0.9),), False, gradual=gradual)
    settings = {"baseline": {"mode": "gradual", "score": "lamp"}}
    findings = make_findings(measured(16, 0.97), baseline, None, settings, task, delivered)
    values = {"ltp": 0.9, "global-magnitude": 0.8, "gradual-magnitude": 0.94}
    return replace(findings, validation=assemble.ComparedNetworks(values))


@pytest.mark.parametrize(
    ("delivered", "others"),
    [
        ("ltp", {"global-magnitude", "gradual-magnitude"}),
        ("gradual-magnitude", {"global-magnitude", "ltp"}),
        ("global-magnitude", {"gradual-magnitude", "ltp"}),
    ],
)
def test_other_networks_are_all_but_the_delivered_one(delivered: str, others: set[str]) -> None:
    findings = make_compared(delivered)
    for method in ("gradual-magnitude", "ltp"):
        network = assemble._build_other(findings, method)
        assert (network is not None) == (method in others)
        if network is not None:
            assert network.base_method == method
            assert network.difference is not None
            assert network.difference.interval == (0.01, 0.05)
    assert (assemble._build_baseline(findings) is not None) == ("global-magnitude" in others)
    reasons = assemble._explain_missing_networks(findings)
    keys = {"ltp": "ltp", "gradual-magnitude": "gradual_baseline", "global-magnitude": "baseline"}
    assert reasons.keys() - {"difference"} == {keys[delivered]}


def test_networks_have_their_variants_and_their_metric_on_the_validation_split() -> None:
    findings = make_compared("ltp")
    gradual = assemble._build_other(findings, "gradual-magnitude")
    baseline = assemble._build_baseline(findings)
    assert gradual is not None
    assert baseline is not None
    assert (gradual.method, gradual.validation_accuracy, gradual.num_trainings) == (
        "gradual-magnitude, LAMP scores",
        0.94,
        1,
    )
    assert (baseline.method, baseline.validation_accuracy) == (
        "global-magnitude, LAMP scores",
        0.8,
    )
    learned = assemble._describe_network(findings, "ltp")
    assert (learned["method"], learned["num_trainings"]) == ("ltp", 2)


@pytest.mark.parametrize(
    ("mode", "reason"), [("gradual", "failed"), ("quick", "--baseline gradual")]
)
def test_missing_gradual_baseline_has_a_reason(mode: str, reason: str) -> None:
    baseline = MeasuredBaseline((MeasuredPoint(POINTS[0], 0.9),), False)
    findings = make_findings(POINTS[0], baseline, settings={"baseline": {"mode": mode}})
    assert reason in assemble._explain_missing_networks(findings)["gradual_baseline"]


def test_comparison_without_a_baseline_has_its_reason() -> None:
    comparison = assemble._explain_comparison(make_findings(POINTS[0], None))
    assert (comparison.better, comparison.reasons) == (None, {"better": "skipped"})
