"""Numbers of a report that follow from others are computed, and other values of them are refused."""

import contextlib
import copy
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

import ltp_pipeline
from ltp_pipeline.errors import InputError
from ltp_pipeline.gates.evaluation import evaluate_gates, make_gate_settings
from ltp_pipeline.gates.evidence import check_gate_results, read_report
from ltp_pipeline.results.complete import (
    GATED_KEYS,
    UNSUPPORTED,
    complete,
    complete_leads,
    drop_unsupported_values,
)
from ltp_pipeline.results.consistency import ContradictionError, is_same
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.results.read_write import check_consistency, to_json
from ltp_pipeline.results.schema import NetworkComparison, ValidationLead
from ltp_pipeline.results.values import PairedCounts
from ltp_pipeline.system.files import write_json
from tests.support.finished import SMALL
from tests.support.sample_report import in_celsius, one_point, report_of, sample

Edit = Callable[[dict[str, Any]], object]


def test_consistent_reports_are_accepted() -> None:
    for content in (
        sample()[0],
        sample(baseline=False)[0],
        one_point(sample()[0]),
        in_celsius(),
        {},
    ):
        check_consistency(report_of(content), "it")


def test_complete_report_has_no_unsupported_value(report: dict[str, Any]) -> None:
    content = report_of(report)
    assert drop_unsupported_values(content) == content


