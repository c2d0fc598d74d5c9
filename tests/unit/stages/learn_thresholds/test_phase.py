"""The phase in which thresholds are learned."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ltp_pipeline.errors import TrainingFailed
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.results.schema_parts import LearnedEntry
from ltp_pipeline.stages.learn_thresholds import make_pruning_method, trail
from ltp_pipeline.stages.learn_thresholds.phase import ThresholdLearningPhase
from ltp_pipeline.stages.train.context import RunContext
from ltp_pipeline.stages.train.loop import train
from ltp_pipeline.stages.train.phase import StepPosition
from ltp_pipeline.system import distributed
from ltp_pipeline.system.arrays import StateDict
from tests.support.contexts import with_target, with_train

ERROR = Metric("MAE", "°C", higher_is_better=False, is_fraction=False)


@pytest.mark.parametrize("kind", [partial(torch.optim.SGD, momentum=0.9), torch.optim.AdamW])
def test_phase_clears_momentum_of_pruned_weights(kind: Any):
    """A weight whose gradient is zero lies below its threshold."""
    w = torch.ones(4, requires_grad=True)
    optimizer = kind([w], lr=0.1)
    w.grad = torch.tensor([1.0, -2.0, 3.0, 4.0])
    optimizer.step()
    before = {name: value.clone() for name, value in optimizer.state[w].items()}
    w.grad = torch.tensor([0.0, -2.0, 0.0, 4.0])
    method: Any = SimpleNamespace(layer_weights={"w": w})
    context: Any = SimpleNamespace(epochs=1)
    ThresholdLearningPhase({"w": w}, context, method).after_step(optimizer)
    kept = torch.tensor([0.0, 1.0, 0.0, 1.0])
    after = optimizer.state[w]
    assert before.keys() in ({"momentum_buffer"}, {"exp_avg", "exp_avg_sq", "step"})
    assert all(
        torch.equal(after[name], value if name == "step" else value * kept)
        for name, value in before.items()
    )


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("method", [{}, {"lambda_": 1e-6}], ids=["budget", "paper"])
def test_phase_initial_zeros_stay_zero(
    started: tuple[RunContext, StateDict], optimizer: str, method: dict[str, float]
):
    context, state = started
    context = with_target(with_train(context, optimizer=optimizer, weight_decay=0.1, epochs=1), 8.0)
    settings = context.settings.model_copy(
        update={"method": context.settings.method.model_copy(update=method)}
    )
    kernels = {k.name: state[k.name].flatten() for k in context.network.prunable_weights}
    for w in kernels.values():
        w[::3] = 0
    trained = train(
        context,
        state,
        lambda live: ThresholdLearningPhase(
            live, context, make_pruning_method(context.network, live, settings)
        ),
        1,
    )
    for name, before in kernels.items():
        assert torch.equal(trained[name].flatten() != 0, before != 0), name
        assert not torch.equal(trained[name].flatten(), before)


def learning(
    said: list[str], kept: int = 20, taus: tuple[float, ...] = (1.0, 1.0)
) -> ThresholdLearningPhase:
    """Two layers of ten weights, of which so many are kept."""
    run_directory = SimpleNamespace(progress=SimpleNamespace(say=said.append))
    context: Any = SimpleNamespace(run_directory=run_directory)
    leaf = torch.zeros(2, requires_grad=True)
    leaf.grad = torch.tensor([1.0, 2.0])
    method: Any = SimpleNamespace(
        layer_weights={"first": torch.ones(10), "second": torch.ones(10)},
        threshold_leaf=leaf,
        tau=torch.tensor(taus),
        count_kept=lambda: kept,
        after_backward=lambda _: None,
    )
    return ThresholdLearningPhase(method.layer_weights, context, method)


@pytest.mark.parametrize(("steps", "expected"), [(40, 3), (59, 4), (5, 0)])
def test_phase_without_pruning_warns_once(steps: int, expected: int):
    said: list[str] = []
    told = []
    for step in range(steps):
        learning(said).after_backward(StepPosition(0, step, steps))
        told += [step] * len(said)
        said.clear()
    assert told == [expected]


def test_phase_with_pruning_does_not_warn():
    said: list[str] = []
    for step in range(40):
        learning(said, kept=19).after_backward(StepPosition(0, step, 40))
    assert not said


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_phase_diverging_threshold_raises_with_its_layer(value: float):
    with pytest.raises(TrainingFailed, match=r"'second' .*\bepoch 3\b.*\bstep 7\b"):
        learning([], taus=(1.0, value)).after_backward(StepPosition(2, 7, 40))


def test_thresholds_move_by_the_mean_of_the_gradients_of_all_ranks(monkeypatch: pytest.MonkeyPatch):
    averaged: list[list[float]] = []
    monkeypatch.setattr(
        distributed, "all_reduce_mean", lambda gradient: averaged.append(gradient.tolist())
    )
    learning([]).after_backward(StepPosition(0, 0, 40))
    assert averaged == [[1.0, 2.0]]


@pytest.mark.parametrize(("epochs", "every"), [(4, 1), (48, 2)])
def test_phase_epoch_network_follows_progress_and_warns_once(
    monkeypatch: pytest.MonkeyPatch, epochs: int, every: int
):
    said: list[str] = []
    shares: list[float] = []
    told: list[int] = []
    phase = learning(said)
    phase.context.epochs, phase.context.task, phase.worst_accuracy = (
        epochs,
        SimpleNamespace(metric=Metric()),
        0.9,
    )
    phase.method.pruned_weights = lambda share: shares.append(share) or {}
    entry = LearnedEntry(entry=1, epoch=1, compression=2.0, accuracy=0.5)
    monkeypatch.setattr(trail, "add_entry", lambda *_: entry)
    ends = range(every - 1, epochs, every)
    for epoch in ends:
        found = phase.end_epoch(epoch)
        told += [epoch] * len(said)
        said.clear()
    assert shares == [(epoch + 1) / epochs for epoch in ends]
    assert told == [ends[0]]
    assert found == {"compression": 2.0, "model_compression": 1.0, "val_accuracy": 0.5}


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
def test_phase_unreachable_budget_warns_by_direction(metric, least, mildest, told):
    said: list[str] = []
    progress = SimpleNamespace(say=said.append)
    context: Any = SimpleNamespace(
        task=SimpleNamespace(metric=metric), run_directory=SimpleNamespace(progress=progress)
    )
    method: Any = SimpleNamespace(layer_weights={})
    ThresholdLearningPhase({}, context, method, least)._warn_out_of_reach(
        LearnedEntry(entry=1, epoch=1, compression=2.0, accuracy=mildest), least
    )
    assert bool(said) == told
