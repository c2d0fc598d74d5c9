"""What is settled before training: how strong a target is."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ltp_pipeline.config import Settings
from ltp_pipeline.records import Kernel
from ltp_pipeline.stages import preflight
from ltp_pipeline.stages.train import Job


def job(compression: float) -> Job:
    kept: dict[str, float] = {}
    workspace: Any = SimpleNamespace(strength=None, keep_strength=lambda m: kept.update(m=m), kept=kept)
    network: Any = SimpleNamespace(kernels=(Kernel("w", "Gemm", (10, 10)),))
    data: Any = SimpleNamespace(train=range(512), val=SimpleNamespace(labels=np.arange(200) % 4))
    settings = Settings.model_validate({"budget": {"target_compression": compression}})
    absent: Any = None
    return Job(network, absent, data, settings, workspace, torch.device("cpu"))


@pytest.mark.parametrize(("compression", "cut", "expected"), [(5, 0.90, 0.0), (5, 0.575, 0.8), (14.9, 0.25, 1.0)])
def test_a_target_is_as_strong_as_the_accuracy_that_is_lost_by_the_cut(monkeypatch, compression, cut, expected):
    monkeypatch.setattr(preflight.baseline, "accuracy_when_cut", lambda *_: cut)
    started = job(compression)
    found = preflight.with_strength(started, {}, 0.9).strength
    assert found == pytest.approx(expected, abs=0.01)
    assert started.workspace.kept == {"m": found}


def test_from_15_times_on_every_target_is_strong_and_nothing_is_measured(monkeypatch):
    monkeypatch.setattr(preflight.baseline, "accuracy_when_cut", None)
    assert preflight.with_strength(job(15), {}, 0.9).strength == 1.0
