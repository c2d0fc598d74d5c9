"""What one kind of training does beyond the one loop, and where it is in it."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

MAX_ENTRIES = 24


@dataclass
class StepPosition:
    """Where training is."""

    epoch: int
    step: int  # of the whole phase
    steps: int
    lr: float = math.nan
    threshold_lr: float = math.nan
    loss: float = math.nan


def epochs_between_entries(epochs: int) -> int:
    """After how many epochs the network is evaluated: each one, or where there are many, MOST_ENTRIES times in all."""
    return math.ceil(epochs / MAX_ENTRIES)


# From the live tensors, which training changes in place, to what is done with them
PhaseFactory = Callable[[Mapping[str, Tensor]], "Phase"]


class Phase(Protocol):
    """What one kind of training does beyond the plain loop."""

    name: str  # what people and the log call it
    key: str  # of its checkpoint; two phases of one run never share one

    def effective_weights(self) -> Mapping[str, Tensor]:
        """Tensors to use in the forward pass instead of the live ones of the same name."""

    def after_backward(self, position: StepPosition) -> None:
        """Look at, or change, the gradients before the optimizer steps."""

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Look at, or change, what the optimizer did."""

    def end_epoch(self, epoch: int) -> dict[str, float]:
        """Evaluate the network as it stands, after an epoch that has an entry; what is returned is shown and logged."""

    def state_dict(self) -> dict[str, Tensor]:
        """Whatever else must survive an interruption."""

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state` gave."""

    def log_values(self, position: StepPosition) -> dict[str, object]:
        """Values for the log line of this step."""
