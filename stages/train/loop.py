"""The one training loop: learning thresholds, fine-tuning and the baseline differ only in their Phase.

Everything random is a function of (seed, phase, epoch, step), so a run that stops and goes on takes the same steps as
one that was never interrupted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from ltp_pipeline.errors import TrainingFailed
from ltp_pipeline.results.metric import on_validation
from ltp_pipeline.stages.import_model.program import NodeError
from ltp_pipeline.stages.train import checkpoint, memory
from ltp_pipeline.stages.train.batches import TensorBatch, epoch_batches, seed_of
from ltp_pipeline.stages.train.distributed import LiveForward, wrap
from ltp_pipeline.stages.train.job import RunContext
from ltp_pipeline.stages.train.optimizer import make_optimizer
from ltp_pipeline.stages.train.pace import Pace
from ltp_pipeline.stages.train.phase import Begin, Phase, StepPosition, epochs_between_entries
from ltp_pipeline.system import distributed
from ltp_pipeline.system.arrays import StateDict
from ltp_pipeline.system.memory import is_shortage

SAVE_EVERY_SECONDS = 120.0


def rate(step: int, steps: int, lr: float, warmup: float = 0.0) -> float:
    """Learning rate that rises to `lr` over a share of the steps, in a line, and falls to zero as a cosine."""
    rising = round(warmup * steps)
    if step < rising:
        return lr * (step + 1) / (rising + 1)
    return lr * 0.5 * (1 + math.cos(math.pi * (step - rising) / (steps - rising)))


def train(
    job: RunContext, state: StateDict, begin: Begin, epochs: int, before: int = 0, after: int = 0
) -> StateDict:
    """Train a copy of `state` for `epochs`, going on from the checkpoint of this phase if there is one.

    The dict that is given is emptied while its tensors are copied, so that no second copy of the network is held; the
    tensors themselves stay as they are. The learning rate is one curve over `before` + `epochs` + `after`, the phases
    that belong together.
    """
    memory.keep_freed_memory()
    settings, progress = job.optimizer, job.workspace.progress
    live = _live(job, state)
    parameters = {name: live[name] for name in job.network.forward.weights}
    optimizer = make_optimizer(job.network, parameters, settings, job.settings.train.momentum)
    phase = begin(live)
    start = checkpoint.resume(job, phase, live, optimizer)
    forward = wrap(job.network.forward, live, parameters)
    zeros = _kept_zeros(job, live)
    per_epoch, every = job.steps_per_epoch, epochs_between_entries(epochs)
    total, whole = per_epoch * epochs, per_epoch * (before + epochs + after)
    saved, pace = time.monotonic(), Pace()
    with memory.enough_for(job.batch_size), progress.task(phase.name, total, start) as bar:
        for at, batch in _steps(job, phase.key, start, total):
            at.lr, at.threshold_lr = (
                rate(before * per_epoch + at.step, whole, lr, settings.warmup)
                for lr in (settings.lr, settings.threshold_lr)
            )
            begun = time.monotonic()
            _step(job, forward, phase, optimizer, at, batch, zeros)
            if not math.isfinite(at.loss):
                raise _not_finite(job, phase.name, at, live)
            if job.device.type == "cpu":
                pace.step(time.monotonic() - begun, progress.say)
            if at.step % max(per_epoch // 10, 1) == 0:
                _log(job, phase, at, phase.log(at))
            shown: dict[str, float] = {"loss": at.loss}
            done = at.step + 1
            if done % per_epoch == 0:
                if not all(bool(p.isfinite().all()) for p in parameters.values()):
                    raise _not_finite(job, phase.name, at, live)
                if (at.epoch + 1) % every == 0 or done == total:
                    shown |= phase.end_epoch(at.epoch)
                _log(job, phase, at, shown)
            if done % per_epoch == 0 or time.monotonic() - saved > SAVE_EVERY_SECONDS:
                checkpoint.save(job, phase, live, optimizer, done)
                saved = time.monotonic()
            bar.advance(
                epoch=at.epoch + 1,
                epochs=epochs,
                end_of_epoch=done % per_epoch == 0,
                **_named(job, shown),
            )
    distributed.barrier()  # until the leader has written the last checkpoint
    return {name: tensor.detach() for name, tensor in live.items()}


def _named(job: RunContext, shown: Mapping[str, float]) -> dict[str, float | str]:
    """What people are shown: the metric by its own name and in its unit."""
    metric = job.task.metric
    found = {name: value for name, value in shown.items() if name != "val_accuracy"}
    if "val_accuracy" not in shown:
        return {**found}
    return {**found, on_validation(metric): metric.shown(shown["val_accuracy"])}


def _live(job: RunContext, state: StateDict) -> dict[str, Tensor]:
    """A copy on the device whose weights can be trained; the dict is emptied."""
    copies = {name: state.pop(name).detach().to(job.device, copy=True) for name in list(state)}
    weights = set(job.network.forward.weights)
    return {name: torch.nn.Parameter(t) if name in weights else t for name, t in copies.items()}


def _kept_zeros(job: RunContext, live: Mapping[str, Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Kernels that are not pruned and have zeros, and where they have none: every budget counts on those."""
    whole = [live[k.name] for k in job.network.kernels if not k.prunable]
    return [(w, w.detach() != 0) for w in whole if not bool(w.detach().all())]


