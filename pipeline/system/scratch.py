"""Folders for temporary files; where their disk is full, that is what is told, and not what broke for want of space."""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ltp_pipeline.errors import InputError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
MIN_FREE_BYTES = 1 << 16  # bytes; a disk with less is full
HINT = "free some space there, or set TMPDIR to a folder on another disk; then run the same again"


def is_disk_full(error: OSError) -> bool:
    """Whether there was no space, or no more was allowed."""
    return error.errno in FULL


@contextmanager
def temporary_folder(purpose: str) -> Iterator[Path]:
    """A folder that is removed at the end.

    Native code and child processes say many things where they could not write; so any error counts as a full disk
    where the disk is full.
    """
    try:
        made = tempfile.TemporaryDirectory(prefix=f"ltp-{purpose}-", ignore_cleanup_errors=True)
    except OSError as error:
        raise InputError(f"cannot make a temporary folder: {error.strerror}", HINT) from None
    with made as name:
        try:
            yield Path(name)
        except Exception as error:
            reason = _find_reason(error, Path(name))
            if reason is None:
                raise
            raise InputError(
                f"cannot write temporary files in {Path(name).parent}: {reason}", HINT
            ) from None


def _find_reason(error: Exception, folder: Path) -> str | None:
    """Why nothing more could be written, if so."""
    if isinstance(error, OSError) and is_disk_full(error):
        return error.strerror
    if folder.is_dir() and shutil.disk_usage(folder).free < MIN_FREE_BYTES:
        return os.strerror(errno.ENOSPC)
    return None
