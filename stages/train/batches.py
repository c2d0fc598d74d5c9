"""Which samples a step sees: a function of seed, phase, epoch and step, so that a run that goes on takes the same."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ltp_pipeline.data.prefetch import batches
from ltp_pipeline.stages.train.job import RunContext, targets_to_device, to_device
from ltp_pipeline.system import distributed
from ltp_pipeline.system.arrays import Array

STATISTICS_SAMPLES = 4096


class TensorBatch(NamedTuple):
    """A batch on the device."""

    inputs: dict[str, Tensor]
    targets: dict[str, Any]  # tensors, or lists of them


def epoch_batches(context: RunContext, key: str, epoch: int, first: int) -> Iterator[TensorBatch]:
    """The batches of an epoch from step `first` on, of each the part that belongs to this process."""
    seed, size = derive_seed(context.settings.train.seed, key, epoch), context.batch_size
    order = np.random.default_rng(seed).permutation(len(context.data.train))
    yield from _iter_own_batches(
        context, order[first * size : context.steps_per_epoch * size], augment_seed=seed
    )


def statistics_batches(context: RunContext) -> Iterator[TensorBatch]:
    """Training samples by which running statistics are measured."""
    seed = context.settings.train.seed
    rng = np.random.default_rng(
        derive_seed(seed, "statistics")
    )  # stored samples may be sorted by class
    torch.manual_seed(derive_seed(seed, "statistics", distributed.rank()))  # for Dropout
    yield from _iter_own_batches(
        context,
        rng.permutation(len(context.data.train))[: max(STATISTICS_SAMPLES, context.batch_size)],
    )


def derive_seed(*parts: int | str) -> int:
    """A seed for one purpose."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:6], "big")


def _iter_own_batches(
    context: RunContext, order: Array, augment_seed: int | None = None
) -> Iterator[TensorBatch]:
    """Whole batches in this order, of each the part that belongs to this process."""
    size = context.batch_size
    whole = order[: len(order) - len(order) % size].reshape(
        -1, distributed.get_world_size(), size // distributed.get_world_size()
    )
    rows = whole[:, distributed.rank()].ravel()
    for batch in batches(
        context.data.train, size // distributed.get_world_size(), rows, augment_seed=augment_seed
    ):
        yield TensorBatch(
            to_device(batch.inputs, context.device),
            targets_to_device(batch.targets, context.device),
        )
