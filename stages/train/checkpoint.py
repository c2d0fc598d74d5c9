"""What a phase needs to go on exactly where it stopped: tensors, the optimizer's and its own state, steps."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ltp_pipeline.errors import first_line
from ltp_pipeline.stages.train.job import RunContext
from ltp_pipeline.stages.train.phase import Phase


def save(
    job: RunContext,
    phase: Phase,
    live: Mapping[str, Tensor],
    optimizer: torch.optim.Optimizer,
    done: int,
) -> None:
    """Keep the phase after so many steps."""
    kept = {n: optimizer.state.get(live[n], {}) for n in job.network.forward.weights}
    job.workspace.save_state(
        phase.key,
        {
            **{f"tensor/{n}": t for n, t in live.items()},
            **{
                f"optimizer/{key}/{n}": t
                for n, values in kept.items()
                for key, t in values.items()
                if t is not None
            },
            **{f"phase/{n}": t for n, t in phase.state().items()},
        },
        {"steps": done},
    )


@torch.no_grad()
def resume(
    job: RunContext, phase: Phase, live: Mapping[str, Tensor], optimizer: torch.optim.Optimizer
) -> int:
    """Take back what was kept, into the live tensors; how many steps are done."""
    found = job.workspace.load_state(phase.key)
    if found is None:
        return 0
    state, meta = found
    try:
        _require_fit(state, live)
        for name, value in _part(state, "tensor/").items():
            live[name].copy_(value)
        for path, value in _part(state, "optimizer/").items():
            key, _, name = path.partition("/")
            optimizer.state[live[name]][key] = value.to(job.device)
        phase.restore(_part(state, "phase/"))
        return int(meta["steps"])
    except (
        KeyError,
        TypeError,
        ValueError,
        RuntimeError,
    ) as error:  # of another network, with hashes to match
        raise job.workspace.damaged_state(
            phase.key, f"it does not fit this network: {first_line(error)}"
        ) from None


def _require_fit(state: Mapping[str, Tensor], live: Mapping[str, Tensor]) -> None:
    """Refuse tensors of another network, or without sense."""
    found = {name: tensor.shape for name, tensor in _part(state, "tensor/").items()}
    if found != {name: tensor.shape for name, tensor in live.items()}:
        raise ValueError("its tensors have other names or shapes")
    if not all(bool(tensor.isfinite().all()) for tensor in state.values()):
        raise ValueError("a value is not finite")


def _part(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): t for n, t in state.items() if n.startswith(prefix)}