def at(report: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        report = report[key]
    return report


def item(*path: Any, value: Any) -> Edit:
    def change(report: dict[str, Any]) -> None:
        at(report, path[:-1])[path[-1]] = value

    return change


def samples_of_all(report: dict[str, Any]) -> None:
    for part in (report["original"], report["pruned"], report["baseline"]):
        part["accuracy"]["samples"] = 10


def accuracy(*path: Any) -> Edit:
    """The metric's value and top-1 alike."""
    return lambda report: at(report, path)["accuracy"].update(value=0.92, top1=0.92)


def fewer_floats(report: dict[str, Any]) -> None:
    """Fewer nonzeros in the model than in its kernels."""
    left = report["pruned"]["nonzeros"] - 1
    rate = report["model"]["float_elements"] / left
    report["pruned"] |= {"model_nonzeros": left, "model_compression": rate}


def twice_as_many_samples(report: dict[str, Any]) -> None:
    counts = report["pruned"]["files"][0]["paired_counts"]
    counts |= {key: 2 * count for key, count in counts.items()}


def no_formats(report: dict[str, Any]) -> None:
    del report["settings"]["export"]
    report["gates"][0]["value"] = 0.0


# what is edited, and the key that the message names
EDITS: dict[str, tuple[Edit, str]] = {
    "metric of a task that is not there": (item("metric", "name", value="error"), "metric"),
    "a file that was asked for left out": (
        lambda report: report["pruned"]["files"].pop(),
        "settings.export.formats",
    ),
    "verdicts without limits": (
        lambda report: report["settings"].pop("gates"),
        "the number of gates",
    ),
    "verdicts of no known files": (no_formats, "gates.0"),
    "drop": (item("pruned", "drop", value=0.0), "pruned.drop"),
    "drop, by little": (item("pruned", "drop", value=0.0045 + 1e-8), "pruned.drop"),
    "drop of the baseline": (item("baseline", "drop", value=0.0), "baseline.drop"),
    "compression": (item("pruned", "compression", value=100.0), "pruned.compression"),
    "sparsity": (item("pruned", "sparsity", value=0.99), "pruned.sparsity"),
    "nonzeros": (item("pruned", "nonzeros", value=5), "pruned.nonzeros"),
    "nonzeros of a file": (item("pruned", "files", 0, "nonzeros", value=10**7), "pruned.nonzeros"),
    "multiply-adds left": (item("pruned", "macs_left", value=0.01), "pruned.macs_left"),
    "multiply-adds left of the baseline": (
        item("baseline", "macs_left", value=0.5),
        "baseline.macs_left",
    ),
    "multiply-adds": (item("model", "macs", value=5), "model.macs"),
    "uses of a layer": (item("layers", 1, "uses", value=1), "model.macs"),
    "model compression": (
        item("pruned", "model_compression", value=100.0),
        "pruned.model_compression",
    ),
    "all nonzeros": (
        item("pruned", "model_nonzeros", value=5),
        "model_nonzeros must be at least nonzeros, ",
    ),
    "float elements": (
        item("model", "float_elements", value=5),
        "model: float_elements must be at least",
    ),
    "kernel elements": (item("model", "layer_elements", value=5), "model.layer_elements"),
    "layers": (item("model", "num_layers", value=5), "model.num_layers"),
    "elements of a layer": (item("layers", 1, "elements", value=10**6), "layers.1.elements"),
    "more nonzeros than elements": (
        item("layers", 1, "nonzeros", value=10**6),
        "got 1000000",
    ),
    "nonzeros of a layer": (item("layers", 1, "nonzeros", value=1), "pruned.nonzeros"),
    "nonzeros of the baseline": (
        item("layers", 1, "baseline_nonzeros", value=1),
        "baseline.nonzeros",
    ),
    "a layer twice": (
        lambda r: r["layers"].append(r["layers"][0]),
        "'stem.conv.weight' occurs 2 times in layers",
    ),
    "a layer that is no longer prunable": (
        item("layers", 1, "prunable", value=False),
        "layers.1.prunable",
    ),
    "accuracy": (item("pruned", "accuracy", "value", value=0.92), "pruned.accuracy"),
    "accuracy of a file": (
        item("pruned", "files", 0, "accuracy", "value", value=0.92),
        "pruned.files.0",
    ),
    "accuracy of the original": (
        item("original", "accuracy", "value", value=0.9),
        "original.accuracy",
    ),
    "top1": (item("original", "accuracy", "top1", value=0.9), "original.accuracy.value"),
    "top5 below top1": (
        item("original", "accuracy", "top5", value=0.5),
        "original.accuracy: top5 must be at least top1",
    ),
    "samples": (samples_of_all, "original.accuracy.samples"),
    "the test split": (item("data", "splits", "test", value=10**6), "accuracy.samples"),
    "paired_counts": (
        item("pruned", "files", 0, "paired_counts", "only_first_correct", value=0),
        "pruned.files.0",
    ),
    "interval": (item("pruned", "drop_interval", value=[0.004, 0.005]), "pruned.drop_interval"),
    "difference": (item("difference", "value", value=0.5), "difference.value"),
    "interval of the difference": (
        item("difference", "interval", value=[0.009, 0.0092]),
        "difference.interval",
    ),
    "outcomes of the difference": (
        item("difference", "paired_counts", "only_second_correct", value=0),
        "difference.paired_counts",
    ),
    "ratio": (
        item("pruned", "files", 0, "latency", 0, "ratio", value=0.1),
        "pruned.files.0.latency.0.ratio",
    ),
    "milliseconds": (
        item("pruned", "files", 0, "latency", 0, "ms", value=0.1),
        "pruned.files.0.latency.0.ratio",
    ),
    "bytes": (item("pruned", "files", 1, "bytes", value=10), "sizes.packed"),
    "bytes of the original": (item("original", "bytes", value=10), "sizes.original"),
    "bound": (item("sizes", "raw_values_bound", value=1), "sizes.raw_values_bound"),
    "quantisation": (
        item("pruned", "files", 0, "quantization", value={}),
        "pruned.files.0: quantization",
    ),
    "gain": (item("baseline", "gain", value=5.0), "baseline.gain"),
    "bound of the gain": (item("baseline", "gain_bound", value="at least"), "baseline.gain"),
    "budget": (item("baseline", "budget", value=0.02), "baseline.compression_at_equal_accuracy"),
    "a point's accuracy": (
        item("baseline", "curve", 2, "accuracy", value=0.5),
        "baseline.compression_at_equal_accuracy",
    ),
    "a point's compression": (
        item("baseline", "curve", 2, "compression", value=9.0),
        "baseline.curve.2",
    ),
    "the first point's hash": (
        item("baseline", "curve", 0, "sha256", value="b" * 64),
        "baseline.curve.0.sha256",
    ),
    "num_trainings": (item("baseline", "num_trainings", value=30), "baseline.num_trainings"),
    "status": (item("status", value="failed"), "status"),
    "no gates": (lambda r: r.update(gates=[], status="no-gates"), "the number of gates"),
    "a gate's value": (item("gates", 0, "value", value=0.0), "gates.0"),
    "a gate's limit": (item("gates", 0, "limit", value=0.5), "gates.0"),
    "a limit": (item("settings", "gates", "max_drop", value=0.5), "gates.0"),
    "direction of the metric": (item("metric", "higher_is_better", value=False), "metric"),
    "the same file twice": (
        lambda r: r["pruned"]["files"].append(r["pruned"]["files"][0]),
        "'model.sparse.onnx' occurs 2 times in files",
    ),
    "two chosen entries": (
        item("trail", 0, "selected", value=True),
        "occurs 2 times in trail.selected",
    ),
    "bins of a histogram": (
        item("histograms", 0, "before", value=[1]),
        "histograms.0: before and after",
    ),
    "points of the scatter": (item("scatter", "after", value=[1.0]), "scatter: before and after"),
    "accuracy of a network": (accuracy("pruned"), "pruned.accuracy"),
    "accuracy of a file, top1 too": (
        accuracy("pruned", "files", 0),
        "pruned.files.0.accuracy.value",
    ),
    "accuracy of the original, top1 too": (accuracy("original"), "original.accuracy.value"),
    "fewer nonzeros than in kernels": (fewer_floats, "pruned: model_nonzeros"),
    "twice as many samples": (twice_as_many_samples, "pruned.files.0.accuracy.samples"),
    "the first point's accuracy": (
        item("baseline", "curve", 0, "accuracy", value=0.9),
        "baseline.curve.0.accuracy",
    ),
    "seed": (item("environment", "seed", value=5), "environment.seed"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_reading_a_contradiction_names_the_key_and_both_values(
    tmp_path: Path, report: dict[str, Any], edit: str
) -> None:
    change, key = EDITS[edit]
    change(report)
    write_json(tmp_path / "report.json", report)
    with pytest.raises(InputError) as caught:
        read_report(tmp_path / "report.json")
    assert key in caught.value.message
    if isinstance(caught.value, ContradictionError):
        assert str(caught.value.stated)[:20] in caught.value.message
        assert str(caught.value.computed)[:20] in caught.value.message
    assert len(caught.value.message) < 600


def leaves_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves_of(item, (*path, key))
    else:
        yield path, value


def test_complete_restores_every_number_that_it_computes(report: dict[str, Any]) -> None:
    """Values that follow from others are cleared, and come back as they were."""
    cleared = copy.deepcopy(report)
    computed = [("pruned", key) for key in GATED_KEYS]
    computed += [("baseline", key) for key in (*GATED_KEYS, "gain", "num_trainings")]
    computed += [("baseline", "compression_at_equal_accuracy"), ("pruned", "nonzeros")]
    computed += [("difference", "value"), ("difference", "interval"), ("environment", "seed")]
    computed += [("model", "num_layers"), ("model", "layer_elements")]
    computed += [("baseline", "curve", 2, "compression"), ("baseline", "curve", 0, "accuracy")]
    computed += [("pruned", "files", 0, "latency", 0, "ratio")]
    for path in computed:
        at(cleared, path[:-1])[path[-1]] = None
    cleared["sizes"] = {}
    restored = dict(leaves_of(to_json(complete(report_of(cleared)))))
    for path, value in leaves_of(to_json(report_of(report))):
        assert is_same(restored[path], value), path


def test_original_relative_metric_must_be_perfect(report: dict[str, Any]) -> None:
    content = {"metric": {"name": "agreement"}, "original": {"accuracy": {"value": 0.9}}}
    with pytest.raises(ContradictionError) as caught:
        check_consistency(report_of(content), "it")
    assert (caught.value.key, caught.value.computed) == ("original.accuracy.value", 1.0)


@pytest.mark.parametrize("graph", ["original", "deploy", "int8"])
@pytest.mark.parametrize("quantization", [None, {}])
def test_quantization_of_a_file_is_there_only_for_an_int8_graph(
    report: dict[str, Any], graph: str, quantization: dict[str, Any] | None
) -> None:
    report["pruned"]["files"][0] |= {"graph": graph, "quantization": quantization}
    report["settings"]["export"]["formats"] = []
    is_valid = (graph == "int8") == (quantization is not None)
    with contextlib.nullcontext() if is_valid else pytest.raises(ValidationError):
        report_of(report)


def test_gate_results_follow_the_requested_files(report: dict[str, Any]) -> None:
    report["pruned"]["files"][0]["latency"][0] |= {"ms": 3.0, "original_ms": 1.0, "ratio": 3.0}
    slowest = report["pruned"]["files"][1]["latency"][0]["ratio"]
    report["gates"] = [
        {"name": "max_latency_ratio", "limit": 1.1, "value": slowest, "passed": True}
    ]
    report["settings"] |= {"gates": {"max_latency_ratio": 1.1}, "export": {"formats": ["packed"]}}
    check_gate_results(report_of(report), "it")
    report["settings"]["export"]["formats"] = ["sparse", "packed"]
    with pytest.raises(ContradictionError) as caught:
        check_gate_results(report_of(report), "it")
    assert caught.value.key == "gates.0"


def keys_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every key of the report; of lists, those of the first two items."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value[:2])
        if isinstance(value, list)
        else ()
    )
    for key, item in items:
        yield (*path, key)
        yield from keys_of(item, (*path, key))


EVERY_GATE = {
    "min_accuracy": 0.9,
    "max_drop": 0.5,
    "min_sparsity": 0.5,
    "min_compression": 2,
    "min_gain": 1,
}
EVERY_GATE |= {
    "min_model_compression": 2,
    "max_macs": 0.5,
    "beat_baseline": True,
    "max_bytes": 10**9,
    "max_latency_ratio": 9,
}


@pytest.mark.parametrize("null", [False, True])
def test_report_without_one_key_is_completed(null: bool) -> None:
    report = sample(shapes=SMALL)[0]
    report |= {"scatter": None, "histograms": [], "trail": report["trail"][:2]}
    limits = make_gate_settings({**EVERY_GATE, "min_layer_density": 0.0, "confidence": 0.9})
    for path in list(keys_of(report)):
        edited = copy.deepcopy(report)
        if null:
            at(edited, path[:-1])[path[-1]] = None
        else:
            del at(edited, path[:-1])[path[-1]]
        try:
            completed = report_of(edited)
        except ValidationError:
            continue
        with contextlib.suppress(InputError):
            check_consistency(completed, "it")
            evaluate_gates(drop_unsupported_values(completed), limits)


def without(*path: Any) -> Edit:
    def change(report: dict[str, Any]) -> None:
        del at(report, path[:-1])[path[-1]]

    return change


def no_outcomes(report: dict[str, Any]) -> None:
    for file in report["pruned"]["files"]:
        del file["paired_counts"]


@pytest.mark.parametrize(
    ("edit", "limits"),
    [
        (without("layers"), {"min_compression": 5}),
        (without("layers"), {"min_sparsity": 0.5}),
        (without("layers", 2, "nonzeros"), {"min_sparsity": 0.5}),
        (without("pruned", "model_nonzeros"), {"min_model_compression": 2}),
        (without("layers", 2, "uses"), {"max_macs": 0.5}),
        (without("layers", 2, "nonzeros"), {"max_macs": 0.5}),
        (without("layers"), {"max_macs": 0.5}),
        (without("original"), {"max_drop": 0.01}),
        (without("pruned", "files"), {"min_accuracy": 0.5}),
        (without("pruned", "files", 0, "accuracy"), {"min_accuracy": 0.5}),
        (no_outcomes, {"max_drop": 0.05, "confidence": 0.9}),
        (without("difference", "paired_counts"), {"beat_baseline": True, "confidence": 0.9}),
        (without("pruned", "files", 0, "latency", 0, "ms"), {"max_latency_ratio": 5}),
    ],
)
def test_unsupported_value_is_not_checked(
    report: dict[str, Any], edit: Edit, limits: dict[str, Any]
) -> None:
    assert all(
        v.passed
        for v in evaluate_gates(
            drop_unsupported_values(report_of(report)), make_gate_settings(limits)
        )
    )
    edit(report)
    assert not all(
        v.passed for v in ltp_pipeline.gate(report_of(report), report_only=True, **limits)
    )


def test_unsupported_value_has_a_reason(report: dict[str, Any]) -> None:
    del report["layers"]
    (verdict,) = ltp_pipeline.gate(report_of(report), report_only=True, min_compression=5)
    assert verdict.detail.startswith(f"not measured: {UNSUPPORTED}")


def test_interval_with_a_reason_for_missing_counts_is_accepted(
    report: dict[str, Any],
) -> None:
    no_outcomes(report)
    for file in report["pruned"]["files"]:
        file["reasons"] = {"paired_counts": "samples are right in parts"}
    check_consistency(report_of(report), "it")
    assert drop_unsupported_values(report_of(report)).pruned.drop_interval is not None
    report["pruned"]["drop_interval"] = [0.01, 0.02]  # without the drop itself
    with pytest.raises(InputError, match="drop_interval"):
        check_consistency(report_of(report), "it")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max_drop", 5),
        ("max_drop", "0.01"),
        ("max_drop", True),
        ("min_accuracy", 91),
        ("max_drpo", 0.01),
        ("confidence", 95),
        ("confidence", 0.9999999999999999),
        ("max_bytes", {"none": 5}),
        ("min_compression", 0.5),
        ("baseline_margin", 0.1),
    ],
)
def test_limits_of_the_report_that_are_none_are_refused(
    tmp_path: Path, key: str, value: Any
) -> None:
    report = sample()[0]
    report["settings"]["gates"][key] = value
    write_json(tmp_path / "report.json", report)
    with pytest.raises(InputError):
        read_report(tmp_path / "report.json")
    with pytest.raises(InputError):
        ltp_pipeline.gate(tmp_path / "report.json", report_only=True, max_drop=0.5)


