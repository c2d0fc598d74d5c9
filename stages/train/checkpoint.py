"""What a phase needs to go on exactly where it stopped: tensors, the optimizer's and its own state, steps."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ltp_pipeline.errors import first_line
from ltp_pipeline.stages.train.job import RunContext
from ltp_pipeline.stages.train.phase import Phase


def save_checkpoint(
    context: RunContext,
    phase: Phase,
    tensors: Mapping[str, Tensor],
    optimizer: torch.optim.Optimizer,
    done: int,
) -> None:
    """Keep the phase after so many steps."""
    kept = {n: optimizer.state.get(tensors[n], {}) for n in context.network.forward.weights}
    context.workspace.save_state(
        phase.key,
        {
            **{f"tensor/{n}": t for n, t in tensors.items()},
            **{
                f"optimizer/{key}/{n}": t
                for n, values in kept.items()
                for key, t in values.items()
                if t is not None
            },
            **{f"phase/{n}": t for n, t in phase.state_dict().items()},
        },
        {"steps": done},
    )


@torch.no_grad()
def resume_checkpoint(
    context: RunContext,
    phase: Phase,
    tensors: Mapping[str, Tensor],
    optimizer: torch.optim.Optimizer,
) -> int:
    """Take back what was kept, into the live tensors; how many steps are done."""
    found = context.workspace.load_state(phase.key)
    if found is None:
        return 0
    state, meta = found
    try:
        _check_fit(state, tensors)
        for name, value in _select_prefix(state, "tensor/").items():
            tensors[name].copy_(value)
        for path, value in _select_prefix(state, "optimizer/").items():
            key, _, name = path.partition("/")
            optimizer.state[tensors[name]][key] = value.to(context.device)
        phase.load_state_dict(_select_prefix(state, "phase/"))
        return int(meta["steps"])
    except (
        KeyError,
        TypeError,
        ValueError,
        RuntimeError,
    ) as error:  # of another network, with hashes to match
        raise context.workspace.damaged_state(
            phase.key, f"it does not fit this network: {first_line(error)}"
        ) from None


def _check_fit(state: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    """Refuse tensors of another network, or without sense."""
    found = {name: tensor.shape for name, tensor in _select_prefix(state, "tensor/").items()}
    if found != {name: tensor.shape for name, tensor in tensors.items()}:
        raise ValueError("its tensors have other names or shapes")
    if not all(bool(tensor.isfinite().all()) for tensor in state.values()):
        raise ValueError("a value is not finite")


def _select_prefix(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): t for n, t in state.items() if n.startswith(prefix)}
