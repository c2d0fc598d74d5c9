"""A phase that stopped goes on as if it had not."""

from pathlib import Path

import pytest
import torch

from ltp_pipeline.stages import learn_thresholds
from ltp_pipeline.stages.train import loop
from ltp_pipeline.stages.train.context import RunContext
from ltp_pipeline.stages.train.loop import train
from ltp_pipeline.system.arrays import StateDict
from tests.support.contexts import plain_phase, with_target, with_train

KEPT = {"sgd": {"momentum_buffer"}, "adamw": {"exp_avg", "exp_avg_sq", "step"}}


def stop_after(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next training save after each step and be interrupted."""
    original, steps_done = loop._train_step, []

    def step(*arguments: object) -> None:
        steps_done.append(1)
        if len(steps_done) == steps:
            monkeypatch.setattr(loop, "_train_step", original)
            raise KeyboardInterrupt
        original(*arguments)

    monkeypatch.setattr(loop, "SAVE_EVERY_SECONDS", 0.0)
    monkeypatch.setattr(loop, "_train_step", step)


@pytest.mark.parametrize("optimizer", KEPT)
def test_train_resumed_gives_the_same_bytes(
    started: tuple[RunContext, StateDict], monkeypatch: pytest.MonkeyPatch, optimizer: str
):
    context, state = started
    context = with_train(context, optimizer=optimizer, weight_decay=0.1)
    checkpoint = context.run_directory.root / "state" / "finetune.safetensors"
    whole = train(context, dict(state), plain_phase(context), 1)
    written = checkpoint.read_bytes()
    checkpoint.unlink()
    stop_after(4, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        train(context, dict(state), plain_phase(context), 1)
    again = train(context, dict(state), plain_phase(context), 1)
    assert all(torch.equal(whole[n], again[n]) for n in whole)
    assert checkpoint.read_bytes() == written


@pytest.mark.parametrize("optimizer", KEPT)
def test_checkpoint_has_the_full_optimizer_state(
    started: tuple[RunContext, StateDict], optimizer: str
):
    context, state = started
    context = with_train(context, optimizer=optimizer)
    train(context, state, plain_phase(context), 1)
    saved_state = context.run_directory.load_state("finetune")
    assert saved_state is not None
    optimizer_names = {name for name in saved_state[0] if name.startswith("optimizer/")}
    assert optimizer_names == {
        f"optimizer/{key}/{n}"
        for key in KEPT[optimizer]
        for n in context.network.forward.weight_names
    }


def test_learn_resumed_with_adamw_gives_the_same_trail(
    started: tuple[RunContext, StateDict], monkeypatch: pytest.MonkeyPatch
):
    context, state = started
    context = with_target(with_train(context, optimizer="adamw", epochs=1, finetune_epochs=0), 8.0)

    def learned() -> bytes:
        (entry,) = learn_thresholds.run(context, state, 0.9).trail
        return Path(context.run_directory.trail_path(entry.entry)).read_bytes()

    whole = learned()
    (context.run_directory.root / "state" / "learn.safetensors").unlink()
    stop_after(4, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        learned()
    assert learned() == whole
