"""The phase in which thresholds are learned."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ltp_pipeline.metric import Metric
from ltp_pipeline.records import TrailEntry
from ltp_pipeline.stages.learn_thresholds.learning import Learning

ERROR = Metric("MAE", "°C", higher_is_better=False, share=False)


def test_momentum_of_pruned_weights_is_cleared_and_that_of_others_kept():
    """A weight whose gradient is zero lies below its threshold."""
    w = torch.ones(4, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.1, momentum=0.9)
    w.grad = torch.tensor([1.0, -2.0, 3.0, 4.0])
    optimizer.step()
    w.grad = torch.tensor([0.0, -2.0, 0.0, 4.0])
    method: Any = SimpleNamespace(live={"w": w})
    job: Any = SimpleNamespace(epochs=1)
    Learning({"w": w}, job, method).after_step(optimizer)
    assert optimizer.state[w]["momentum_buffer"].tolist() == [0.0, -2.0, 0.0, 4.0]


@pytest.mark.parametrize(
    ("metric", "least", "mildest", "told"),
    [
        (Metric(), 0.9, 0.879, True),
        (Metric(), 0.9, 0.881, False),
        (ERROR, 10.0, 10.21, True),
        (ERROR, 10.0, 10.19, False),
        (ERROR, 10.0, 5.0, False),
    ],
)
def test_a_budget_that_looks_out_of_reach_is_told_in_the_direction_of_the_metric(metric, least, mildest, told):
    said: list[str] = []
    progress = SimpleNamespace(say=said.append)
    job: Any = SimpleNamespace(task=SimpleNamespace(metric=metric), workspace=SimpleNamespace(progress=progress))
    method: Any = SimpleNamespace(live={})
    Learning({}, job, method, least)._warn(TrailEntry(1, 1, 2.0, mildest, ""), least)
    assert bool(said) == told
