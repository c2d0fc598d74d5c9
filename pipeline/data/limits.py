"""Limits on files that are checked before they are read: kind, names and size."""

import os
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from ltp_pipeline.errors import InputError
from ltp_pipeline.system.text import make_printable, pluralize

FREE_BYTES = 256 * 2**20  # size to which any data may unpack
MAX_UNPACKING = 100  # unpacked size / size on disk; photographs and measurements reach 20 at best
BLOCK_BYTES = 512  # unit of st_blocks, whatever the file system uses
CHECK_HINT = "check the file, its permissions and its disk"
REWRITE_HINT = "write the archive again"
_MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")
_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}


class FileSizes(NamedTuple):
    """Total size of the files of a data set, and notes for the user."""

    bytes: int
    on_disk: int  # less than `bytes` if files have holes
    notes: tuple[str, ...] = ()


def inspect_files(paths: Iterable[str | Path]) -> FileSizes:
    """Measure files without opening them: opening a pipe waits forever, and a device never ends.

    Links are followed and counted.

    Raises:
        InputError: If a path cannot be read or is not a file.
    """
    size = on_disk = num_links = 0
    for path in paths:
        try:
            status = os.lstat(path)
            if stat.S_ISLNK(status.st_mode):
                num_links += 1
                status = os.stat(path)  # noqa: PTH116 - a million Path objects take a minute
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}", CHECK_HINT) from None
        if not stat.S_ISREG(status.st_mode):
            kind = _KINDS.get(stat.S_IFMT(status.st_mode), "a device")
            raise InputError(f"{path} must be a file, but it is {kind}", "remove it")
        size += status.st_size
        on_disk += _measure_on_disk(path, status)
    notes = []
    if num_links:
        verb = "is a link and was" if num_links == 1 else "are links and were"
        notes.append(f"{pluralize(num_links, 'file')} of the data {verb} followed")
    return FileSizes(size, on_disk, tuple(notes))


def check_size(
    path: Path, files: FileSizes, max_bytes: int | None, unpacked: int | None = None
) -> int:
    """Raise InputError if data hold far more than they take on disk, or do not fit in memory.

    Args:
        path: Data, for messages.
        files: Size of the files.
        max_bytes: Largest size in bytes; None for a limit by rule.
        unpacked: Size in memory by the headers; None if files are read in parts.

    Returns:
        The largest size in bytes.
    """
    limit = max_bytes
    if limit is None:
        limit = max(FREE_BYTES, MAX_UNPACKING * files.on_disk)
        if unpacked is not None:
            limit = min(limit, get_memory_limit())
    size = max(files.bytes, unpacked or 0)
    if size > limit:
        raise make_size_error(path, size, files, limit)
    return limit


def make_size_error(path: Path, size: int, files: FileSizes, limit: int) -> InputError:
    """Return the error for data that are too large; sizes are in bytes."""
    return InputError(
        f"{path} must hold at most {limit:,} bytes, but says that it holds {size:,};"
        f" it takes {files.on_disk:,} bytes on disk",
        "if it should be so large, set max_bytes in [data]; if it does not fit in memory, pass a"
        " folder of .npy files",
    )


def check_name_encoding(name: str, owner: str) -> None:
    """Raise InputError if a name is not UTF-8, because no report can hold it."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InputError(
            f"{owner} {make_printable(name)} has a name that is not UTF-8", "rename it"
        ) from None


def check_member_names(names: Sequence[str], archive: Path) -> None:
    """Raise InputError if a member has no valid name, or one that leads out of its archive."""
    seen = set()
    for name in names:
        check_name_encoding(name, f"a member of {archive},")
        member = f"member {make_printable(name)} of {archive}"
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise InputError(f"{member} has a path outside of the archive", REWRITE_HINT)
        if name in seen:
            raise InputError(f"{member} exists twice", REWRITE_HINT)
        seen.add(name)


def get_memory_limit() -> int:
    """Return the memory of the machine, or of the container, in bytes."""
    limits = [2**63 - 1]
    if hasattr(os, "sysconf"):
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(OSError, ValueError):  # not every system has this limit, and "max" is none
        limits.append(int(_MEMORY_LIMIT.read_text()))
    return min(limits)


def _measure_on_disk(path: str | Path, status: os.stat_result) -> int:
    """Return the bytes that a file takes on disk: less than its size if it has holes."""
    size_on_disk = getattr(status, "st_blocks", 0) * BLOCK_BYTES
    is_plausible = status.st_size <= max(FREE_BYTES, MAX_UNPACKING * size_on_disk)
    if is_plausible or not hasattr(os, "SEEK_HOLE"):
        return status.st_size
    # Some file systems count blocks only after a while, so a hole must be found.
    with open(path, "rb") as file:  # noqa: PTH123 - a million Path objects take a minute
        hole = os.lseek(file.fileno(), 0, os.SEEK_HOLE)
    return status.st_size if hole >= status.st_size else size_on_disk