def test_interval_reversed_is_rejected(tmp_path: Path) -> None:
    report = sample()[0]
    report["pruned"]["drop_interval"].reverse()
    write_json(tmp_path / "report.json", report)
    with pytest.raises(InputError, match=r"pruned\.drop_interval") as caught:
        read_report(tmp_path / "report.json")
    assert not isinstance(caught.value, ContradictionError)  # which the other values would raise


@given(st.floats(-1e6, 1e6), st.floats(-1e-6, 1e-6))
def test_values_are_the_same_within_a_billionth(value: float, apart: float) -> None:
    assert is_same(value, value)
    if not math.isclose(value, value + apart, rel_tol=1e-9, abs_tol=1e-9):
        assert not is_same(value, value + apart)


def test_is_same_distinguishes_types() -> None:
    assert is_same(1, 1.0)
    assert is_same((1.0, None), (1.0, None))
    assert not is_same((1.0,), (1.0, 1.0))
    assert not is_same(1.0, None)
    assert not is_same(1.0, "1.0")


def test_multiply_adds_are_computed_from_uses_and_nonzeros_of_layers(
    report: dict[str, Any],
) -> None:
    total = sum(math.prod(layer["shape"]) * layer["uses"] for layer in report["layers"])
    for network, key in (("pruned", "nonzeros"), ("baseline", "baseline_nonzeros")):
        report[network]["macs_left"] = None
        left = sum(layer[key] * layer["uses"] for layer in report["layers"])
        computed = getattr(complete(report_of(report)), network)
        assert computed.macs_left == pytest.approx(left / total)
    report["model"]["macs"] = None
    assert complete(report_of(report)).model.macs == total


