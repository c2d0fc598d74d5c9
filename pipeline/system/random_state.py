"""Random numbers of user code: a function of its arguments, without effect on other generators."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np


@contextmanager
def isolate_rng(*parts: int | str) -> Iterator[None]:
    """Seed every generator that code shares, and restore all of them afterwards.

    The generators belong to the process, so no other thread may draw from them meanwhile.

    Args:
        parts: What the seed is derived from.
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
    """Seed every shared generator for one purpose."""
    import torch

    value = int.from_bytes(hashlib.sha256("/".join(map(str, parts)).encode()).digest()[:4], "big")
    random.seed(value)
    np.random.seed(value)
    torch.default_generator.manual_seed(value)
    if _uses_cuda():  # else torch would remember the call, and who made it
        torch.cuda.manual_seed_all(value)


def _uses_cuda() -> bool:
    """Return whether this process has begun to use CUDA; nothing draws there before."""
    import torch

    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
