"""Lock a run directory for one process, and refuse folders that hold something else than a run."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from ltp_pipeline.errors import InputError
from ltp_pipeline.run_directory.names import LOCK, MANIFEST, remove_leftovers

# Errors of file systems without locks, as some on a network.
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP)
_WRITABLE = "pass a writable folder with --out"


@contextmanager
def lock_directory(root: Path) -> Iterator[None]:
    """Keep other processes out of a run directory.

    A directory that is new and stays empty is removed at the end.

    Raises:
        InputError: Another process works in the directory, or it cannot be written.
    """
    check_own_directory(root)
    lock = FileLock(root / LOCK)
    is_new = not root.exists()
    _check_lock_file(root / LOCK)
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock.acquire(blocking=False)
    except Timeout:
        raise InputError(
            f"another process is working in {root}", "wait for it, or pass another --out"
        ) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise InputError(f"cannot write {root}: {error.strerror}", _WRITABLE) from None
    try:
        remove_leftovers(root)
        yield
    finally:
        lock.release()
        with suppress(OSError):  # somebody may have removed it
            if is_new and [entry.name for entry in root.iterdir()] == [LOCK]:
                (root / LOCK).unlink()
                root.rmdir()


def check_own_directory(root: Path) -> None:
    """Raise InputError if a folder holds something else than a run.

    Hidden files do not count: an interrupted write may have left them.
    """
    try:
        if not root.exists() or (root / MANIFEST).is_file():
            return
        foreign = not root.is_dir() or any(
            not entry.name.startswith(".") for entry in root.iterdir()
        )
    except OSError as error:
        raise InputError(f"cannot read {root}: {error.strerror}", _WRITABLE) from None
    if foreign:
        raise InputError(
            f"{root} is not empty and does not hold a run", "pass an empty or new folder with --out"
        )


def check_writable(folder: Path) -> None:
    """Raise InputError if a folder cannot be written, before any work is done."""
    parent, is_file = folder, False
    try:
        is_file = folder.is_file()
        while not parent.exists():
            parent = parent.parent
        writable = parent.is_dir() and os.access(parent, os.W_OK)
    except OSError:  # e.g. a name that is too long
        writable = False
    if is_file:
        raise InputError(f"{folder} is a file", "pass a folder with --out")
    if not writable:
        raise InputError(f"{folder} cannot be written", _WRITABLE)


def _check_lock_file(lock: Path) -> None:
    """Raise InputError if the lock is not a regular file."""
    if lock.is_symlink() or (lock.exists() and not lock.is_file()):
        raise InputError(
            f"{lock} is not a regular file, so the run cannot be locked",
            "remove it, or pass another --out",
        )
