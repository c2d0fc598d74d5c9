"""Which samples a step sees: a function of seed, phase, epoch and step.

So a resumed run sees the same samples in the same order as one that was never interrupted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ltp_pipeline.data.loader import iter_batches
from ltp_pipeline.stages.train.context import RunContext, targets_to_device, to_device
from ltp_pipeline.system import distributed
from ltp_pipeline.system.arrays import Array

STATISTICS_SAMPLES = 4096  # training samples by which running statistics are measured


class TensorBatch(NamedTuple):
    """A batch on the device.

    Attributes:
        inputs: Tensors by name of the input.
        targets: Tensors by name, or lists of tensors for samples that differ in shape.
    """

    inputs: dict[str, Tensor]
    targets: dict[str, Any]


def epoch_batches(context: RunContext, key: str, epoch: int, first: int) -> Iterator[TensorBatch]:
    """Yield this process's part of the batches of an epoch.

    Args:
        context: The run.
        key: Key of the phase.
        epoch: The epoch, counted from zero.
        first: The first step of the epoch to yield.
    """
    seed = derive_seed(context.settings.train.seed, key, epoch)
    order = np.random.default_rng(seed).permutation(len(context.data.train))
    begin = first * context.batch_size
    end = context.steps_per_epoch * context.batch_size
    yield from _iter_own_batches(context, order[begin:end], augment_seed=seed)


def statistics_batches(context: RunContext) -> Iterator[TensorBatch]:
    """Yield this process's part of the samples by which running statistics are measured."""
    seed = context.settings.train.seed
    # In random order, because stored samples may be sorted by class.
    rng = np.random.default_rng(derive_seed(seed, "statistics"))
    torch.manual_seed(derive_seed(seed, "statistics", distributed.get_rank()))  # for Dropout
    order = rng.permutation(len(context.data.train))
    yield from _iter_own_batches(context, order[: max(STATISTICS_SAMPLES, context.batch_size)])


def derive_seed(*parts: int | str) -> int:
    """Return a seed for one purpose, a hash of the parts."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:6], "big")


def _iter_own_batches(
    context: RunContext, order: Array, augment_seed: int | None = None
) -> Iterator[TensorBatch]:
    """Yield this process's part of each whole batch of the samples in this order."""
    size = context.batch_size
    processes = distributed.get_world_size()
    own_size = size // processes
    complete = order[: len(order) - len(order) % size]
    parts = complete.reshape(-1, processes, own_size)
    rows = parts[:, distributed.get_rank()].ravel()
    for batch in iter_batches(context.data.train, own_size, rows, augment_seed=augment_seed):
        yield TensorBatch(
            to_device(batch.inputs, context.device),
            targets_to_device(batch.targets, context.device),
        )
