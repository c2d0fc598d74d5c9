"""Train what is left: no regularizer, masks held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from ltp_pipeline.results.records import PrunedNetwork
from ltp_pipeline.stages.prune import count_nonzeros
from ltp_pipeline.stages.train.evaluate import evaluate_metric
from ltp_pipeline.stages.train.job import RunContext
from ltp_pipeline.stages.train.loop import train
from ltp_pipeline.stages.train.phase import StepPosition
from ltp_pipeline.stages.train.statistics import refresh_statistics


class MaskedTrainingPhase:
    """Plain training of a hard-pruned network.

    A pruned weight is zero, its gradient is masked and the optimizer begins anew, so it stays exactly zero.
    """

    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        context: RunContext,
        masks: Mapping[str, Tensor],
        name: str,
        key: str,
    ) -> None:
        self.tensors, self.context, self.name, self.key = tensors, context, name, key
        self.masked = [(tensors[n], mask.to(context.device)) for n, mask in masks.items()]

    def effective_weights(self) -> Mapping[str, Tensor]:
        """Use the live ones."""
        return {}

    def after_backward(self, position: StepPosition) -> None:  # noqa: ARG002 - the shape of a Phase
        """Keep gradients off pruned weights."""
        for w, mask in self.masked:
            if w.grad is not None:
                w.grad.mul_(mask)

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Nothing: without gradient, now or before, nothing moves."""

    def end_epoch(self, epoch: int) -> dict[str, float]:  # noqa: ARG002 - the shape of a Phase
        """Accuracy on the validation split."""
        return {
            "val_accuracy": evaluate_metric(self.context, dict(self.tensors), self.context.data.val)
        }

    def state_dict(self) -> dict[str, Tensor]:
        """Nothing beyond the optimizer's: the masks come from where the phase began."""
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Nothing to take back."""

    def log_values(self, position: StepPosition) -> dict[str, object]:  # noqa: ARG002 - nothing to say
        """Nothing beyond the loss."""
        return {}


def run(
    context: RunContext,
    pruned: PrunedNetwork,
    epochs: int,
    name: str = "finetune",
    key: str | None = None,
    before: int = 0,
) -> PrunedNetwork:
    """Fine-tune for `epochs`, then bring the running statistics up to date; the state that is given is used up."""
    state, masks = pruned.state, pruned.masks
    if epochs:
        begin = partial(
            MaskedTrainingPhase, context=context, masks=masks, name=name, key=key or name
        )
        state = refresh_statistics(context, train(context, state, begin, epochs, before=before))
    nonzeros = sum(count_nonzeros(context.network, state).values())
    return replace(
        pruned, state=state, nonzeros=nonzeros, epochs={**pruned.epochs, "finetune": epochs}
    )
