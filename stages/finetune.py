"""Fine-tune a hard-pruned network: masks stay fixed, and there is no regularizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from ltp_pipeline.stages.prune import count_nonzeros
from ltp_pipeline.stages.train.context import PrunedNetwork, RunContext
from ltp_pipeline.stages.train.evaluate import evaluate_metric
from ltp_pipeline.stages.train.loop import train
from ltp_pipeline.stages.train.phase import StepPosition
from ltp_pipeline.stages.train.statistics import refresh_statistics
from ltp_pipeline.system.arrays import StateDict


def finetune_key(entry: int) -> str:
    """Return the name of the checkpoint and of the log lines of fine-tuning a trail entry."""
    return f"finetune-{entry:03d}"


class MaskedTrainingPhase:
    """Plain training of a hard-pruned network.

    A pruned weight is zero, its gradient is masked and the optimizer starts without moments, so
    the weight stays exactly zero.
    """

    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        context: RunContext,
        masks: Mapping[str, Tensor],
        name: str,
        key: str,
    ) -> None:
        """Begin the phase.

        Args:
            tensors: The tensors being trained, by name.
            context: The run.
            masks: True for each weight that is kept, by layer.
            name: Name of the phase in progress and logs.
            key: Name of its checkpoint.
        """
        self.tensors = tensors
        self.context = context
        self.name = name
        self.key = key
        self.masked = [(tensors[n], mask.to(context.device)) for n, mask in masks.items()]

    def effective_weights(self) -> Mapping[str, Tensor]:
        """Return nothing, because the forward pass uses the trained tensors."""
        return {}

    def after_backward(self, position: StepPosition) -> None:  # noqa: ARG002 - protocol of a phase
        """Mask the gradients of pruned weights."""
        for w, mask in self.masked:
            if w.grad is not None:
                w.grad.mul_(mask)

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Do nothing: a weight that never had a gradient does not move."""

    def end_epoch(self, epoch: int) -> dict[str, float]:  # noqa: ARG002 - protocol of a phase
        """Return the metric on the validation split."""
        state = dict(self.tensors)
        return {"val_accuracy": evaluate_metric(self.context, state, self.context.data.val)}

    def state_dict(self) -> dict[str, Tensor]:
        """Return nothing, because the masks come from the network that the phase began with."""
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore nothing, see `state_dict`."""

    def log_values(self, position: StepPosition) -> dict[str, object]:  # noqa: ARG002 - no values
        """Return nothing beyond the loss."""
        return {}


def run(
    context: RunContext,
    pruned: PrunedNetwork,
    epochs: int,
    name: str = "finetune",
    key: str | None = None,
    before: int = 0,
) -> PrunedNetwork:
    """Fine-tune a hard-pruned network and measure its running statistics again.

    Args:
        context: The run.
        pruned: The network; its state is emptied.
        epochs: Number of epochs.
        name: Name of the phase in progress and logs.
        key: Name of its checkpoint; `name` if it is None.
        before: Epochs of the phases before this one, on the same curve of the learning rate.

    Returns:
        The fine-tuned network.
    """
    state: StateDict = pruned.state
    if epochs:
        begin = partial(
            MaskedTrainingPhase, context=context, masks=pruned.masks, name=name, key=key or name
        )
        trained = train(context, state, begin, epochs, before=before)
        state = refresh_statistics(context, trained)
    nonzeros = sum(count_nonzeros(context.network, state).values())
    trained_epochs = {**pruned.epochs, "finetune": epochs}
    return replace(pruned, state=state, nonzeros=nonzeros, epochs=trained_epochs)
