"""The training loop's own pieces: losses, learning rate, running statistics, distillation."""

import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from ltp_pipeline import import_model
from ltp_pipeline.config import Settings
from ltp_pipeline.data import open_data
from ltp_pipeline.demo import copy_to
from ltp_pipeline.errors import TrainingFailed
from ltp_pipeline.records import TrailEntry
from ltp_pipeline.stages import learn_thresholds
from ltp_pipeline.stages import training as loop
from ltp_pipeline.stages.allocation import enough_for
from ltp_pipeline.stages.finetune import Masked
from ltp_pipeline.stages.import_model.program import NodeError
from ltp_pipeline.stages.prune import count_nonzeros
from ltp_pipeline.workspace import Workspace


@pytest.fixture
def training(tmp_path: Path) -> loop.Training:
    copy_to(tmp_path / "example")
    imported = import_model(tmp_path / "example" / "model.onnx")
    settings = Settings.model_validate({"data": {"path": tmp_path / "example" / "digits.npz", "scale": 0.0625}})
    data = open_data(settings.data, imported.file.inputs[0], 0)
    workspace = Workspace(tmp_path / "run")
    workspace.open({})
    return loop.Training(imported, data, settings.train, workspace, torch.device("cpu"))


def test_learning_rate_falls_from_its_start_to_zero():
    assert [loop.cosine(i, 10, 0.1) for i in (0, 5, 10)] == pytest.approx([0.1, 0.05, 0.0])


def test_the_teacher_runs_with_the_original_weights_and_leaves_the_student_alone(training: loop.Training):
    tensors = training.imported.module.tensors()
    teacher = {n: t.detach().clone() for n, t in tensors.items()}
    student = replace(training, teacher=teacher, settings=training.settings.model_copy(update={"distill": 1.0}))
    x, y = (torch.from_numpy(a) for a in (training.data.train.read(np.arange(32)), training.data.train.labels[:32]))
    with torch.no_grad():
        tensors["stem.weight"].zero_()
    before = {n: t.clone() for n, t in teacher.items()}
    loss = student._loss(training.imported.module, x, y, None)
    loss.backward()
    assert loss.item() > 0.1
    assert tensors["classifier.weight"].grad.abs().sum() > 0
    assert all(torch.equal(before[n], teacher[n]) for n in teacher)


def test_refreshed_statistics_are_the_mean_over_batches(training: loop.Training):
    """The first BatchNormalization sees the stem's output: its statistics can be computed by hand."""
    tensors = training.imported.module.tensors()
    with torch.no_grad():
        tensors["stem.bn.mean"].fill_(7.0)
        tensors["stem.bn.var"].fill_(9.0)
    training.refresh_statistics()
    rng = np.random.default_rng(loop._seed(training.settings.seed, "statistics"))
    rows = rng.permutation(len(training.data.train))[: len(training.data.train) // 128 * 128]
    x = torch.from_numpy(training.data.train.read(rows))
    y = F.conv2d(x, tensors["stem.weight"].detach(), padding=1)
    assert torch.allclose(tensors["stem.bn.mean"], y.mean((0, 2, 3)), atol=1e-4)
    by_batch = torch.stack([b.var((0, 2, 3)) for b in y.split(128)]).mean(0)
    assert torch.allclose(tensors["stem.bn.var"], by_batch, rtol=1e-3, atol=1e-5)


def test_judging_does_not_move_weights_or_statistics(training: loop.Training):
    before = {n: t.clone() for n, t in training.imported.module.tensors().items()}
    assert training.accuracy(training.data.val) > 0.9
    assert all(torch.equal(before[n], t) for n, t in training.imported.module.tensors().items())


def test_statistics_behind_dropout_do_not_depend_on_what_was_drawn_before(training: loop.Training, monkeypatch):
    """So that a run that goes on measures what an uninterrupted one measures."""
    seen = []
    monkeypatch.setattr(loop.statistics, "refresh", lambda *_: seen.append(torch.rand(3)))
    for drawn in (1, 7):
        torch.rand(drawn)
        training.refresh_statistics()
    assert torch.equal(*seen)


def plain(training: loop.Training) -> Masked:
    return Masked(training, {}, "finetune", "finetune")


def test_zeros_of_a_kernel_that_is_not_pruned_stay(training: loop.Training):
    kernels = [k if k.name != "stem.weight" else replace(k, reason="excluded") for k in training.imported.kernels]
    training = replace(training, imported=replace(training.imported, kernels=tuple(kernels)))
    stem = training.imported.module.tensors()["stem.weight"]
    with torch.no_grad():
        stem[::2] = 0
    before = stem.detach().clone()
    training.run(plain(training), 1)
    assert torch.equal(stem != 0, before != 0)
    assert not torch.equal(stem, before)


def test_weights_that_diverge_in_the_last_step_of_an_epoch_are_named(training: loop.Training):
    class Diverging(Masked):
        def after_step(self, optimizer: torch.optim.SGD) -> None:  # noqa: ARG002 - the shape of a Phase
            with torch.no_grad():
                training.imported.module.tensors()["stem.weight"].fill_(torch.nan)

    one_step = training.settings.model_copy(update={"batch_size": len(training.data.train)})
    training = replace(training, settings=one_step)
    with pytest.raises(TrainingFailed, match=r"diverged in finetune, epoch 1, step 0; tensor 'stem\.weight'"):
        training.run(Diverging(training, {}, "finetune", "finetune"), 2)


@pytest.mark.parametrize("where", ["in a node", "elsewhere"])
def test_running_out_of_memory_says_what_helps(where: str):
    def step() -> None:
        try:
            raise torch.OutOfMemoryError
        except torch.OutOfMemoryError as error:
            if where == "in a node":
                raise NodeError("node 3") from error
            raise

    with pytest.raises(TrainingFailed, match="does not hold 128 samples"), enough_for(128):
        step()


@pytest.mark.parametrize(("pruned", "fails"), [(1.0, True), (1.0004, False)])
def test_nothing_was_pruned_is_said_only_where_nothing_was(
    training: loop.Training, monkeypatch: pytest.MonkeyPatch, pruned: float, fails: bool
):
    """A small share of a large network may be all that was to be pruned; zeros of the original do not count."""
    with torch.no_grad():
        training.imported.module.tensors()["stem.weight"][::2] = 0
    nonzeros = sum(count_nonzeros(training.imported).values())
    before = sum(k.elements for k in training.imported.kernels) / nonzeros
    entry = TrailEntry(1, 1, before * pruned, 0.9, "trail/001.onnx", {}, {})
    monkeypatch.setattr(loop.Training, "run", lambda *_, **__: None)
    monkeypatch.setattr(learn_thresholds.trail, "read", lambda _: [entry])
    settings = Settings.model_validate({"method": {"lambda": 1e-9}})
    with pytest.raises(TrainingFailed, match="nothing was pruned") if fails else nullcontext():
        assert learn_thresholds.run(training.imported, training, settings, 0.9).trail == (entry,)


def test_steps_that_become_slow_are_told_while_training(training: loop.Training, monkeypatch: pytest.MonkeyPatch):
    said: list[str] = []
    monkeypatch.setattr(training.workspace.progress, "say", said.append, raising=False)
    monkeypatch.setattr(loop.Training, "_step", lambda _, *a: time.sleep(0.005 if a[3].step < 10 else 0.05))
    training.run(plain(training), 3)
    assert len(said) == 1
    assert "times as long as at first" in said[0]
