"""What a failed gate tells to do: the layer, the setting or the command that would help most."""

from typing import Any
from xml.etree import ElementTree

import pytest

from ltp_pipeline.gates.ci_output import junit
from ltp_pipeline.gates.evaluation import GATES, evaluate_gates, make_gate_settings
from ltp_pipeline.stages.handoff.of_baseline import as_pruned
from ltp_pipeline.stages.report import render
from tests.support.sample_report import judge, report_of, sample, with_value

NO_PICTURES = {"trail": [], "histograms": [], "scatter": None, "sizes": {}}


def advice(report: dict[str, Any], **limits: Any) -> str:
    verdict = judge(report, make_gate_settings(limits))[0]
    assert not verdict.passed
    return verdict.advice


FAILING = {
    "min_accuracy": 0.915,
    "max_drop": 0.001,
    "min_sparsity": 0.95,
    "min_compression": 50,
    "min_model_compression": 20,
    "max_bytes": 1000,
    "max_latency_ratio": 0.5,
    "min_layer_density": 0.2,
    "beat_baseline": True,
    "min_gain": 5.0,
}


@pytest.mark.parametrize("name", GATES)
def test_no_gate_fails_without_advice_measured_or_not(report: dict[str, Any], name: str) -> None:
    with_value(report["baseline"], 1.0)
    for content in (report, {}, {"pruned": {}, "trail": [{}], "layers": [{}]}):
        told = advice(content, **{name: FAILING[name]})
        assert told
        assert "\n" not in told


def test_too_much_drop_names_the_entry_of_the_trail_that_keeps_the_limit(
    report: dict[str, Any],
) -> None:
    for entry, accuracy in zip(
        report["trail"], (0.917, 0.917, 0.916, 0.9155, 0.91, 0.91, 0.9, 0.9, 0.9, 0.9), strict=True
    ):
        entry["accuracy"] = accuracy
    assert advice(report, max_drop=0.002).startswith(
        "`ltp-pipeline pick RUN 3` finishes entry 3 of the trail (2.46×)"
    )
    assert advice(report, max_drop=0.003).startswith("`ltp-pipeline pick RUN 4`")
    assert "pick RUN 4" in advice(report, min_accuracy=0.915)
    with_both = judge(report, make_gate_settings({"max_drop": 0.003, "min_compression": 4}))[0].advice
    assert "pick RUN 4" not in with_both  # 3.32×: it would fail the other gate
    assert with_both.startswith("train for more epochs (--epochs was 12, --finetune-epochs 6)")


def test_a_drop_by_rounding_names_the_values(report: dict[str, Any]) -> None:
    packed = report["pruned"]["files"][1]
    packed |= {"weight_storage": "int8", "accuracy": {**packed["accuracy"], "value": 0.90}}
    report["pruned"] |= {"drop": 0.0177}
    assert advice(report, max_drop=0.005) == (
        "model.packed.onnx is below the bar because its values are rounded: set export.weight_storage = 'exact'"
    )


def test_an_original_below_the_bar_is_told(report: dict[str, Any]) -> None:
    assert (
        advice(report, min_accuracy=0.95)
        == "the original itself has 91.77 %: train it further, or ask for less"
    )


def test_only_the_interval_is_outside(report: dict[str, Any]) -> None:
    assert "more than 10000 test samples" in advice(report, max_drop=0.007, confidence=0.95)
    assert "test samples" not in advice(report, max_drop=0.001, confidence=0.95)


def test_too_little_compression_names_the_budget_and_what_it_takes_the_place_of(
    report: dict[str, Any],
) -> None:
    assert advice(report, min_compression=50) == "set budget.target_compression = 50"
    assert advice(report, min_sparsity=0.96) == "set budget.target_compression = 25"
    report["settings"]["budget"] = {"target_compression": None, "accuracy_budget": 0.01}
    assert advice(report, min_compression=50).endswith(
        "target_compression = 50 in place of accuracy_budget"
    )
    report["settings"] |= {"budget": {}, "method": {"lambda": 1e-4}}
    assert advice(report, min_compression=50).endswith("in place of method.lambda")


def test_a_sparser_entry_of_the_trail_is_named(report: dict[str, Any]) -> None:
    assert advice(report, min_compression=12).startswith(
        "`ltp-pipeline pick RUN 9` finishes entry 9 of the trail (14.89×)"
    )


def test_an_excluded_layer_that_is_too_large_is_named(report: dict[str, Any]) -> None:
    report["layers"][15] |= {
        "prunable": False,
        "reason": "excluded by 'stage3*'",
        "nonzeros": 36864,
        "name": "big",
    }
    report["layers"][15]["elements"] = 36864
    told = advice(report, min_compression=9)
    assert told.startswith(
        "big has 36,864 of the 234,032 kernel weights and is not pruned (excluded by 'stage3*')"
    )


