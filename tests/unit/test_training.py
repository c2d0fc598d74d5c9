"""The training loop's own pieces: learning rate, running statistics, the teacher, zeros that stay."""

import time
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper

import ltp_pipeline
from ltp_pipeline.config import Settings
from ltp_pipeline.data import open_data
from ltp_pipeline.demo import copy_to
from ltp_pipeline.errors import TrainingFailed
from ltp_pipeline.records import State, TrailEntry
from ltp_pipeline.stages import learn_thresholds
from ltp_pipeline.stages.finetune import Masked
from ltp_pipeline.stages.import_model.program import NodeError
from ltp_pipeline.stages.prune import count_nonzeros
from ltp_pipeline.stages.train import Job, batching, loop, train
from ltp_pipeline.stages.train.evaluate import accuracy
from ltp_pipeline.stages.train.memory import enough_for
from ltp_pipeline.stages.train.statistics import refreshed
from ltp_pipeline.task import Output
from ltp_pipeline.tasks import Classification
from ltp_pipeline.workspace import Workspace
from tests.support.models import Graph, as_model
from tests.support.samples import only

CPU = torch.device("cpu")


@pytest.fixture
def started(tmp_path: Path) -> tuple[Job, State]:
    """The embedded example, ready to be trained."""
    copy_to(tmp_path / "example")
    network, state = ltp_pipeline.import_model(tmp_path / "example" / "model.onnx")
    settings = Settings.model_validate({"data": {"path": tmp_path / "example" / "digits.npz", "scale": 0.0625}})
    data = open_data(settings.data, network.file.inputs[0], 0)
    workspace = Workspace(tmp_path / "run")
    workspace.begin({})
    task = Classification(Output(0, network.file.outputs[0].name, "scores"), 10)
    return Job(network, task, data, settings, workspace, CPU), state


def plain(job: Job) -> partial[Masked]:
    return partial(Masked, job=job, masks={}, name="finetune", key="finetune")


def with_train(job: Job, **train: object) -> Job:
    settings = job.settings.model_copy(update={"train": job.settings.train.model_copy(update=train)})
    return replace(job, settings=settings)


def test_learning_rate_falls_from_its_start_to_zero():
    assert [loop.cosine(i, 10, 0.1) for i in (0, 5, 10)] == pytest.approx([0.1, 0.05, 0.0])


def test_the_teacher_runs_with_the_original_weights_and_leaves_the_student_alone(started: tuple[Job, State]):
    job, teacher = started
    job = replace(job, teacher=teacher, task=replace(job.task, distill=1.0))
    student = {n: t.clone().requires_grad_(t.is_floating_point()) for n, t in teacher.items()}
    with torch.no_grad():
        student["stem.weight"].zero_()
    before = {n: t.clone() for n, t in teacher.items()}
    (batch, *_) = batching.epoch_batches(job, "learn", 0, 0)
    loss = loop._loss(job, lambda x, weights: job.network.forward(x, {**student, **weights}), {}, batch)
    loss.backward()
    assert loss.item() > 0.1
    assert student["classifier.weight"].grad.abs().sum() > 0
    assert all(torch.equal(before[n], teacher[n]) for n in teacher)


def test_refreshed_statistics_are_the_mean_over_batches(started: tuple[Job, State]):
    """The first BatchNormalization sees the stem's output: its statistics can be computed by hand."""
    job, state = started
    state = {**state, "stem.bn.mean": torch.full((16,), 7.0), "stem.bn.var": torch.full((16,), 9.0)}
    found = refreshed(job, state)
    rng = np.random.default_rng(batching.seed_of(job.settings.train.seed, "statistics"))
    rows = rng.permutation(len(job.data.train))[: len(job.data.train) // 128 * 128]
    y = F.conv2d(torch.from_numpy(only(job.data.train.read(rows))), state["stem.weight"], padding=1)
    assert torch.allclose(found["stem.bn.mean"], y.mean((0, 2, 3)), atol=1e-4)
    by_batch = torch.stack([b.var((0, 2, 3)) for b in y.split(128)]).mean(0)
    assert torch.allclose(found["stem.bn.var"], by_batch, rtol=1e-3, atol=1e-5)
    assert state["stem.bn.mean"].eq(7.0).all()


def test_statistics_of_a_norm_in_a_function_are_refreshed_and_those_given_stay(started: tuple[Job, State]):
    job, _ = started
    g = Graph()
    x = g.batch_norm(g.conv("image", "conv", 1, 4), "outer", 4)
    norm = helper.make_node("BatchNormalization", ["x", "s", "b", "m", "v"], ["y"])
    function = helper.make_function(
        "local", "Norm", ["x", "s", "b", "m", "v"], ["y"], [norm], [helper.make_opsetid("", 17)]
    )
    names = [g.positive("s", 4), g.random("b", 4), g.tensor("m", np.full(4, 7.0)), g.tensor("v", np.full(4, 9.0))]
    g.nodes.append(helper.make_node("Norm", [x, *names], ["n"], domain="local"))
    g.add("GlobalAveragePool", "n", outputs=("out",))
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("image", "out")]
    values[0].CopyFrom(helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 1, 8, 8]))
    graph = helper.make_graph(g.nodes, "g", values[:1], values[1:], g.tensors)
    model = as_model(graph, 17, imports=[helper.make_opsetid("local", 1)], functions=[function])
    network, state = ltp_pipeline.import_model(model)
    found = refreshed(replace(job, network=network), state)
    assert state["m"].eq(7.0).all()
    assert state["v"].eq(9.0).all()
    assert found["m"].abs().max() < 6.0
    assert not torch.equal(found["outer.running_mean"], state["outer.running_mean"])