def test_multiply_adds_without_the_uses_of_a_layer_stay_null(report: dict[str, Any]) -> None:
    report["layers"][3]["uses"] = None
    report["model"]["macs"] = report["pruned"]["macs_left"] = None
    computed = complete(report_of(report))
    assert (computed.model.macs, computed.pruned.macs_left) == (None, None)


LTP, GLOBAL, GRADUAL = "ltp", "global-magnitude", "gradual-magnitude"


def compare(
    values: dict[str, float], *intervals: tuple[float, float] | None, metric: Metric | None = None
) -> NetworkComparison:
    """Complete a comparison of LTP with the two baselines, whose intervals are stated."""
    leads = []
    for method, interval in zip((GLOBAL, GRADUAL), intervals, strict=False):
        leads.append(ValidationLead(method=method, interval=interval))
    comparison = NetworkComparison(baselines=tuple(leads))
    return complete_leads(comparison, values, metric or Metric())


def test_best_baseline_beyond_noise_is_the_better_network() -> None:
    values = {LTP: 0.80, GLOBAL: 0.82, GRADUAL: 0.85}
    comparison = compare(values, (0.01, 0.03), (0.02, 0.08))
    assert comparison.better == comparison.baselines[1]
    assert comparison.better.value == pytest.approx(0.05)
    assert compare(values, (0.01, 0.03), (-0.01, 0.08)).better == comparison.baselines[0]


