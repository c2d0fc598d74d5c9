"""Random numbers that a user's code draws: a function of what it is called for, and no trace of them elsewhere."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np


@contextmanager
def isolate_rng(*parts: int | str) -> Iterator[None]:
    """Seed every generator that code shares; afterwards each is as it was, that of training above all.

    They belong to the process: no other thread may draw meanwhile.
    """
    import torch

    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(range(torch.cuda.device_count()) if _uses_cuda() else ()):
            seed_all(*parts)
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def seed_all(*parts: int | str) -> None:
    """Seed them for one purpose."""
    import torch

    drawn = int.from_bytes(hashlib.sha256("/".join(map(str, parts)).encode()).digest()[:4], "big")
    random.seed(drawn)
    np.random.seed(drawn)
    torch.default_generator.manual_seed(drawn)
    if _uses_cuda():  # else torch would remember the call, and who made it
        torch.cuda.manual_seed_all(drawn)


def _uses_cuda() -> bool:
    """Whether this process has begun to use such devices; nothing draws there before."""
    import torch

    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
