"""The phase in which thresholds are learned."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ltp_pipeline.metric import Metric
from ltp_pipeline.records import State, TrailEntry
from ltp_pipeline.stages.learn_thresholds import make_method
from ltp_pipeline.stages.learn_thresholds.learning import Learning
from ltp_pipeline.stages.train import Job, train
from tests.support.jobs import compressed, with_train

ERROR = Metric("MAE", "°C", higher_is_better=False, share=False)


@pytest.mark.parametrize("kind", [partial(torch.optim.SGD, momentum=0.9), torch.optim.AdamW])
def test_what_the_optimizer_keeps_of_pruned_weights_is_cleared_and_that_of_others_kept(kind: Any):
    """A weight whose gradient is zero lies below its threshold."""
    w = torch.ones(4, requires_grad=True)
    optimizer = kind([w], lr=0.1)
    w.grad = torch.tensor([1.0, -2.0, 3.0, 4.0])
    optimizer.step()
    before = {name: value.clone() for name, value in optimizer.state[w].items()}
    w.grad = torch.tensor([0.0, -2.0, 0.0, 4.0])
    method: Any = SimpleNamespace(live={"w": w})
    job: Any = SimpleNamespace(epochs=1)
    Learning({"w": w}, job, method).after_step(optimizer)
    kept = torch.tensor([0.0, 1.0, 0.0, 1.0])
    after = optimizer.state[w]
    assert before.keys() in ({"momentum_buffer"}, {"exp_avg", "exp_avg_sq", "step"})
    assert all(torch.equal(after[name], value if name == "step" else value * kept) for name, value in before.items())


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("method", [{}, {"lambda_": 1e-6}], ids=["budget", "paper"])
def test_what_is_zero_when_learning_begins_stays_zero(
    started: tuple[Job, State], optimizer: str, method: dict[str, float]
):
    job, state = started
    job = compressed(with_train(job, optimizer=optimizer, weight_decay=0.1, epochs=1), 8.0)
    settings = job.settings.model_copy(update={"method": job.settings.method.model_copy(update=method)})
    kernels = {k.name: state[k.name].flatten() for k in job.network.prunable}
    for w in kernels.values():
        w[::3] = 0
    trained = train(job, state, lambda live: Learning(live, job, make_method(job.network, live, settings)), 1)
    for name, before in kernels.items():
        assert torch.equal(trained[name].flatten() != 0, before != 0), name
        assert not torch.equal(trained[name].flatten(), before)


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
