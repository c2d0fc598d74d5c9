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
from ltp_pipeline.stages.train.batches import TensorBatch, derive_seed, epoch_batches
from ltp_pipeline.stages.train.distributed import LiveForward, wrap_forward
from ltp_pipeline.stages.train.job import RunContext
from ltp_pipeline.stages.train.optimizer import make_optimizer
from ltp_pipeline.stages.train.pace import SlowdownMonitor
from ltp_pipeline.stages.train.phase import (
    Phase,
    PhaseFactory,
    StepPosition,
    epochs_between_entries,
)
from ltp_pipeline.system import distributed
from ltp_pipeline.system.arrays import StateDict
from ltp_pipeline.system.memory import is_shortage

SAVE_EVERY_SECONDS = 120.0


def learning_rate_at(step: int, steps: int, lr: float, warmup: float = 0.0) -> float:
    """Learning rate that rises to `lr` over a share of the steps, in a line, and falls to zero as a cosine."""
    rising = round(warmup * steps)
    if step < rising:
        return lr * (step + 1) / (rising + 1)
    return lr * 0.5 * (1 + math.cos(math.pi * (step - rising) / (steps - rising)))


def train(
    context: RunContext,
    state: StateDict,
    begin: PhaseFactory,
    epochs: int,
    before: int = 0,
    after: int = 0,
) -> StateDict:
    """Train a copy of `state` for `epochs`, going on from the checkpoint of this phase if there is one.

    The dict that is given is emptied while its tensors are copied, so that no second copy of the network is held; the
    tensors themselves stay as they are. The learning rate is one curve over `before` + `epochs` + `after`, the phases
    that belong together.
    """
    memory.keep_freed_memory()
    settings, progress = context.optimizer, context.workspace.progress
    live = _copy_to_device(context, state)
    parameters = {name: live[name] for name in context.network.forward.weights}
    optimizer = make_optimizer(
        context.network, parameters, settings, context.settings.train.momentum
    )
    phase = begin(live)
    start = checkpoint.resume_checkpoint(context, phase, live, optimizer)
    forward = wrap_forward(context.network.forward, live, parameters)
    zeros = _fixed_zeros(context, live)
    per_epoch, every = context.steps_per_epoch, epochs_between_entries(epochs)
    total, whole = per_epoch * epochs, per_epoch * (before + epochs + after)
    saved, pace = time.monotonic(), SlowdownMonitor()
    with (
        memory.explain_shortage(context.batch_size),
        progress.task(phase.name, total, start) as bar,
    ):
        for at, batch in _iter_steps(context, phase.key, start, total):
            at.lr, at.threshold_lr = (
                learning_rate_at(before * per_epoch + at.step, whole, lr, settings.warmup_fraction)
                for lr in (settings.lr, settings.threshold_lr)
            )
            begun = time.monotonic()
            _train_step(context, forward, phase, optimizer, at, batch, zeros)
            if not math.isfinite(at.loss):
                raise _divergence_error(context, phase.name, at, live)
            if context.device.type == "cpu":
                pace.record_step(time.monotonic() - begun, progress.say)
            if at.step % max(per_epoch // 10, 1) == 0:
                _log_step(context, phase, at, phase.log_values(at))
            shown: dict[str, float] = {"loss": at.loss}
            done = at.step + 1
            if done % per_epoch == 0:
                if not all(bool(p.isfinite().all()) for p in parameters.values()):
                    raise _divergence_error(context, phase.name, at, live)
                if (at.epoch + 1) % every == 0 or done == total:
                    shown |= phase.end_epoch(at.epoch)
                _log_step(context, phase, at, shown)
            if done % per_epoch == 0 or time.monotonic() - saved > SAVE_EVERY_SECONDS:
                checkpoint.save_checkpoint(context, phase, live, optimizer, done)
                saved = time.monotonic()
            bar.advance(
                epoch=at.epoch + 1,
                epochs=epochs,
                end_of_epoch=done % per_epoch == 0,
                **_displayed_values(context, shown),
            )
    distributed.barrier()  # until the leader has written the last checkpoint
    return {name: tensor.detach() for name, tensor in live.items()}


def _displayed_values(context: RunContext, shown: Mapping[str, float]) -> dict[str, float | str]:
    """What people are shown: the metric by its own name and in its unit."""
    metric = context.task.metric
    found = {name: value for name, value in shown.items() if name != "val_accuracy"}
    if "val_accuracy" not in shown:
        return {**found}
    return {**found, on_validation(metric): metric.shown(shown["val_accuracy"])}


def _copy_to_device(context: RunContext, state: StateDict) -> dict[str, Tensor]:
    """A copy on the device whose weights can be trained; the dict is emptied."""
    copies = {name: state.pop(name).detach().to(context.device, copy=True) for name in list(state)}
    weights = set(context.network.forward.weights)
    return {name: torch.nn.Parameter(t) if name in weights else t for name, t in copies.items()}


def _fixed_zeros(context: RunContext, tensors: Mapping[str, Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Kernels that are not pruned and have zeros, and where they have none: every budget counts on those."""
    whole = [tensors[k.name] for k in context.network.kernels if not k.prunable]
    return [(w, w.detach() != 0) for w in whole if not bool(w.detach().all())]


def _iter_steps(
    context: RunContext, key: str, start: int, total: int
) -> Iterator[tuple[StepPosition, TensorBatch]]:
    per_epoch = context.steps_per_epoch
    for epoch in range(start // per_epoch, total // per_epoch):
        first = max(start - epoch * per_epoch, 0)
        for i, batch in enumerate(epoch_batches(context, key, epoch, first)):
            step = epoch * per_epoch + first + i
            process = (distributed.rank(),) if distributed.rank() else ()
            torch.manual_seed(
                derive_seed(context.settings.train.seed, key, step, *process)
            )  # for Dropout
            yield StepPosition(epoch, step, total), batch


def _train_step(
    context: RunContext,
    forward: LiveForward,
    phase: Phase,
    optimizer: torch.optim.Optimizer,
    position: StepPosition,
    batch: TensorBatch,
    zeros: list[tuple[Tensor, Tensor]],
) -> None:
    for group in optimizer.param_groups:
        group["lr"] = position.lr
    optimizer.zero_grad(set_to_none=True)
    loss = _compute_loss(context, forward, phase.effective_weights(), batch)
    position.loss = float(distributed.all_reduce_mean(loss.detach().clone()))
    if not math.isfinite(position.loss):
        return
    loss.backward()  # type: ignore[no-untyped-call]
    if context.optimizer.max_grad_norm:
        trained = [p for group in optimizer.param_groups for p in group["params"]]
        torch.nn.utils.clip_grad_norm_(trained, context.optimizer.max_grad_norm)
    phase.after_backward(position)
    for w, mask in zeros:
        if w.grad is not None:
            w.grad.mul_(mask)
    optimizer.step()
    phase.after_step(optimizer)


def _compute_loss(
    context: RunContext, forward: LiveForward, weights: Mapping[str, Tensor], batch: TensorBatch
) -> Tensor:
    """Weights come in single precision, whatever the forward pass computes in."""
    outputs, taught, precision = context.task.outputs, None, context.settings.train.precision
    with torch.autocast(context.device.type, torch.bfloat16, enabled=precision == "bf16"):
        if context.task.is_distilled:
            assert context.teacher is not None  # noqa: S101 - whoever made the job knows the task
            with torch.no_grad():
                given = context.teacher_forward(batch.inputs, context.teacher)
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
    return context.task.compute_loss(
        [found[output.position] for output in outputs], batch.targets, taught
    )


def _divergence_error(
    context: RunContext, name: str, position: StepPosition, tensors: Mapping[str, Tensor]
) -> TrainingFailed:
    where = next((n for n, t in tensors.items() if not t.isfinite().all()), None)
    layer = (
        f"tensor {where!r} is not finite"
        if where
        else "every weight is still finite: the activations overflow"
    )
    what = "training diverged" if math.isfinite(position.loss) else "the loss is not finite"
    return TrainingFailed(
        f"{what} in {name}, epoch {position.epoch + 1}, step {position.step}; {layer}",
        f"lower the learning rate (now {context.optimizer.lr:g}) or check the scale of the data; what is done is kept",
    )


def _log_step(
    context: RunContext, phase: Phase, position: StepPosition, values: Mapping[str, object]
) -> None:
    line = {
        "stage": phase.name,
        "key": phase.key,
        "epoch": position.epoch,
        "step": position.step,
        "loss": position.loss,
        "lr": position.lr,
    }
    context.workspace.log({**line, **values})
