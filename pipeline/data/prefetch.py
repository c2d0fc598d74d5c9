"""Batches, each read while the one before is being used."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ltp_pipeline.data.samples import Array, Split


def batches(
    split: Split, batch_size: int, order: Array | None = None, drop_last: bool = False
) -> Iterator[tuple[Array, Array]]:
    """Go once through the split (or through `order`); a failed read raises here, closing stops the reader."""
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}")
    order = np.arange(len(split)) if order is None else np.asarray(order)
    stop = len(order) - len(order) % batch_size if drop_last else len(order)
    return _read_ahead(split, [order[i : i + batch_size] for i in range(0, stop, batch_size)])


def _read_ahead(split: Split, chunks: list[Array]) -> Iterator[tuple[Array, Array]]:
    if not chunks:
        return
    with ThreadPoolExecutor(1, thread_name_prefix="prefetch") as reader:
        pending = reader.submit(split.read, chunks[0])
        for i, chunk in enumerate(chunks):
            samples = pending.result()
            if i + 1 < len(chunks):
                pending = reader.submit(split.read, chunks[i + 1])
            yield samples, split.labels[chunk]
