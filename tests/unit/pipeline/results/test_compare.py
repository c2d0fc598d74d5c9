"""Two reports of the same model."""

import copy
import re
from pathlib import Path
from typing import Any

import pytest

from ltp_pipeline.errors import InputError
from ltp_pipeline.results import compare as comparison
from ltp_pipeline.system.files import write_json
from tests.support.cli import invoke
from tests.support.sample_report import in_celsius, report_of, sample, with_bounded_gain, with_value


def compare(old: dict[str, Any], new: dict[str, Any], **limits: Any) -> comparison.Comparison:
    return comparison.compare_reports(report_of(old), report_of(new), **limits)


def worse() -> dict[str, Any]:
    report = copy.deepcopy(sample()[0])
    report["pruned"]["accuracy"]["value"] -= 0.02
    report["pruned"]["compression"] *= 2
    return report


def less_accurate() -> dict[str, Any]:
    """A report of a network without baseline that is worse by two points, and agrees with itself."""
    report = sample(baseline=False)[0] | {"status": "no-gates", "gates": []}
    del report["settings"]["gates"]
    with_value(report["pruned"], 0.8932)
    report["pruned"] |= {"drop": 0.9177 - 0.8932, "drop_interval": None}
    for file in report["pruned"]["files"]:
        file["paired_counts"] = None
    return report


def test_compare_equal_reports_has_no_change() -> None:
    report = sample()[0]
    result = compare(report, report, max_drop=0.0, max_compression_loss=0.0, max_size_increase=0.0)
    assert all(c.better is None for c in result.changes)
    assert all(v.passed for v in result.gate_results)
    assert result.notes == ()


def test_compare_names_better_and_worse() -> None:
    changes = {c.name: c for c in compare(sample()[0], worse()).changes}
    assert changes["top-1"].better is False
    assert changes["compression"].better is True
    assert changes["top-1"].line == "top-1: 91.32 % → 89.32 %, worse"


def test_compare_has_the_gain() -> None:
    new = copy.deepcopy(sample()[0])
    new["baseline"]["gain"] = 2.5
    (change,) = [c for c in compare(sample()[0], new).changes if c.name == "gain"]
    assert change.line == "gain: 1.88606 → 2.5, better"


@pytest.mark.parametrize(
    ("before", "after", "better", "line"),
    [
        (("at least", 2.0), (None, 2.5), None, "at least 2 → 2.5, cannot be computed from bounds"),
        (("at most", 2.0), (None, 2.5), True, "at most 2 → 2.5, better"),
        ((None, 2.0), ("at least", 2.5), True, "2 → at least 2.5, better"),
        ((None, 2.0), ("at most", 2.5), None, "2 → at most 2.5, cannot be computed from bounds"),
        (("at least", 2.0), ("at most", 1.5), False, "at least 2 → at most 1.5, worse"),
        (("at most", 2.0), (None, 1.5), None, "at most 2 → 1.5, cannot be computed from bounds"),
    ],
)
def test_compare_bounded_gain_if_the_bound_decides(before, after, better, line) -> None:
    old, new = (with_bounded_gain(sample()[0], *bounds) for bounds in (before, after))
    (change,) = [c for c in compare(old, new).changes if c.name == "gain"]
    assert (change.better, change.line) == (better, f"gain: {line}")


@pytest.mark.parametrize(("limit", "passed"), [(0.02, True), (0.019, False)])
def test_loss_is_gated(limit: float, passed: bool) -> None:
    (verdict,) = compare(sample()[0], worse(), max_drop=limit).gate_results
    assert verdict.passed is passed


def test_compare_limit_without_a_value_fails() -> None:
    new = worse()
    new["pruned"]["accuracy"] = None
    assert not compare(sample()[0], new, max_drop=0.5).gate_results[0].passed


def test_compare_other_conditions_are_notes() -> None:
    new = worse()
    new["model"]["sha256"] = "b" * 64
    new["original"]["accuracy"]["samples"] = 200
    notes = " ".join(compare(sample()[0], new, allow_different_models=True).notes)
    assert "another original model" in notes
    assert "10000 before, 200 now" in notes


