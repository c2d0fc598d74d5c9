"""Batches, each read while those before are being used, where the samples allow it."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ltp_pipeline.data.dataset import Batch, Split
from ltp_pipeline.system.arrays import Array

AHEAD = 2  # one batch is decoded while the one before it is prepared


def iter_batches(
    split: Split,
    batch_size: int,
    order: Array | None = None,
    drop_last: bool = False,
    *,
    augment_seed: int | None = None,
) -> Iterator[Batch]:
    """Go once through the split (or through `order`); a failed read raises here, closing stops the reader.

    With a seed, samples of a split that is to be augmented are: each is a function of the seed and its own number.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}")
    order = np.arange(len(split)) if order is None else np.asarray(order)
    stop = len(order) - len(order) % batch_size if drop_last else len(order)
    read = _read_ahead if split.reads_ahead else _read_in_turn
    return read(
        split, [order[i : i + batch_size] for i in range(0, stop, batch_size)], augment_seed
    )


def _read_in_turn(split: Split, chunks: list[Array], seed: int | None) -> Iterator[Batch]:
    for chunk in chunks:
        yield split.read(chunk, seed)


def _read_ahead(split: Split, chunks: list[Array], seed: int | None) -> Iterator[Batch]:
    given = () if seed is None else (seed,)
    with ThreadPoolExecutor(AHEAD, thread_name_prefix="prefetch") as readers:
        pending = deque(readers.submit(split.read, chunk, *given) for chunk in chunks[:AHEAD])
        try:
            for i in range(len(chunks)):
                batch = pending.popleft().result()
                if i + AHEAD < len(chunks):
                    pending.append(readers.submit(split.read, chunks[i + AHEAD], *given))
                yield batch
        finally:
            for later in pending:
                later.cancel()