def test_evaluating_does_not_move_weights_or_statistics(started: tuple[Job, State]):
    job, state = started
    before = {n: t.clone() for n, t in state.items()}
    assert accuracy(job, state, job.data.val) > 0.9
    assert all(torch.equal(before[n], t) for n, t in state.items())


def test_training_leaves_the_state_it_was_given_alone(started: tuple[Job, State]):
    job, state = started
    before = {n: t.clone() for n, t in state.items()}
    trained = train(job, state, plain(job), 1)
    assert list(trained) == list(state)
    assert all(torch.equal(before[n], t) for n, t in state.items())
    assert not torch.equal(trained["stem.weight"], state["stem.weight"])


def test_statistics_behind_dropout_do_not_depend_on_what_was_drawn_before(started: tuple[Job, State]):
    """So that a run that goes on measures what an uninterrupted one measures."""
    job, _ = started
    seen = []
    for drawn in (1, 7):
        torch.rand(drawn)
        next(batching.statistics_batches(job))
        seen.append(torch.rand(3))
    assert torch.equal(*seen)


def test_zeros_of_a_kernel_that_is_not_pruned_stay(started: tuple[Job, State]):
    job, state = started
    kernels = [k if k.name != "stem.weight" else replace(k, reason="excluded") for k in job.network.kernels]
    job = replace(job, network=replace(job.network, kernels=tuple(kernels)))
    before = state["stem.weight"].clone()
    before[::2] = 0
    after = train(job, {**state, "stem.weight": before}, plain(job), 1)["stem.weight"]
    assert torch.equal(after != 0, before != 0)
    assert not torch.equal(after, before)


def test_weights_that_diverge_in_the_last_step_of_an_epoch_are_named(started: tuple[Job, State]):
    class Diverging(Masked):
        def after_step(self, optimizer: torch.optim.SGD) -> None:  # noqa: ARG002 - the shape of a Phase
            with torch.no_grad():
                self.live["stem.weight"].fill_(torch.nan)

    job, state = started
    job = with_train(job, batch_size=len(job.data.train))
    begin = partial(Diverging, job=job, masks={}, name="finetune", key="finetune")
    with pytest.raises(TrainingFailed, match=r"diverged in finetune, epoch 1, step 0; tensor 'stem\.weight'"):
        train(job, state, begin, 2)


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
    started: tuple[Job, State], monkeypatch: pytest.MonkeyPatch, pruned: float, fails: bool
):
    """A small share of a large network may be all that was to be pruned; zeros of the original do not count."""
    job, state = started
    state["stem.weight"][::2] = 0
    nonzeros = sum(count_nonzeros(job.network, state).values())
    before = sum(k.elements for k in job.network.kernels) / nonzeros
    entry = TrailEntry(1, 1, before * pruned, 0.9, "trail/001.onnx", {}, {})
    monkeypatch.setattr(learn_thresholds, "train", lambda *_, **__: None)
    monkeypatch.setattr(learn_thresholds.trail, "read", lambda _: [entry])
    with pytest.raises(TrainingFailed, match="nothing was pruned") if fails else nullcontext():
        assert learn_thresholds.run(job, state, 0.9).trail == (entry,)


def test_steps_that_become_slow_are_told_while_training(started: tuple[Job, State], monkeypatch: pytest.MonkeyPatch):
    said: list[str] = []
    job, state = started

    def slow(*arguments: object) -> None:
        at = arguments[4]
        at.loss = 0.0
        time.sleep(0.005 if at.step < 10 else 0.05)

    monkeypatch.setattr(job.workspace.progress, "say", said.append, raising=False)
    monkeypatch.setattr(loop, "_step", slow)
    train(job, state, plain(job), 3)
    assert len(said) == 1
    assert "times as long as at first" in said[0]
