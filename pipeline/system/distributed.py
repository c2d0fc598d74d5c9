"""Several processes that train together, started by torchrun.

Every rank takes the same path through the training stages, with its part of each batch. Only the
main process (rank 0) writes, exports, measures and reports. A process that runs alone is the main
process.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ltp_pipeline.system.arrays import Array

# The main process measures large models for hours while the others wait to train the baseline.
TIMEOUT = timedelta(days=2)
T = TypeVar("T")
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


def all_gather_rows(rows: Array) -> Array:
    """Return the rows of all processes, concatenated."""
    if not is_distributed():
        return rows
    import numpy as np
    from torch import distributed

    parts: list[Array | None] = [None] * get_world_size()
    distributed.all_gather_object(parts, rows)
    return np.concatenate([part for part in parts if part is not None])


def broadcast_from_main(value: T) -> T:
    """Return the value of the main process."""
    if not is_distributed():
        return value
    from torch import distributed

    values = [value]
    distributed.broadcast_object_list(values)
    return values[0]