def test_reports_on_different_models_are_refused_unless_that_is_meant(
    tmp_path: Path, capsys: Any
) -> None:
    other = sample()[0]
    other["model"] |= {"sha256": "b" * 64, "name": "another network"}
    write_json(tmp_path / "old.json", sample()[0])
    write_json(tmp_path / "new.json", other)
    refused = invoke(capsys, "compare", tmp_path / "old.json", tmp_path / "new.json")
    assert (refused.code, refused.out) == (3, "")
    assert re.search("resnet20 <small>.*another network", refused.err)
    assert "--allow-different-models" in refused.err
    asked = invoke(
        capsys, "compare", tmp_path / "old.json", tmp_path / "new.json", "--allow-different-models"
    )
    assert (asked.code, "another original model" in asked.err) == (0, True)


def test_compare_has_both_compressions() -> None:
    new = worse()
    new["pruned"]["model_compression"] = 2.0
    lines = [c.line for c in compare(sample()[0], new).changes]
    assert "compression: 8.36366 → 16.7273, better" in lines
    assert "model compression: 7.87246 → 2, worse" in lines


def test_compare_failed_limit_names_changed_settings(tmp_path: Path, capsys: Any) -> None:
    new = less_accurate()
    new["settings"]["train"]["epochs"] = 3
    (verdict,) = compare(sample()[0], new, max_drop=0.01).gate_results
    assert verdict.advice == "look at what changed: train.epochs was 12, is 3"
    write_json(tmp_path / "old.json", sample()[0])
    write_json(tmp_path / "new.json", new)
    failed = invoke(
        capsys, "compare", tmp_path / "old.json", tmp_path / "new.json", "--max-drop", 0.01
    )
    assert (failed.code, bool(re.search(r"max_drop: .*\btrain\.epochs\b", failed.err))) == (7, True)
    (same,) = compare(sample()[0], worse(), max_drop=0.01).gate_results
    assert "train.seed" in same.advice


def test_compare_of_a_resolved_setting_names_its_value() -> None:
    old, new = sample()[0], less_accurate()
    old["settings"]["train"] |= {"lr": None}
    new["settings"]["train"] |= {"lr": 0.01}
    old["resolved"] = {"train": {"lr": 0.03}}
    (verdict,) = compare(old, new, max_drop=0.01).gate_results
    assert "train.lr was 0.03, is 0.01" in verdict.advice


@pytest.mark.parametrize("limit", ["max_drop", "max_compression_loss"])
def test_compare_impossible_limit_is_rejected(limit: str) -> None:
    with pytest.raises(InputError, match=limit):
        compare(sample()[0], sample()[0], **{limit: 1.0})


def test_compare_limit_in_percent_is_rejected() -> None:
    with pytest.raises(InputError, match="max_drop"):
        compare(sample()[0], worse(), max_drop=5)


def test_right_answers_and_agreement_are_not_compared() -> None:
    plain, agreeing = ({**sample()[0], "metric": {"name": name}} for name in ("top-1", "agreement"))
    result = compare(plain, agreeing, max_drop=0.5)
    assert not result.gate_results[0].passed
    assert "another metric: top-1 before, agreement now" in result.notes
    assert [c.name for c in result.changes][:3] == ["compression", "model compression", "sparsity"]


def test_compare_lines_name_the_metric() -> None:
    reports = [{**sample()[0], "metric": {"name": "r2_vs_original"}} for _ in range(2)]
    result = compare(*reports, max_drop=0.01)
    assert [c.name for c in result.changes][:3] == [
        "original r2_vs_original",
        "r2_vs_original",
        "drop",
    ]
    assert result.changes[1].line == "r2_vs_original: 91.32 % → 91.32 %, same"
    assert result.gate_results[0].passed


def test_compare_lower_is_better_has_unit_and_direction() -> None:
    new = in_celsius()
    new["pruned"]["accuracy"]["value"] += 0.02
    result = compare(in_celsius(), new, max_drop=0.01)
    changes = {c.name: c for c in result.changes}
    assert (
        changes["MAE, lower is better"].line == "MAE, lower is better: 2.5868 °C → 2.6068 °C, worse"
    )
    assert changes["drop"].line == "drop: 0.0045 °C → 0.0045 °C, same"
    (verdict,) = result.gate_results
    assert not verdict.passed
    assert verdict.value == pytest.approx(0.02)
    assert verdict.line == "max_drop: limit 0.01, value 0.02 (MAE in °C, lower is better)"
    assert compare(new, in_celsius(), max_drop=0).gate_results[0].passed


def test_compare_metrics_of_different_units_is_skipped() -> None:
    new = in_celsius()
    new["metric"]["unit"] = "°F"
    result = compare(in_celsius(), new, max_drop=0.5)
    assert not result.gate_results[0].passed
    assert any(
        "another metric: MAE in °C, lower is better before, MAE in °F" in note
        for note in result.notes
    )
