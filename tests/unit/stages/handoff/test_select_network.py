"""The report of a baseline that is handed over."""

from typing import Any

import pytest

from ltp_pipeline.errors import InputError
from ltp_pipeline.gates.evaluation import evaluate_own_gates
from ltp_pipeline.results.schema import IS_BASELINE, Report
from ltp_pipeline.stages.handoff.select_network import select_network
from tests.support.sample_report import in_celsius, report_of, sample


@pytest.fixture
def report() -> dict[str, Any]:
    baseline_report = sample()[0]
    baseline_report["settings"]["gates"] = {
        "max_drop": 0.01,
        "beat_baseline": True,
        "baseline_margin": 0.001,
        "min_gain": 1.5,
    }
    return baseline_report


def handed(report: dict[str, Any]) -> Report:
    return evaluate_own_gates(select_network(report_of(report)))


def test_baseline_report_has_the_baseline_as_pruned_network(report: dict[str, Any]) -> None:
    baseline_report = handed(report)
    assert (baseline_report.pruned.value, baseline_report.pruned.drop) == (
        0.9041,
        pytest.approx(0.0136),
    )
    assert baseline_report.pruned.drop_interval == tuple(report["baseline"]["drop_interval"])
    assert baseline_report.pruned.method == "global-magnitude"
    assert (
        baseline_report.baseline,
        baseline_report.difference,
        baseline_report.trail,
        baseline_report.scatter,
    ) == (None, None, (), None)
    assert (
        baseline_report.reasons["baseline"]
        == baseline_report.reasons["difference"]
        == "this network is the baseline of its run"
    )


def test_layers_have_its_counts_and_no_thresholds(report: dict[str, Any]) -> None:
    for layer, before in zip(handed(report).layers, report["layers"], strict=True):
        assert layer.nonzeros == before["baseline_nonzeros"]
        assert (layer.baseline_nonzeros, layer.threshold, layer.temperature) == (None, None, None)


def test_baseline_report_checks_gates_without_comparisons(
    report: dict[str, Any],
) -> None:
    baseline_report = handed(report)
    assert [(g.name, g.value, g.passed) for g in baseline_report.gates] == [
        ("max_drop", pytest.approx(0.0136), False)
    ]
    assert baseline_report.status == "failed"
    assert not baseline_report.settings["gates"]["beat_baseline"]
    assert baseline_report.settings["gates"]["min_gain"] is None
    assert (
        "gates that compare with a baseline are skipped: beat_baseline, baseline_margin, min_gain"
        in baseline_report.notes
    )


def test_baseline_report_without_gates_has_none(report: dict[str, Any]) -> None:
    report["settings"].pop("gates")
    assert handed(report).status == "no-gates"


def test_names_of_files_are_those_beside_the_report(report: dict[str, Any]) -> None:
    report["baseline"]["files"][0]["path"] = "baseline/model.packed.onnx"
    (file,) = handed(report).pruned.files
    assert file.path == "model.packed.onnx"


@pytest.mark.parametrize(("budget", "missed"), [(0.01, True), (0.02, False), (None, False)])
def test_baseline_report_outside_the_budget_has_a_note(
    report: dict[str, Any], budget: float | None, missed: bool
) -> None:
    report["settings"]["budget"] = {"accuracy_budget": budget}
    assert (handed(report).budget_not_met is not None) == missed


def test_baseline_report_of_picked_entry_ignores_the_budget(
    report: dict[str, Any],
) -> None:
    report["settings"]["budget"] = {"accuracy_budget": 0.01}
    assert select_network(report_of(report), is_picked=True).budget_not_met is None


def test_notes_on_learning_thresholds_are_not_its_own(report: dict[str, Any]) -> None:
    few = "thresholds are learned in only 12 steps: more epochs or smaller batches would lose less"
    report["notes"] += [few, "entry 3 of the trail"]
    assert not {few, "entry 3 of the trail"} & set(handed(report).notes)


def test_baseline_report_drops_notes_of_the_learned_network(report: dict[str, Any]) -> None:
    report["notes"] += ["tried 8.4×: 91 % on the validation split", "it is outside"]
    report["budget_not_met"] = "it is outside"
    notes = handed(report).notes
    assert "global magnitude" in notes[0]
    assert "18 epochs" in notes[0]
    assert "2 nodes were folded into constants before training" in notes
    assert not {"tried 8.4×: 91 % on the validation split", "it is outside"} & set(notes)


def test_baseline_report_without_baseline_raises() -> None:
    with pytest.raises(InputError, match=r"\bbaseline\b.*: not asked for"):
        handed(sample(baseline=False)[0])


def test_baseline_report_missed_budget_has_the_unit() -> None:
    report = in_celsius()
    report["settings"]["budget"] = {"accuracy_budget": 0.01}
    warning = "the network loses 0.0136 °C on the test split, and the budget is 0.01 °C"
    assert select_network(report_of(report)).budget_not_met == warning


@pytest.mark.parametrize(
    ("key", "method", "is_baseline"),
    [("gradual_baseline", "gradual-magnitude", True), ("ltp", "ltp", False)],
)
def test_other_network_is_selected_with_its_counts(
    report: dict[str, Any], key: str, method: str, is_baseline: bool
) -> None:
    if key == "ltp":
        report["pruned"]["method"] = "gradual-magnitude"
    report[key] = {
        "method": method,
        "files": [{"path": f"{key}/model.packed.onnx", "accuracy": {"value": 0.9, "top1": 0.9}}],
        "difference": {},
    }
    for number, layer in enumerate(report["layers"]):
        layer["gradual_nonzeros"] = layer["ltp_nonzeros"] = number
    selected = select_network(report_of(report), key)
    assert (selected.pruned.method, selected.pruned.value) == (method, 0.9)
    assert [layer.nonzeros for layer in selected.layers] == list(range(len(selected.layers)))
    assert not selected.other_networks
    assert [file.path for file in selected.pruned.files] == ["model.packed.onnx"]
    assert (selected.reasons["baseline"] == IS_BASELINE) == is_baseline
    assert ("baseline of the run" in selected.notes[0]) == is_baseline


def test_missing_gradual_baseline_raises_with_the_option_that_trains_it(
    report: dict[str, Any],
) -> None:
    with pytest.raises(InputError) as error:
        select_network(report_of(report), "gradual_baseline")
    assert "--baseline gradual" in error.value.hint