def test_a_whole_model_names_the_tensor_that_is_not_pruned(report: dict[str, Any]) -> None:
    report["model"] |= {
        "float_elements": 1_234_032,
        "largest_other_weights": [{"name": "table", "elements": 1_000_000}],
    }
    report["pruned"]["model_compression"] = 1_234_032 / (1_000_000 + report["pruned"]["nonzeros"])
    told = advice(report, min_model_compression=5)
    assert told.startswith(
        "table has 1,000,000 of the 1,234,032 weights and is not pruned (it is no kernel)"
    )
    assert told.endswith("no budget reaches more than 1.23×")
    assert "table" in advice(report, max_bytes=10_000)


def test_a_whole_model_names_the_budget_that_its_kernels_need(report: dict[str, Any]) -> None:
    told = advice(
        report, min_model_compression=20
    )  # 236,032 / 20 nonzeros, 2,000 of them outside kernels
    assert told == "set budget.target_compression = 23.88"
    assert 236_032 / (234_032 / 23.88 + 2_000) >= 20


def test_too_large_a_file_is_packed_then_rounded_then_pruned_further(
    report: dict[str, Any],
) -> None:
    sparse, packed = report["pruned"]["files"]
    assert "--weight-storage fp16" in advice(report, max_bytes=100_000)
    report["pruned"]["files"] = [sparse]
    assert "--format packed" in advice(report, max_bytes=100_000)
    report["pruned"]["files"] = [sparse, packed | {"weight_storage": "int8"}]
    assert "target_compression = 10.97" in advice(report, max_bytes=100_000)


def test_a_layer_below_the_floor_is_named(report: dict[str, Any]) -> None:
    report["settings"]["method"] = {"min_layer_density": 0.002}
    assert advice(report, min_layer_density=0.05) == (
        "set method.min_layer_density = 0.05 (it is 0.002), or exclude stage3.block2.conv2.weight from pruning"
    )


def test_a_baseline_that_is_not_beaten(report: dict[str, Any]) -> None:
    with_value(report["baseline"], 0.95)
    report["difference"] = {"value": -0.037, "interval": [-0.05, -0.02]}
    assert advice(report, beat_baseline=True).startswith("train for more epochs (--epochs was 12")
    report["difference"]["interval"] = [-0.05, 0.01]
    assert "may be chance" in advice(report, beat_baseline=True)
    assert "--no-baseline" in advice(sample(baseline=False)[0], beat_baseline=True)


@pytest.mark.parametrize(
    ("bound", "gain", "named"),
    [(None, 0.8, True), ("at most", 0.8, True), ("at least", 0.8, False), (None, 1.2, False)],
)
def test_a_gain_below_one_names_where_the_file_of_the_sparser_baseline_stands(
    report: dict[str, Any], bound: str | None, gain: float, named: bool
) -> None:
    report["baseline"] |= {"gain": gain, "gain_bound": bound}
    told = advice(report, min_gain=2.0)
    assert ("baseline.curve in report.json names the file" in told) == named
    assert "handoff" not in told  # hands over the one at LTP's compression, which is no sparser
    assert "train for more epochs" in told


@pytest.mark.parametrize("name", ["beat_baseline", "min_gain"])
def test_a_baseline_that_was_handed_over_is_not_to_be_run_again_with_its_baseline(
    report: dict[str, Any], name: str
) -> None:
    (verdict,) = evaluate_gates(as_pruned(report_of(report)), make_gate_settings({name: FAILING[name]}))
    assert not verdict.passed
    assert verdict.advice == (
        "drop the gate: this network is the baseline of its run; the report of that run compares the two"
    )


def test_advice_is_in_every_rendering(report: dict[str, Any]) -> None:
    (verdict,) = judge(report, make_gate_settings({"min_compression": 50}))
    failed = report | {"status": "failed", "gates": [vars(verdict)]}
    assert "set budget.target_compression = 50" in render.render_markdown(report_of(failed))
    assert (
        "set budget.target_compression = 50"
        in render.render_html(report_of(failed | NO_PICTURES), []).split("</header>")[0]
    )
    case = ElementTree.fromstring(junit([verdict])).find("testsuite/testcase/failure")  # noqa: S314 - our own text
    assert case is not None
    assert (case.text or "").endswith(
        "value 8.36366 (of the kernels; of the whole model 7.87246)\nset budget.target_compression = 50"
    )
