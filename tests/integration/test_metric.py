"""Whole commands with a metric that is no share, or of which less is better."""

import json
from pathlib import Path

import pytest

from ltp_pipeline.results.metric import Metric
from ltp_pipeline.results.schema_parts import CustomTaskInfo
from ltp_pipeline.stages.report import assemble
from ltp_pipeline.tasks.classification import ClassificationTask
from tests.support.cli import Result, invoke, says_finished

NO_BUDGET = '[data]\npath = "digits.npz"\nscale = 0.0625\n[train]\nbatch_size = 64\n'
SHORT = ("--epochs", 2, "--finetune-epochs", 1, "--export", "packed", "--skip-label-check")


def judged_by(monkeypatch: pytest.MonkeyPatch, metric: Metric) -> None:
    """Call the share of right answers something else, as a task of the user's may."""
    monkeypatch.setattr(ClassificationTask, "metric", metric)
    monkeypatch.setattr(assemble, "_describe_custom_task", lambda _: CustomTaskInfo(name="task"))


def prune(capsys: pytest.CaptureFixture[str], example: Path, *options: object) -> Result:
    return invoke(capsys, "run", example / "model.onnx", "--out", example / "run", *SHORT, *options)


def test_run_metric_with_unit_has_a_relative_default_budget(example: Path, capsys, monkeypatch):
    judged_by(monkeypatch, Metric("yield", "kg", is_fraction=False))
    (example / "ltp.toml").write_text(NO_BUDGET)
    result = prune(capsys, example, "--baseline", "quick", "--max-drop", 5)
    assert result.code == 0, result.err
    assert "Note: the metric is yield in kg" in result.err
    assert "yield (val) 0.9" in result.err
    report = json.loads((example / "run" / "report.json").read_text())
    budget = report["resolved"]["budget"]["accuracy_budget"]
    assert 0.009 < budget < 0.01  # 1 % of what the original has
    assert any(f"{budget:.4g} kg, 1 %" in note for note in report["notes"])
    for page in ("report.md", "report.html", "handoff/HANDOFF.md"):
        text = (example / "run" / page).read_text()
        assert f"{report['pruned']['accuracy']['value']:.4g} kg" in text
        assert "points" not in text
    assert "yield (val)" in invoke(capsys, "trail", example / "run").out
    gate = ("gate", example / "run" / "report.json", "--max-drop")
    assert invoke(capsys, *gate, 5).code == 0
    assert invoke(capsys, *gate, -5).code == 7
    assert says_finished(prune(capsys, example, "--baseline", "quick", "--max-drop", 5).err)


def test_run_lower_is_better_selects_the_sparsest_in_budget(example: Path, capsys, monkeypatch):
    """Right answers are taken for errors: whatever pruning does to them is an improvement."""
    judged_by(
        monkeypatch, Metric("errors", "per sample", higher_is_better=False, is_fraction=False)
    )
    (example / "ltp.toml").write_text(NO_BUDGET)
    result = prune(
        capsys,
        example,
        "--finetune-epochs",
        0,
        "--no-baseline",
        "--max-drop",
        0,
        "--lr",
        0.3,
        "--json",
    )
    assert result.code == 0, result.err
    report = json.loads(result.out)
    assert report["pruned"]["accuracy"]["value"] < report["original"]["accuracy"]["value"]
    assert report["pruned"]["drop"] < 0
    assert report["budget_not_met"] is None
    (chosen,) = [entry["compression"] for entry in report["trail"] if entry["selected"]]
    assert chosen == max(entry["compression"] for entry in report["trail"])
    assert "within the budget" in result.err


@pytest.mark.parametrize("option", ["--max-drop", "--accuracy-budget"])
def test_run_limit_in_percent_is_rejected_untrained(example: Path, capsys, option: str):
    result = prune(capsys, example, option, 5)
    assert result.code == 3
    assert option.removeprefix("--").replace("-", "_") in result.err
    assert "0.05" in result.err
    assert not (example / "run").exists()
