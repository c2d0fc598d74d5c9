"""The protocol of a training phase: what one kind of training does beyond the common loop."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

MAX_ENTRIES = 24  # number of times that a phase evaluates the network


@dataclass
class StepPosition:
    """Position of a training step in its phase.

    Attributes:
        epoch: The epoch, counted from zero.
        step: The step of the whole phase, counted from zero.
        steps: Number of steps of the phase.
        lr: Learning rate of the weights in this step.
        threshold_lr: Learning rate of the thresholds in this step, in paper mode.
        loss: Loss of this step, once it is computed.
    """

    epoch: int
    step: int
    steps: int
    lr: float = math.nan
    threshold_lr: float = math.nan
    loss: float = math.nan


def epochs_between_entries(epochs: int) -> int:
    """Return the number of epochs between evaluations: one, unless there are too many epochs."""
    return math.ceil(epochs / MAX_ENTRIES)


# Makes a phase from the tensors being trained, which training changes in place.
PhaseFactory = Callable[[Mapping[str, Tensor]], "Phase"]


class Phase(Protocol):
    """What one kind of training does beyond the common loop.

    Attributes:
        name: Name of the phase in progress and logs.
        key: Name of its checkpoint, unique within a run.
    """

    name: str
    key: str

    def effective_weights(self) -> Mapping[str, Tensor]:
        """Return tensors that replace trained tensors of the same name in the forward pass."""

    def after_backward(self, position: StepPosition) -> None:
        """Read or change the gradients before the optimizer steps."""

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Read or change what the optimizer did."""

    def end_epoch(self, epoch: int) -> dict[str, float]:
        """Evaluate the network at the end of an epoch.

        Returns:
            Values for progress and log.
        """

    def state_dict(self) -> dict[str, Tensor]:
        """Return the further tensors that a resumed run needs."""

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state_dict` returned."""

    def log_values(self, position: StepPosition) -> dict[str, object]:
        """Return values for the log line of this step."""


class TrialPhase:
    """A phase whose network is used for a trial only: it is not evaluated on the way.

    Attributes:
        name: Name of the trial in progress.
        key: Name of the checkpoint of the phase, from which random numbers follow.
    """

    def __init__(self, phase: Phase, name: str) -> None:
        """Begin a trial of a phase."""
        self.phase = phase
        self.name = name
        self.key = phase.key

    def effective_weights(self) -> Mapping[str, Tensor]:
        """Return the weights of the phase."""
        return self.phase.effective_weights()

    def after_backward(self, position: StepPosition) -> None:
        """Do what the phase does."""
        self.phase.after_backward(position)

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Do what the phase does."""
        self.phase.after_step(optimizer)

    def end_epoch(self, epoch: int) -> dict[str, float]:  # noqa: ARG002 - protocol of a phase
        """Return nothing."""
        return {}

    def state_dict(self) -> dict[str, Tensor]:
        """Return nothing: a trial is not resumed."""
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore nothing."""

    def log_values(self, position: StepPosition) -> dict[str, object]:  # noqa: ARG002 - no log
        """Return nothing."""
        return {}
