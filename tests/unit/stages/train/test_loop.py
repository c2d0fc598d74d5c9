"""The training loop's own pieces: learning rate, running statistics, the teacher, zeros that stay."""

import time
from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ltp_pipeline.errors import TrainingFailed
from ltp_pipeline.stages.finetune import MaskedTrainingPhase
from ltp_pipeline.stages.train import batches, loop
from ltp_pipeline.stages.train.context import RunContext
from ltp_pipeline.stages.train.loop import train
from ltp_pipeline.stages.train.phase import StepPosition
from ltp_pipeline.system.arrays import StateDict
from tests.support.contexts import plain_phase, with_train


def test_learning_rate_falls_from_its_start_to_zero():
    assert [loop.learning_rate_at(i, 10, 0.1) for i in (0, 5, 10)] == pytest.approx(
        [0.1, 0.05, 0.0]
    )


def test_learning_rate_with_warmup_rises_linearly():
    assert [loop.learning_rate_at(i, 20, 0.3, 0.1) for i in (0, 1, 2, 11, 20)] == pytest.approx(
        [0.1, 0.2, 0.3, 0.15, 0.0]
    )


@given(st.integers(1, 500), st.floats(0, 1, exclude_max=True), st.floats(1e-6, 1))
def test_learning_rate_is_positive_and_at_most_its_peak(steps, warmup, lr):
    rates = [loop.learning_rate_at(i, steps, lr, warmup) for i in range(steps)]
    assert min(rates) > 0
    assert max(rates) <= lr
    peak = rates.index(max(rates))
    assert rates == sorted(rates[:peak]) + sorted(rates[peak:], reverse=True)


@pytest.mark.parametrize(("clip", "within"), [(0.0, False), (0.001, True)])
def test_gradient_norm_is_clipped(started: tuple[RunContext, StateDict], clip: float, within: bool):
    class Noting(MaskedTrainingPhase):
        def after_backward(self, at: StepPosition) -> None:  # noqa: ARG002 - the shape of a Phase
            parts = [t.grad.norm() for t in self.tensors.values() if t.grad is not None]
            lengths.append(float(torch.stack(parts).norm()))

    lengths: list[float] = []
    context, state = started
    context = with_train(context, max_grad_norm=clip)
    train(
        context,
        state,
        partial(Noting, context=context, masks={}, name="finetune", key="finetune"),
        1,
    )
    assert (max(lengths) <= 0.001 * (1 + 1e-5)) == within


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_train_step_uses_its_learning_rate(started: tuple[RunContext, StateDict], optimizer: str):
    class Noting(MaskedTrainingPhase):
        def after_backward(self, at: StepPosition) -> None:
            rates.append([at.lr])

        def after_step(self, optimizer: torch.optim.Optimizer) -> None:
            rates[-1] += [group["lr"] for group in optimizer.param_groups]

    rates: list[list[float]] = []
    context, state = started
    context = with_train(context, optimizer=optimizer)
    train(
        context,
        state,
        partial(Noting, context=context, masks={}, name="finetune", key="finetune"),
        1,
    )
    assert all(len(set(group_rates)) == 1 for group_rates in rates)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_thresholds_with_adamw_use_the_default_rate_of_sgd(
    started: tuple[RunContext, StateDict], optimizer: str
):
    class Noting(MaskedTrainingPhase):
        def after_backward(self, at: StepPosition) -> None:
            rates.append((at.lr, at.threshold_lr))

    rates: list[tuple[float, float]] = []
    context, state = started
    context = with_train(context, optimizer=optimizer, lr=0.002, warmup_fraction=0.0)
    train(
        context,
        state,
        partial(Noting, context=context, masks={}, name="finetune", key="finetune"),
        1,
    )
    expected = {"sgd": 0.002, "adamw": 0.03}[optimizer]
    assert rates[0] == pytest.approx((0.002, expected))
    assert all(mine / expected == pytest.approx(lr / 0.002) for lr, mine in rates)


def test_teacher_uses_original_weights_only(
    started: tuple[RunContext, StateDict],
):
    context, teacher = started
    context = replace(context, teacher=teacher, task=replace(context.task, distillation_weight=1.0))
    student = {n: t.clone().requires_grad_(t.is_floating_point()) for n, t in teacher.items()}
    with torch.no_grad():
        student["stem.weight"].zero_()
    before = {n: t.clone() for n, t in teacher.items()}
    (batch, *_) = batches.epoch_batches(context, "learn", 0, 0)
    loss = loop._compute_loss(
        context, lambda x, weights: context.network.forward(x, {**student, **weights}), {}, batch
    )
    loss.backward()
    assert loss.item() > 0.1
    assert student["classifier.weight"].grad.abs().sum() > 0
    assert all(torch.equal(before[n], teacher[n]) for n in teacher)


def test_train_does_not_change_its_input_state(started: tuple[RunContext, StateDict]):
    context, state = started
    before = {n: t.clone() for n, t in state.items()}
    trained = train(context, given := dict(state), plain_phase(context), 1)
    assert not given
    assert list(trained) == list(state)
    assert all(torch.equal(before[n], t) for n, t in state.items())
    assert not torch.equal(trained["stem.weight"], state["stem.weight"])


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_train_zeros_of_unpruned_layer_stay_zero(
    started: tuple[RunContext, StateDict], optimizer: str
):
    context, state = started
    context = with_train(context, optimizer=optimizer)
    kernels = [
        k if k.name != "stem.weight" else replace(k, reason="excluded")
        for k in context.network.layer_weights
    ]
    context = replace(context, network=replace(context.network, layer_weights=tuple(kernels)))
    before = state["stem.weight"].clone()
    before[::2] = 0
    after = train(context, {**state, "stem.weight": before}, plain_phase(context), 1)["stem.weight"]
    assert torch.equal(after != 0, before != 0)
    assert not torch.equal(after, before)


def test_train_divergence_in_last_step_names_the_tensor(
    started: tuple[RunContext, StateDict],
):
    class Diverging(MaskedTrainingPhase):
        def after_step(self, optimizer: torch.optim.Optimizer) -> None:  # noqa: ARG002 - the shape of a Phase
            with torch.no_grad():
                self.tensors["stem.weight"].fill_(torch.nan)

    context, state = started
    context = with_train(context, batch_size=len(context.data.train))
    begin = partial(Diverging, context=context, masks={}, name="finetune", key="finetune")
    with pytest.raises(
        TrainingFailed, match=r"\bfinetune\b.*\bepoch 1\b.*\bstep 0\b.*'stem\.weight'"
    ):
        train(context, state, begin, 2)


def test_train_slow_steps_are_reported(
    started: tuple[RunContext, StateDict], monkeypatch: pytest.MonkeyPatch
):
    notes: list[str] = []
    context, state = started

    def slow(*arguments: object) -> None:
        at = arguments[4]
        at.loss = 0.0
        time.sleep(0.005 if at.step < 10 else 0.05)

    monkeypatch.setattr(context.run_directory.progress, "say", notes.append, raising=False)
    monkeypatch.setattr(loop, "_train_step", slow)
    train(context, state, plain_phase(context), 3)
    assert len(notes) == 1
    assert "times as long as at first" in notes[0]