@pytest.mark.parametrize("intervals", [(None, None), ((0.0, 0.1), (-0.1, 0.2)), ()])
def test_no_network_is_better_without_an_interval_above_zero(intervals: Any) -> None:
    assert compare({LTP: 0.80, GLOBAL: 0.82, GRADUAL: 0.85}, *intervals).better is None


def test_better_network_has_the_lower_error() -> None:
    error = Metric("MAE", "°C", higher_is_better=False, is_fraction=False)
    comparison = compare({LTP: 2.0, GLOBAL: 1.5}, (0.1, 0.9), metric=error)
    assert comparison.better is not None
    assert comparison.better.value == pytest.approx(0.5)


def test_lead_follows_from_counts_of_samples() -> None:
    counts = PairedCounts(700, 150, 50, 100)
    lead = ValidationLead(method=GLOBAL, paired_counts=counts, interval=(-1, 1))
    values = {LTP: 0.75, GLOBAL: 0.85}
    comparison = complete_leads(NetworkComparison(baselines=(lead,)), values, Metric())
    assert comparison.better is not None
    assert comparison.better.interval == counts.compute_interval()
    with pytest.raises(InputError, match=r"comparison\.baselines\.0"):
        complete_leads(NetworkComparison(baselines=(lead,)), {**values, LTP: 0.7}, Metric())


