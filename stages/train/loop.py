"""The training loop of all phases: learning thresholds, fine-tuning and the baseline.

Everything random is a function of (seed, phase, epoch, step). So a resumed run takes the same steps
as one that was never interrupted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from ltp_pipeline.errors import TrainingFailed
from ltp_pipeline.results.metric import name_validation_metric
from ltp_pipeline.stages.import_model.program import NodeError
from ltp_pipeline.stages.train import memory
from ltp_pipeline.stages.train.batches import TensorBatch, derive_seed, epoch_batches
from ltp_pipeline.stages.train.checkpoint import resume_checkpoint, save_checkpoint
from ltp_pipeline.stages.train.context import RunContext
from ltp_pipeline.stages.train.distributed import LiveForward, wrap_forward
from ltp_pipeline.stages.train.optimizer import make_optimizer
from ltp_pipeline.stages.train.phase import (
    Phase,
    PhaseFactory,
    StepPosition,
    epochs_between_entries,
)
from ltp_pipeline.stages.train.slowdown import SlowdownMonitor
from ltp_pipeline.system import distributed
from ltp_pipeline.system.arrays import StateDict
from ltp_pipeline.system.memory import is_shortage

SAVE_EVERY_SECONDS = 120.0  # between checkpoints within an epoch


def learning_rate_at(step: int, steps: int, lr: float, warmup: float = 0.0) -> float:
    """Return the learning rate of a step: a linear warmup to `lr`, then a cosine decay to zero.

    Args:
        step: The step, counted from zero.
        steps: Number of steps.
        lr: The highest learning rate.
        warmup: Fraction of the steps in which the rate rises.
    """
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
    """Train a copy of a state, and resume from the checkpoint of the phase if there is one.

    Args:
        context: The run.
        state: Tensors to begin with. The dict is emptied while they are copied, so that no second
            copy of the network is held. The tensors themselves do not change.
        begin: Makes the phase from the tensors being trained.
        epochs: Number of epochs.
        before: Epochs of the phases before this one. The learning rate is one curve over `before`,
            `epochs` and `after`.
        after: Epochs of the phases after this one.

    Returns:
        The trained tensors.

    Raises:
        TrainingFailed: The loss or a weight is not finite, or a batch does not fit into memory.
    """
    memory.keep_freed_memory()
    progress = context.run_directory.progress
    tensors = _copy_to_device(context, state)
    parameters = {name: tensors[name] for name in context.network.forward.weight_names}
    momentum = context.settings.train.momentum
    optimizer = make_optimizer(context.network, parameters, context.optimizer, momentum)
    phase = begin(tensors)
    start = resume_checkpoint(context, phase, tensors, optimizer)
    forward = wrap_forward(context.network.forward, tensors, parameters)
    zeros = _fixed_zeros(context, tensors)
    steps_per_epoch = context.steps_per_epoch
    total = steps_per_epoch * epochs
    monitor = SlowdownMonitor()
    last_save = time.monotonic()
    with (
        memory.explain_shortage(context.batch_size),
        progress.task(phase.name, total, start) as bar,
    ):
        for position, batch in _iter_steps(context, phase.key, start, total):
            _set_learning_rates(context, position, before, before + epochs + after)
            step_start = time.monotonic()
            _train_step(context, forward, phase, optimizer, position, batch, zeros)
            if not math.isfinite(position.loss):
                raise _divergence_error(context, phase.name, position, tensors)
            if context.device.type == "cpu":
                monitor.record_step(time.monotonic() - step_start, progress.say)
            if position.step % max(steps_per_epoch // 10, 1) == 0:
                _log_step(context, phase, position, phase.log_values(position))
            completed = position.step + 1
            is_end_of_epoch = completed % steps_per_epoch == 0
            values: dict[str, float] = {"loss": position.loss}
            if is_end_of_epoch:
                if not all(bool(p.isfinite().all()) for p in parameters.values()):
                    raise _divergence_error(context, phase.name, position, tensors)
                is_entry = (position.epoch + 1) % epochs_between_entries(epochs) == 0
                if is_entry or completed == total:
                    values.update(phase.end_epoch(position.epoch))
                _log_step(context, phase, position, values)
            if is_end_of_epoch or time.monotonic() - last_save > SAVE_EVERY_SECONDS:
                save_checkpoint(context, phase, tensors, optimizer, completed)
                last_save = time.monotonic()
            bar.advance(
                epoch=position.epoch + 1,
                epochs=epochs,
                end_of_epoch=is_end_of_epoch,
                **_displayed_values(context, values),
            )
    distributed.barrier()  # until the main process has written the last checkpoint
    return {name: tensor.detach() for name, tensor in tensors.items()}


def _set_learning_rates(
    context: RunContext, position: StepPosition, epochs_before: int, total_epochs: int
) -> None:
    """Write the learning rates of weights and thresholds into the position of a step."""
    settings = context.optimizer
    step = context.steps_per_epoch * epochs_before + position.step
    steps = context.steps_per_epoch * total_epochs
    position.lr = learning_rate_at(step, steps, settings.lr, settings.warmup_fraction)
    position.threshold_lr = learning_rate_at(
        step, steps, settings.threshold_lr, settings.warmup_fraction
    )


def _displayed_values(context: RunContext, values: Mapping[str, float]) -> dict[str, float | str]:
    """Return the values for progress, with the metric under its own name and in its unit."""
    displayed: dict[str, float | str] = dict(values)
    if "val_accuracy" in displayed:
        metric = context.task.metric
        del displayed["val_accuracy"]
        displayed[name_validation_metric(metric)] = metric.format_value(values["val_accuracy"])
    return displayed


def _copy_to_device(context: RunContext, state: StateDict) -> dict[str, Tensor]:
    """Return a copy on the device, whose weights can be trained, and empty the dict."""
    weights = set(context.network.forward.weight_names)
    tensors: dict[str, Tensor] = {}
    for name in list(state):
        copied = state.pop(name).detach().to(context.device, copy=True)
        tensors[name] = torch.nn.Parameter(copied) if name in weights else copied
    return tensors


def _fixed_zeros(context: RunContext, tensors: Mapping[str, Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Return layer weights that are excluded from pruning and have zeros, with their masks.

    Their zeros stay zero, because every budget counts on them.
    """
    masked = []
    for layer in context.network.layer_weights:
        w = tensors[layer.name]
        if not layer.is_prunable and not bool(w.detach().all()):
            masked.append((w, w.detach() != 0))
    return masked


