"""Batches of a split, read by worker processes of a torch DataLoader or by the main process.

The order of the samples and their augmentation are functions of seed and row. The number of worker
processes changes no batch.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from ltp_pipeline.data.dataset import NUM_THREADS, TRAIN, Batch, Split
from ltp_pipeline.errors import InputError, LtpError
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.system.signals import SIGNALS

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

# Freed memory blocks that Pillow keeps; allocating them again takes a sixth of the time.
PILLOW_BLOCKS = 4
WORKER_DIED = "DataLoader worker"  # start of torch's message about a worker process that ended


class SampleRequest(NamedTuple):
    """Samples of one batch: their rows in the stored data, and the seed of their augmentation."""

    rows: Array
    augment_seed: int | None


def iter_batches(
    split: Split,
    batch_size: int,
    order: Array | None = None,
    drop_last: bool = False,
    *,
    augment_seed: int | None = None,
) -> Iterator[Batch]:
    """Iterate over batches of a split once.

    Args:
        split: Samples to read.
        batch_size: Number of samples in a batch; the last batch may be smaller.
        order: Indices of the samples in the split. None reads all of them in their order.
        drop_last: Leave out a last batch that is smaller than the others.
        augment_seed: Seed for random crops, shifts and flips; None does not augment. Splits that
            are not opened for augmentation ignore it.

    Raises:
        InputError: If a sample cannot be read.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    rows = split.rows
    if order is not None:
        rows = rows[np.asarray(order)]
    end = len(rows)
    if drop_last:
        end -= end % batch_size
    requests = []
    for start in range(0, end, batch_size):
        batch_rows = rows[start : min(start + batch_size, end)]
        requests.append(SampleRequest(batch_rows, augment_seed))
    return _iter_requests(split, requests)


def _iter_requests(split: Split, requests: Sequence[SampleRequest]) -> Iterator[Batch]:
    """Read the requested batches, in worker processes if the split asks for them."""
    if not requests:
        return
    num_workers = split.count_workers(requests[0].augment_seed is not None)
    if num_workers:
        results = _get_loader(split, min(num_workers, len(requests))).fetch(requests)
    else:
        results = (split.fetch(*request, NUM_THREADS) for request in requests)
    for request, result in zip(requests, results, strict=False):
        yield split.make_batch(request.rows, result)


class WorkerLoader:
    """A DataLoader whose worker processes live until this object is deleted.

    torch would start them anew for each pass over the data, which takes a tenth of a second and
    copies memory of the main process.
    """

    def __init__(self, split: Split, num_workers: int) -> None:
        from torch import Generator
        from torch.utils.data import DataLoader

        self._requests: list[SampleRequest] = []
        self._num_passes = 0
        self.has_failed = False  # a worker process has ended
        is_linux = sys.platform == "linux"
        with warnings.catch_warnings(action="ignore"):  # torch warns of more workers than cores
            self._loader: DataLoader[Any] = DataLoader(
                FetchDataset(split.fetch_in_worker),  # type: ignore[arg-type]  # it has all that torch calls
                batch_size=None,
                sampler=self._requests,
                num_workers=num_workers,
                collate_fn=_keep_arrays,
                worker_init_fn=_start_worker,
                multiprocessing_context="fork" if is_linux else "spawn",
                generator=Generator(),  # without it, each pass would draw from the global one
                persistent_workers=True,
            )

    def fetch(self, requests: Sequence[SampleRequest]) -> Iterator[Any]:
        """Read the requested samples in the worker processes, in this order."""
        self._num_passes = this_pass = self._num_passes + 1
        self._requests[:] = requests
        try:
            with _block_signals():
                results = iter(self._loader)
            for _ in requests:
                if this_pass != self._num_passes:
                    raise RuntimeError("another pass over the same split has begun")
                result = next(results)
                if isinstance(result, LtpError):
                    raise result
                yield result
        except RuntimeError as error:
            if not str(error).startswith(WORKER_DIED):
                raise
            self.has_failed = True
            raise InputError(
                "a worker process that reads samples has ended",
                "if memory ran out, set a lower num_workers in [data]; 0 uses no worker processes",
            ) from None


class FetchDataset:
    """The samples of a split as a map-style dataset for torch; a key is the request of a batch."""

    def __init__(self, fetch: Callable[[Array, int | None], Any]) -> None:
        self._fetch = fetch

    def __getitem__(self, request: SampleRequest) -> Any:
        """Fetch the samples of a batch; return an error, which torch would raise as another one."""
        try:
            return self._fetch(*request)
        except LtpError as error:
            return error


# Loaders of training splits; those of other splits, which are read rarely, live for one pass.
_loaders: WeakKeyDictionary[Split, WorkerLoader] = WeakKeyDictionary()


def _get_loader(split: Split, num_workers: int) -> WorkerLoader:
    """Return a loader of the split, with workers that run already if it is a training split."""
    if split.name != TRAIN:
        return WorkerLoader(split, num_workers)
    if split not in _loaders or _loaders[split].has_failed:
        _loaders[split] = WorkerLoader(split, num_workers)
    return _loaders[split]


def _keep_arrays(samples: Any) -> Any:
    """Return samples as they are."""
    # Torch would make tensors of arrays, in shared memory. Containers often have little of it, and
    # a worker that exceeds it is killed.
    return samples


@contextmanager
def _block_signals() -> Iterator[None]:
    """Start worker processes that ignore Ctrl-C, and leave the handling of signals as it is.

    A worker inherits which signals are blocked. Unlike a handler that the worker sets, this leaves
    no moment in which Ctrl-C makes it print a traceback.
    """
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        yield
        return
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [getattr(signal, name) for name in SIGNALS])
    # torch's handler raises RuntimeError wherever the main process is when a worker ends.
    handler = signal.getsignal(signal.SIGCHLD)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _start_worker(_: int) -> None:
    """Prepare a worker process."""
    from PIL import Image

    gc.freeze()  # a garbage collection would copy the memory that is shared with the main process
    warnings.simplefilter("ignore")  # the main process reports corrupt images
    Image.core.set_blocks_max(PILLOW_BLOCKS)  # type: ignore[attr-defined]
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    if sys.platform != "win32":  # torch's handler ends a worker by SIGTERM of its parent
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])


def _exit_with_parent() -> None:
    """End this worker process when the main process ends in any way."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(0)
