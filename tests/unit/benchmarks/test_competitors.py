"""Methods that learned thresholds are compared with."""

import pytest
import torch

from benchmarks.competitors import GradualMagnitude
from ltp_pipeline.stages.train.phase import StepPosition

STEPS = 10


@pytest.fixture
def method() -> GradualMagnitude:
    weights = {"a": torch.arange(1.0, 61.0), "b": -torch.arange(61.0, 101.0)}
    return GradualMagnitude(weights, 20)


def test_gradual_magnitude_begins_with_all_weights(method: GradualMagnitude):
    assert method.count_kept() == 100
    assert all(bool((w != 0).all()) for w in method.effective_weights().values())


def test_gradual_magnitude_reaches_its_count_along_a_cubic_schedule(method: GradualMagnitude):
    counts = []
    for step in range(STEPS):
        method.after_backward(StepPosition(0, step, STEPS, lr=0.1, threshold_lr=0.1))
        counts.append(method.count_kept())
    assert counts == [20 + round(80 * (1 - (step + 1) / STEPS) ** 3) for step in range(STEPS)]
    assert not method.effective_weights()["a"].any()


def test_gradual_magnitude_pruned_weights_are_the_largest(method: GradualMagnitude):
    pruned = method.pruned_weights(1.0)
    assert not pruned["a"].any()
    assert pruned["b"].tolist() == [0.0] * 20 + [-float(w) for w in range(81, 101)]