def _iter_steps(
    context: RunContext, key: str, start: int, total: int
) -> Iterator[tuple[StepPosition, TensorBatch]]:
    """Yield position and batch of each step from `start` on, and seed torch for Dropout."""
    steps_per_epoch = context.steps_per_epoch
    seed = context.settings.train.seed
    process = (distributed.get_rank(),) if distributed.get_rank() else ()
    for epoch in range(start // steps_per_epoch, total // steps_per_epoch):
        first = max(start - epoch * steps_per_epoch, 0)
        for i, batch in enumerate(epoch_batches(context, key, epoch, first)):
            step = epoch * steps_per_epoch + first + i
            torch.manual_seed(derive_seed(seed, key, step, *process))
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
    """Take one step, and write its loss into the position.

    No weight moves if the loss is not finite.
    """
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
    """Return the loss of a batch.

    Weights are in single precision, whatever precision the forward pass computes in.
    """
    task = context.task
    precision = context.settings.train.precision
    teacher_outputs = None
    with torch.autocast(context.device.type, torch.bfloat16, enabled=precision == "bf16"):
        if task.is_distilled:
            assert context.teacher is not None  # noqa: S101 - the context is made for the task
            with torch.no_grad():
                tensors = context.teacher_forward(batch.inputs, context.teacher)
            teacher_outputs = [tensors[output.position] for output in task.outputs]
        try:
            tensors = forward(batch.inputs, weights)
        except NodeError as error:
            if is_shortage(error):
                raise
            hint = "please report this as a bug"
            if precision != "fp32":
                hint = "use --precision fp32"
            raise TrainingFailed(f"the model does not run in training: {error}", hint) from None
    outputs = [tensors[output.position] for output in task.outputs]
    return task.compute_loss(outputs, batch.targets, teacher_outputs)


def _divergence_error(
    context: RunContext, name: str, position: StepPosition, tensors: Mapping[str, Tensor]
) -> TrainingFailed:
    """Return the error for a loss or a weight that is not finite."""
    tensor = next((n for n, t in tensors.items() if not t.isfinite().all()), None)
    detail = "all weights are still finite, so the activations overflow"
    if tensor is not None:
        detail = f"tensor {tensor!r} is not finite"
    event = "training diverged" if math.isfinite(position.loss) else "the loss is not finite"
    return TrainingFailed(
        f"{event} in {name}, epoch {position.epoch + 1}, step {position.step}; {detail}",
        f"lower the learning rate (now {context.optimizer.lr:g}) or check data.scale; "
        "what is done is saved",
    )


def _log_step(
    context: RunContext, phase: Phase, position: StepPosition, values: Mapping[str, object]
) -> None:
    """Write a line of the log."""
    line = {
        "stage": phase.name,
        "key": phase.key,
        "epoch": position.epoch,
        "step": position.step,
        "loss": position.loss,
        "lr": position.lr,
    }
    context.run_directory.append_log({**line, **values})