def _steps(
    job: RunContext, key: str, start: int, total: int
) -> Iterator[tuple[StepPosition, TensorBatch]]:
    per_epoch = job.steps_per_epoch
    for epoch in range(start // per_epoch, total // per_epoch):
        first = max(start - epoch * per_epoch, 0)
        for i, batch in enumerate(epoch_batches(job, key, epoch, first)):
            step = epoch * per_epoch + first + i
            process = (distributed.rank(),) if distributed.rank() else ()
            torch.manual_seed(seed_of(job.settings.train.seed, key, step, *process))  # for Dropout
            yield StepPosition(epoch, step, total), batch


def _step(
    job: RunContext,
    forward: LiveForward,
    phase: Phase,
    optimizer: torch.optim.Optimizer,
    at: StepPosition,
    batch: TensorBatch,
    zeros: list[tuple[Tensor, Tensor]],
) -> None:
    for group in optimizer.param_groups:
        group["lr"] = at.lr
    optimizer.zero_grad(set_to_none=True)
    loss = _loss(job, forward, phase.weights(), batch)
    at.loss = float(distributed.all_reduce_mean(loss.detach().clone()))
    if not math.isfinite(at.loss):
        return
    loss.backward()  # type: ignore[no-untyped-call]
    if job.optimizer.clip:
        trained = [p for group in optimizer.param_groups for p in group["params"]]
        torch.nn.utils.clip_grad_norm_(trained, job.optimizer.clip)
    phase.after_backward(at)
    for w, mask in zeros:
        if w.grad is not None:
            w.grad.mul_(mask)
    optimizer.step()
    phase.after_step(optimizer)


def _loss(
    job: RunContext, forward: LiveForward, weights: Mapping[str, Tensor], batch: TensorBatch
) -> Tensor:
    """Weights come in single precision, whatever the forward pass computes in."""
    outputs, taught, precision = job.task.outputs, None, job.settings.train.precision
    with torch.autocast(job.device.type, torch.bfloat16, enabled=precision == "bf16"):
        if job.task.is_taught:
            assert job.teacher is not None  # noqa: S101 - whoever made the job knows the task
            with torch.no_grad():
                given = job.teacher_forward(batch.inputs, job.teacher)
                taught = [given[output.position] for output in outputs]
        try:
            found = forward(batch.inputs, weights)
        except NodeError as error:
            if is_shortage(error):
                raise
            remedy = (
                "use --precision fp32" if precision != "fp32" else "please report this as a bug"
            )
            raise TrainingFailed(f"the model does not run in training: {error}", remedy) from None
    return job.task.loss([found[output.position] for output in outputs], batch.targets, taught)


def _not_finite(
    job: RunContext, name: str, at: StepPosition, live: Mapping[str, Tensor]
) -> TrainingFailed:
    where = next((n for n, t in live.items() if not t.isfinite().all()), None)
    layer = (
        f"tensor {where!r} is not finite"
        if where
        else "every weight is still finite: the activations overflow"
    )
    what = "training diverged" if math.isfinite(at.loss) else "the loss is not finite"
    return TrainingFailed(
        f"{what} in {name}, epoch {at.epoch + 1}, step {at.step}; {layer}",
        f"lower the learning rate (now {job.optimizer.lr:g}) or check the scale of the data; what is done is kept",
    )


def _log(job: RunContext, phase: Phase, at: StepPosition, values: Mapping[str, object]) -> None:
    line = {
        "stage": phase.name,
        "key": phase.key,
        "epoch": at.epoch,
        "step": at.step,
        "loss": at.loss,
        "lr": at.lr,
    }
    job.workspace.log({**line, **values})