def test_report_that_hides_a_better_network_is_rejected(report: dict[str, Any]) -> None:
    lead = {"method": GLOBAL, "value": 0.1, "interval": [0.05, 0.15]}
    report["comparison"] = {"baselines": [lead], "better": lead}
    check_consistency(report_of(report), "the report")
    report["comparison"]["better"] = None
    with pytest.raises(InputError, match=r"comparison\.better"):
        check_consistency(report_of(report), "the report")


def test_gradual_network_is_completed_from_its_layers(report: dict[str, Any]) -> None:
    report["gradual_baseline"] = {
        "method": GRADUAL,
        "files": [{"path": "gradual/model.packed.onnx", "accuracy": {"value": 0.9, "top1": 0.9}}],
        "difference": {},
    }
    for layer in report["layers"]:
        layer["gradual_nonzeros"] = layer["nonzeros"]
    completed = complete(report_of(report))
    gradual = completed.gradual_baseline
    assert gradual is not None
    assert gradual.compression == completed.pruned.compression
    assert gradual.macs_left == completed.pruned.macs_left
    assert gradual.drop == pytest.approx((completed.original.value or 0) - 0.9)
    assert gradual.difference is not None
    assert gradual.difference.value == pytest.approx((completed.pruned.exact_value or 0) - 0.9)


def with_budget(**budget: float) -> dict[str, Any]:
    """Return the sample with a budget of a cost, and no numbers in it yet."""
    report, _ = sample()
    report["settings"]["budget"] = budget
    report["cost_budget"] = {}
    return report


@pytest.mark.parametrize(("allowed", "is_met"), [(1.001, True), (1.0, True), (0.999, False)])
def test_budget_of_multiply_adds_is_met_by_what_is_left(allowed: float, is_met: bool) -> None:
    left = sample()[0]["pruned"]["macs_left"]
    budget = complete(report_of(with_budget(target_macs=left * allowed))).cost_budget
    assert budget is not None
    assert budget.kind == "multiply-adds"
    assert (budget.requested, budget.measured) == pytest.approx((left * allowed, left))
    assert budget.is_met == is_met


