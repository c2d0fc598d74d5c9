"""Train what is left: no regulariser, masks held."""

from collections.abc import Mapping

import torch
from torch import Tensor

from ltp_pipeline.records import PrunedModel, TrailEntry
from ltp_pipeline.stages.phase import Progress
from ltp_pipeline.stages.prune import count_nonzeros
from ltp_pipeline.stages.training import Training


class Masked:
    """Plain training of a hard-pruned network.

    A pruned weight is zero, its gradient is masked and its momentum starts at zero, so it stays exactly zero.
    """

    def __init__(self, training: Training, masks: Mapping[str, Tensor], name: str, key: str) -> None:
        self.name, self.key = name, key
        self.training = training
        tensors = training.imported.module.tensors()
        self.masked = {n: (tensors[n], mask.to(training.device)) for n, mask in masks.items()}

    def weights(self) -> None:
        """Use the module's own."""

    def after_backward(self, progress: Progress) -> None:  # noqa: ARG002 - the shape of a Phase
        """Keep gradients off pruned weights."""
        for w, mask in self.masked.values():
            if w.grad is not None:
                w.grad.mul_(mask)

    def after_step(self, optimizer: torch.optim.SGD) -> None:
        """Nothing: without gradient and momentum, nothing moves."""

    def end_epoch(self, epoch: int) -> dict[str, float]:  # noqa: ARG002 - the shape of a Phase
        """Accuracy on the validation split."""
        return {"val_accuracy": self.training.accuracy(self.training.data.val)}

    def state(self) -> dict[str, Tensor]:
        """Nothing beyond weights and momentum: the masks come from where the phase began."""
        return {}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Nothing to take back."""

    def log(self, progress: Progress) -> dict[str, object]:  # noqa: ARG002 - nothing to say
        """Nothing beyond the loss."""
        return {}


def key_of(entry: TrailEntry) -> str:
    """Name of the checkpoint and the log lines of fine-tuning from an entry of the trail."""
    return f"finetune-{entry.entry:03d}"


def run(
    pruned: PrunedModel,
    training: Training,
    epochs: int,
    name: str = "finetune",
    key: str | None = None,
    before: int = 0,
) -> PrunedModel:
    """Fine-tune for `epochs`, then bring the running statistics up to date."""
    if epochs:
        training.run(Masked(training, pruned.masks, name, key or name), epochs, before=before)
        training.refresh_statistics()
    return PrunedModel(pruned.masks, count_nonzeros(training.imported), {**pruned.epochs, "finetune": epochs})
