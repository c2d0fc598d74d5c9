"""Save and resume a training phase exactly where it stopped.

A checkpoint holds the trained tensors, the state of the optimizer and of the phase, and the number
of completed steps.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ltp_pipeline.errors import summarize_error
from ltp_pipeline.stages.train.context import RunContext
from ltp_pipeline.stages.train.phase import Phase

# Prefixes of tensor names within a checkpoint.
_TENSOR = "tensor/"
_OPTIMIZER = "optimizer/"
_PHASE = "phase/"


def save_checkpoint(
    context: RunContext,
    phase: Phase,
    tensors: Mapping[str, Tensor],
    optimizer: torch.optim.Optimizer,
    completed: int,
) -> None:
    """Save a phase after `completed` steps."""
    state = {_TENSOR + name: tensor for name, tensor in tensors.items()}
    for name in context.network.forward.weight_names:
        for key, value in optimizer.state.get(tensors[name], {}).items():
            if value is not None:
                state[f"{_OPTIMIZER}{key}/{name}"] = value
    for name, tensor in phase.state_dict().items():
        state[_PHASE + name] = tensor
    context.run_directory.save_state(phase.key, state, {"steps": completed})


@torch.no_grad()
def resume_checkpoint(
    context: RunContext,
    phase: Phase,
    tensors: Mapping[str, Tensor],
    optimizer: torch.optim.Optimizer,
) -> int:
    """Restore a phase from its checkpoint, into the given tensors.

    Returns:
        The number of completed steps; 0 without a checkpoint.

    Raises:
        InputError: The checkpoint does not fit this network.
    """
    checkpoint = context.run_directory.load_state(phase.key)
    if checkpoint is None:
        return 0
    state, metadata = checkpoint
    # A checkpoint of another network may lie here with hashes that match.
    try:
        _check_fit(state, tensors)
        for name, value in _select_prefix(state, _TENSOR).items():
            tensors[name].copy_(value)
        for path, value in _select_prefix(state, _OPTIMIZER).items():
            key, _, name = path.partition("/")
            optimizer.state[tensors[name]][key] = value.to(context.device)
        phase.load_state_dict(_select_prefix(state, _PHASE))
        return int(metadata["steps"])
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise context.run_directory.corrupt_state_error(
            phase.key, f"it does not fit this network: {summarize_error(error)}"
        ) from None


def _check_fit(state: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    """Raise ValueError if tensors have other names or shapes, or values that are not finite."""
    shapes = {name: value.shape for name, value in _select_prefix(state, _TENSOR).items()}
    if shapes != {name: tensor.shape for name, tensor in tensors.items()}:
        raise ValueError("its tensors have other names or shapes")
    if not all(bool(value.isfinite().all()) for value in state.values()):
        raise ValueError("a value is not finite")


def _select_prefix(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names begin with a prefix, by the rest of their names."""
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in state.items()
        if name.startswith(prefix)
    }
