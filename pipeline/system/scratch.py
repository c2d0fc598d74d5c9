"""Temporary folders, with a clear error if their disk is full.

Without it, the user would see whatever broke for lack of space.
"""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ltp_pipeline.errors import InputError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
MIN_FREE_BYTES = 1 << 16  # a disk with less free space counts as full
HINT = "free some space there, or set TMPDIR to a folder on another disk; then run the same again"


def is_disk_full(error: OSError) -> bool:
    """Return whether an error says that a disk is full or a quota is reached."""
    return error.errno in FULL


@contextmanager
def temporary_folder(purpose: str) -> Iterator[Path]:
    """Provide a folder that is removed at the end.

    Native code and child processes report many different errors if they cannot write. So any error
    counts as a full disk if the disk is full.

    Raises:
        InputError: The disk is full, or the folder cannot be created.
    """
    try:
        prefix = f"ltp-{purpose}-"
        temporary = tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
    except OSError as error:
        raise InputError(f"cannot make a temporary folder: {error.strerror}", HINT) from None
    with temporary as name:
        try:
            yield Path(name)
        except Exception as error:
            reason = _find_reason(error, Path(name))
            if reason is None:
                raise
            message = f"cannot write temporary files in {Path(name).parent}: {reason}"
            raise InputError(message, HINT) from None


def _find_reason(error: Exception, folder: Path) -> str | None:
    """Return why nothing more can be written; None if something can."""
    if isinstance(error, OSError) and is_disk_full(error):
        return error.strerror
    if folder.is_dir() and shutil.disk_usage(folder).free < MIN_FREE_BYTES:
        return os.strerror(errno.ENOSPC)
    return None
