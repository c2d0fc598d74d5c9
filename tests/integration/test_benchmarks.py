"""Series of benchmarks prune the embedded example, and the page is made of their rows."""

import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import blocks, datasets, matrix, restore_bn, results_page, series
from benchmarks.ablations import __main__ as ablations
from benchmarks.ablations import plans
from benchmarks.ablations.runs import measure_run
from ltp_pipeline.stages.report.environment import find_processor

SHORT = {"epochs": 1, "finetune_epochs": 1}
NOWHERE: dict[str, Any] = {"folders": {}, "cache": Path()}


@pytest.fixture
def digits(example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded example in the place of Fashion-MNIST and the network that is trained on it."""
    monkeypatch.setattr(matrix, "load_dense", lambda *_: example / "model.onnx")
    monkeypatch.setattr(
        datasets, "data_settings", lambda *_: {"path": example / "digits.npz", "scale": 1 / 16}
    )


@pytest.mark.usefixtures("digits")
def test_ablations_prune_as_they_were_asked_to():
    wanted = (plans.make_paper_plan(weight_gradient="20", pull=300.0), plans.make_budget_plan())
    clamped, budget = (measure_run({**plan, **SHORT}, **NOWHERE) for plan in wanted)
    assert clamped["reached"] > 1
    assert budget["reached"] == pytest.approx(plans.COMPRESSION, rel=0.01)
    assert [seen["epoch"] for seen in budget["epochs_seen"]] == [1]
    assert measure_run({"mode": "dense", "seed": 0}, **NOWHERE)["test"] > 0.9


@pytest.mark.usefixtures("digits")
def test_a_folded_network_is_pruned_with_and_without_its_norms():
    found = {
        form: restore_bn.measure_plan(
            {"form": form, "lr": 0.03, "compression": 10, "seed": 0, **SHORT}, **NOWHERE
        )
        for form in restore_bn.FORMS
    }
    assert found["folded"]["original"] == pytest.approx(found["never folded"]["original"], abs=0.01)
    assert found["restored"]["reached"] == pytest.approx(10, rel=0.01)
    assert found["restored"]["test"] > found["folded"]["test"]


@pytest.mark.parametrize("script", [ablations, blocks, restore_bn])
def test_without_its_data_a_series_says_so_and_measures_nothing(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(
        sys,
        "argv",
        ["script", "--data", str(tmp_path / "none"), "--out", str(tmp_path / "rows.json")],
    )
    script.main()
    assert "skipped resnet: there is no" in capsys.readouterr().out
    assert not (tmp_path / "rows.json").exists()


@pytest.mark.slow
def test_rows_of_a_series_make_a_page(tmp_path: Path):
    """Going on where it stopped, too: the second call measures what the first did not."""
    wanted = list(plans.iter_dense_runs())
    for count in (1, 3):
        series.run_plans(wanted[:count], _dense, tmp_path / "ablations.json", {"command": "c"})
    rows = series.read_rows(tmp_path / "ablations.json")
    assert [row["seed"] for row in rows] == [0, 1, 2]
    (tmp_path / "paper.json").write_text(
        '{"source": "p", "resnet20": "r", "rows": []}', encoding="utf-8"
    )
    page = " ".join(results_page.render_page(results_page.load_results(tmp_path)).split())
    assert "test top-1 91.0 ± 1.0 %" in page
    assert f"| {series.commit()} | {find_processor()} |" in page


def _dense(plan: series.Plan) -> dict[str, Any]:
    return {"test": 0.9 + plan["seed"] / 100, "val": 0.9, "elements": 77072, "train_samples": 8000}
