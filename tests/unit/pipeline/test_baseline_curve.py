"""What is decided before a point of the baseline's curve is trained."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ltp_pipeline import baseline_curve
from ltp_pipeline.baseline_curve import Rival
from ltp_pipeline.config import Settings
from ltp_pipeline.metric import Metric
from ltp_pipeline.workspace import Workspace


def job(tmp_path, mode: str = "auto", **baseline: Any) -> Any:
    workspace = Workspace(tmp_path / "run")
    workspace.begin({})
    settings = Settings.model_validate({"baseline": {"mode": mode, **baseline}})
    return SimpleNamespace(workspace=workspace, settings=settings, network=None, device=torch.device("cpu"))


@pytest.mark.parametrize(("kept", "spared"), [(300, {"classifier"}), (180, set())])
def test_a_classifier_is_spared_unless_it_is_most_of_what_may_be_kept(tmp_path, monkeypatch, kept, spared):
    monkeypatch.setattr(baseline_curve.baseline, "classifier", lambda _: {"classifier"})
    monkeypatch.setattr(baseline_curve.baseline, "fewest_nonzeros", lambda *_: 100)
    rival = Rival(Metric(), kept, 18, 0.9, 0.9)
    assert baseline_curve._spared(job(tmp_path, spare_classifier=True), {}, rival) == spared


def test_auto_makes_a_curve_again_where_one_was_asked_for_before(tmp_path, monkeypatch):
    monkeypatch.setattr(baseline_curve, "LONGEST", 0.0)
    started = job(tmp_path, "curve")
    assert baseline_curve._makes_curve(started)
    started.settings = Settings.model_validate({"baseline": {"mode": "auto"}})
    assert baseline_curve._makes_curve(started)
