"""Several processes that train together, started by torchrun; one process alone is its own leader.

Every rank takes the same path through the training stages with its share of each batch. Only the leader writes, and
only it exports, validates and reports.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ltp_pipeline.system.arrays import Array

# The leader validates large models for hours while the others wait to train the baseline.
TIMEOUT = timedelta(days=2)
_started = False


def is_distributed() -> bool:
    """Whether torchrun started more than this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


def get_world_size() -> int:
    """How many processes train."""
    return int(os.environ["WORLD_SIZE"]) if is_distributed() else 1


def get_rank() -> int:
    """Number of this process among them."""
    return int(os.environ["RANK"]) if is_distributed() else 0


def is_main_process() -> bool:
    """Whether this is the one process that writes."""
    return get_rank() == 0


def init_process_group(device: torch.device) -> torch.device:
    """Meet the others; returns this process's own device."""
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
    """From here on ranks read different samples, and one may fail where the others do not."""
    global _started
    _started = True


def stop_together() -> None:
    """All ranks are about to fail for one reason, which the leader has found: it alone tells of it."""
    global _started
    barrier()
    _started = False


def should_report_errors() -> bool:
    """Whether this process tells people of its errors: the leader for all, as long as all fail alike."""
    return is_main_process() or _started


def is_lost_peer(error: Exception) -> bool:
    """Whether an error only says that another process has gone."""
    told = str(error)
    return (
        is_distributed() and isinstance(error, RuntimeError) and ("gloo" in told or "NCCL" in told)
    )


def destroy_process_group() -> None:
    """Part from the others at the end."""
    if is_distributed():
        from torch import distributed

        if distributed.is_initialized():
            distributed.destroy_process_group()


def barrier() -> None:
    """Go on when all have come here."""
    if is_distributed():
        from torch import distributed

        distributed.barrier()


def all_reduce_mean(tensor: Tensor) -> Tensor:
    """The mean over all processes, in place."""
    if is_distributed():
        from torch import distributed

        distributed.all_reduce(tensor)
        tensor /= get_world_size()
    return tensor


def all_reduce_sum(value: float, device: torch.device) -> float:
    """The sum over all processes."""
    if not is_distributed():
        return value
    from torch import distributed

    told = _make_scalar(value, device)
    distributed.all_reduce(told)
    return float(told)


def all_gather_rows(rows: Array, device: torch.device) -> Array:
    """The rows of all processes, one after the other."""
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
    found: Array = (
        torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)]).cpu().numpy()
    )
    return found.astype(rows.dtype)


def broadcast_from_main(value: float, device: torch.device) -> float:
    """The leader's number, on every rank."""
    if not is_distributed():
        return value
    from torch import distributed

    told = _make_scalar(value, device)
    distributed.broadcast(told, 0)
    return float(told)


def _make_scalar(value: float, device: torch.device) -> Tensor:
    import torch

    return torch.tensor(
        [value], dtype=torch.float32 if device.type == "mps" else torch.float64, device=device
    )
