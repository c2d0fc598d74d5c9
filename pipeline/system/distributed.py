"""Several processes that train together, started by torchrun.

Every rank takes the same path through the training stages, with its part of each batch. Only the
main process (rank 0) writes, exports, measures and reports. A process that runs alone is the main
process.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ltp_pipeline.system.arrays import Array

# The main process measures large models for hours while the others wait to train the baseline.
TIMEOUT = timedelta(days=2)
_started = False


def is_distributed() -> bool:
    """Return whether torchrun started more than this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


def get_world_size() -> int:
    """Return the number of processes."""
    return int(os.environ["WORLD_SIZE"]) if is_distributed() else 1


def get_rank() -> int:
    """Return the number of this process, counted from zero."""
    return int(os.environ["RANK"]) if is_distributed() else 0


def is_main_process() -> bool:
    """Return whether this is the process that writes."""
    return get_rank() == 0


def init_process_group(device: torch.device) -> torch.device:
    """Connect to the other processes and return the device of this one."""
    import torch
    from torch import distributed

    if not is_distributed():
        return device
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    if not distributed.is_initialized():
        distributed.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=TIMEOUT)
    return device


def begin_independent_work() -> None:
    """Mark that ranks read different samples from now on.

    One rank may then fail while the others do not, so every rank reports its errors.
    """
    global _started
    _started = True


def stop_together() -> None:
    """Wait for all ranks before they fail for a reason that the main process has found.

    Only the main process reports it.
    """
    global _started
    barrier()
    _started = False


def should_report_errors() -> bool:
    """Return whether this process reports its errors.

    As long as all ranks fail alike, only the main process does.
    """
    return is_main_process() or _started


def is_lost_peer(error: Exception) -> bool:
    """Return whether an error only says that another process has gone."""
    message = str(error)
    return (
        is_distributed()
        and isinstance(error, RuntimeError)
        and ("gloo" in message or "NCCL" in message)
    )


def destroy_process_group() -> None:
    """Disconnect from the other processes."""
    if is_distributed():
        from torch import distributed

        if distributed.is_initialized():
            distributed.destroy_process_group()


def barrier() -> None:
    """Wait until all processes are here."""
    if is_distributed():
        from torch import distributed

        distributed.barrier()


def all_reduce_mean(tensor: Tensor) -> Tensor:
    """Replace a tensor by its mean over all processes, in place, and return it."""
    if is_distributed():
        from torch import distributed

        distributed.all_reduce(tensor)
        tensor /= get_world_size()
    return tensor


def all_reduce_sum(value: float, device: torch.device) -> float:
    """Return the sum of a value over all processes."""
    if not is_distributed():
        return value
    from torch import distributed

    total = _make_scalar(value, device)
    distributed.all_reduce(total)
    return float(total)


def all_gather_rows(rows: Array, device: torch.device) -> Array:
    """Return the rows of all processes, concatenated."""
    if not is_distributed():
        return rows
    import torch
    from torch import distributed

    counts = [
        int(all_reduce_sum(len(rows) if get_rank() == other else 0, device))
        for other in range(get_world_size())
    ]
    wide = torch.zeros((max(counts), *rows.shape[1:]), dtype=torch.float64)
    wide[: len(rows)] = torch.from_numpy(rows.astype("float64"))
    wide = wide.to(device, torch.float32 if device.type == "mps" else torch.float64)
    parts = [torch.empty_like(wide) for _ in counts]
    distributed.all_gather(parts, wide)
    gathered: Array = (
        torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)]).cpu().numpy()
    )
    return gathered.astype(rows.dtype)


def broadcast_from_main(value: float, device: torch.device) -> float:
    """Return the value of the main process."""
    if not is_distributed():
        return value
    from torch import distributed

    scalar = _make_scalar(value, device)
    distributed.broadcast(scalar, 0)
    return float(scalar)


def _make_scalar(value: float, device: torch.device) -> Tensor:
    import torch

    return torch.tensor(
        [value], dtype=torch.float32 if device.type == "mps" else torch.float64, device=device
    )
