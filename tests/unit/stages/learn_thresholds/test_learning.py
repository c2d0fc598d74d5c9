"""The phase in which thresholds are learned."""

from types import SimpleNamespace
from typing import Any

import torch

from ltp_pipeline.stages.learn_thresholds.learning import Learning


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