def test_budget_of_bytes_is_met_by_the_packed_file() -> None:
    report = with_budget(target_bytes=0.25)
    sizes = {file["encoding"]: file["bytes"] for file in report["pruned"]["files"]}
    budget = complete(report_of(report)).cost_budget
    assert budget is not None
    requested = math.floor(0.25 * report["original"]["bytes"])
    assert (budget.kind, budget.requested) == ("bytes", requested)
    assert (budget.measured, budget.is_met) == (sizes["packed"], sizes["packed"] <= requested)
    for target in (sizes["packed"], sizes["packed"] - 1):
        budget = complete(report_of(with_budget(target_bytes=target))).cost_budget
        assert budget is not None
        assert (budget.requested, budget.is_met) == (target, target == sizes["packed"])


@pytest.mark.parametrize(("ratio", "is_met"), [(0.4, True), (0.549, True), (0.551, False)])
def test_budget_of_latency_is_met_within_ten_percent(ratio: float, is_met: bool) -> None:
    report = with_budget(target_latency=0.5)
    file = report["pruned"]["files"][1]
    latency = {"original_ms": 2.0, "threads": 1, "ratio_quartiles": [ratio - 0.1, ratio]}
    file["latency"] = [
        {"batch": 1, "ms": 2 * ratio, **latency},
        {"batch": 16, "ms": 1.9, **latency},
    ]
    file |= {"graph": "fast", "sparse_kernels": {"instruction_set": "avx512"}}
    budget = complete(report_of(report)).cost_budget
    assert budget is not None
    assert budget.measured == pytest.approx(ratio)
    assert budget.measured_quartiles == pytest.approx((ratio - 0.1, ratio))
    assert budget.is_met == is_met


@pytest.mark.parametrize("budget", [{"target_latency": 0.5}, {"target_compression": 5}])
def test_budget_without_its_file_or_of_weights_is_not_measured(budget: dict[str, float]) -> None:
    result = complete(report_of(with_budget(**budget))).cost_budget
    assert result is not None
    assert (result.measured, result.is_met) == (None, None)


def test_forged_budget_is_refused() -> None:
    left = sample()[0]["pruned"]["macs_left"]
    stated = complete(report_of(with_budget(target_macs=left / 2)))
    assert stated.cost_budget is not None
    check_consistency(stated, "the report")
    forged = stated.replace(cost_budget=stated.cost_budget.replace(is_met=True))
    with pytest.raises(ContradictionError, match=r"cost_budget\.is_met"):
        check_consistency(forged, "the report")


def test_counts_of_a_difference_that_are_multiplied_are_rejected(report: dict[str, Any]) -> None:
    counts = report["difference"]["paired_counts"]
    report["difference"] = {"paired_counts": {key: 1000 * n for key, n in counts.items()}}
    with pytest.raises(ContradictionError, match=r"difference\.paired_counts"):
        complete(report_of(report))


def test_counts_of_a_lead_must_have_the_samples_of_the_validation_split() -> None:
    counts = PairedCounts(8, 1, 0, 1)
    comparison = NetworkComparison(baselines=(ValidationLead(method=GLOBAL, paired_counts=counts),))
    values = {LTP: 0.8, GLOBAL: 0.9}
    assert complete_leads(comparison, values, Metric(), samples=10).baselines
    with pytest.raises(ContradictionError, match="paired_counts"):
        complete_leads(comparison, values, Metric(), samples=100)


def test_two_networks_of_one_method_are_rejected(report: dict[str, Any]) -> None:
    report["pruned"]["method"] = "global-magnitude"
    with pytest.raises(ValueError, match="methods of networks"):
        report_of(report)


def test_better_baseline_is_not_delivered_if_only_ltp_was_fitted_to_the_budget(
    report: dict[str, Any],
) -> None:
    lead = {"method": GLOBAL, "value": 0.02, "interval": [0.01, 0.03]}
    report["comparison"] = {"baselines": [lead], "better": lead}
    assert report_of(report).better_key == "baseline"
    report["settings"]["budget"] = {"target_bytes": 0.2}
    assert report_of(report).better_key is None
