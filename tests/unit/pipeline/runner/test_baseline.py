"""What is decided before a point of the baseline's curve is trained."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ltp_pipeline.errors import TrainingFailed
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.run_directory.run_directory import RunDirectory
from ltp_pipeline.runner import baseline as baseline_curve
from ltp_pipeline.runner.baseline import BaselineTarget
from ltp_pipeline.settings.schema import Settings


def context(tmp_path, mode: str = "auto", **baseline: Any) -> Any:
    run_directory = RunDirectory(tmp_path / "run")
    run_directory.begin_run({})
    settings = Settings.model_validate({"baseline": {"mode": mode, **baseline}})
    return SimpleNamespace(
        run_directory=run_directory,
        settings=settings,
        network=SimpleNamespace(layer_weights=()),
        device=torch.device("cpu"),
        costs=None,
    )


@pytest.mark.parametrize(("num_weights", "spared"), [(300, {"classifier"}), (180, set())])
def test_baseline_excludes_a_small_classifier(tmp_path, monkeypatch, num_weights, spared):
    monkeypatch.setattr(baseline_curve.baseline, "find_classifier", lambda _: {"classifier"})
    monkeypatch.setattr(baseline_curve.baseline, "min_cost", lambda *_: 100)
    rival = BaselineTarget(Metric(), num_weights, 18, 0.9, 0.9)
    assert (
        baseline_curve._find_excluded(context(tmp_path, exclude_classifier=True), {}, rival)
        == spared
    )


def test_baseline_auto_repeats_an_earlier_curve(tmp_path, monkeypatch):
    monkeypatch.setattr(baseline_curve, "MAX_CURVE_SECONDS", 0.0)
    started = context(tmp_path, "curve")
    assert baseline_curve._makes_curve(started)
    started.settings = Settings.model_validate({"baseline": {"mode": "auto"}})
    assert baseline_curve._makes_curve(started)


@pytest.mark.parametrize("fails", [False, True])
def test_baseline_of_blocks_trains_an_unstructured_one(tmp_path, monkeypatch, fails):
    asked: list[tuple[Any, ...]] = []

    def trained(_: Any, __: Any, *rest: Any) -> tuple[Any, None, float]:
        asked.append(rest)
        if fails:
            raise TrainingFailed("diverged", "")
        return SimpleNamespace(nonzeros=299), None, 0.8

    target = BaselineTarget(Metric(), 300, 18, 0.9, 0.9)
    monkeypatch.setattr(baseline_curve, "_choose_learning_rate", lambda context, *_: context)
    monkeypatch.setattr(baseline_curve, "_train_point", trained)
    monkeypatch.setattr(baseline_curve, "export_and_evaluate", lambda *rest: rest[4])
    point = baseline_curve._measure_point(
        context(tmp_path), {}, target, {"spared"}, None, "ltp", "single", 300, {}
    )
    assert asked == [("single", 300, 18, {"spared"}, {})]
    assert point == (None if fails else (299, 0.8, "baseline/single"))
