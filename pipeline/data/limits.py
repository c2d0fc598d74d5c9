"""What is checked of files before they are read: that they are files, what they are called, and how much they hold."""

import os
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from ltp_pipeline.errors import InputError
from ltp_pipeline.system.text import make_printable, pluralize

FREE_BYTES = 256 * 2**20  # that any data may unpack to
MOST_TIMES = 100  # what they take on disk, beyond that; photographs and measurements pack to a twentieth at best
BLOCK = 512  # in which a file system counts, whatever its own are
_GROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
CHECK = "check the file, its rights and its disk"


class FileSizes(NamedTuple):
    """The files of a data set: how much they hold, how much of that is on disk, and what people should know."""

    bytes: int
    on_disk: int
    notes: tuple[str, ...] = ()


def inspect_files(paths: Iterable[str | Path]) -> FileSizes:
    """Look at files without opening them: opening a pipe waits for ever, and a device never ends.

    Links that a user put into a data set are followed and counted.
    """
    size = on_disk = links = 0
    for path in paths:
        try:
            found = os.lstat(path)
            if stat.S_ISLNK(found.st_mode):
                links += 1
                found = os.stat(path)  # noqa: PTH116 - a million Path objects take a minute
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}", CHECK) from None
        if not stat.S_ISREG(found.st_mode):
            kind = _KINDS.get(stat.S_IFMT(found.st_mode), "a device")
            raise InputError(f"{path} is {kind}, no file", "remove it")
        size += found.st_size
        on_disk += _on_disk(path, found)
    said = "is a link and was" if links == 1 else "are links and were"
    return FileSizes(
        size, on_disk, (f"{pluralize(links, 'file')} of the data {said} followed",) if links else ()
    )


def check_size(
    what: str | Path, files: FileSizes, limit: int | None, unpacked: int | None = None
) -> int:
    """Refuse data that hold far more than they take on disk, or do not fit in memory; returns how much they may hold.

    `unpacked` is what is loaded into memory, told by headers; None where files are read in place, a few at a time.
    """
    most = max(FREE_BYTES, MOST_TIMES * files.on_disk)
    if unpacked is not None:
        most = min(most, get_memory_limit())
    most = most if limit is None else limit
    held = max(files.bytes, unpacked or 0)
    if held > most:
        raise make_size_error(what, held, files, most)
    return most


def make_size_error(what: str | Path, held: int, files: FileSizes, most: int) -> InputError:
    """The error for data that hold too much."""
    return InputError(
        f"{what} takes {files.on_disk:,} bytes on disk and says that it holds {held:,}; at most {most:,} are read",
        "if it is meant, set max_bytes in [data]; if it is more than memory, give a folder of .npy files",
    )


def check_name_encoding(name: str, what: str) -> None:
    """Refuse a name that is no UTF-8: no report could hold it."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InputError(
            f"{what} {make_printable(name)} has a name that is no UTF-8", "rename it"
        ) from None


def check_member_names(names: Sequence[str], archive: Path) -> None:
    """Refuse names of members that are no text, that are there twice, or that would lead out of their archive."""
    seen = set()
    for name in names:
        check_name_encoding(name, f"a member of {archive},")
        inside = PurePosixPath(name)
        if inside.is_absolute() or ".." in inside.parts:
            raise InputError(
                f"member {make_printable(name)} of {archive} leads out of it",
                "write the archive again",
            )
        if name in seen:
            raise InputError(
                f"member {make_printable(name)} of {archive} is there twice",
                "write the archive again",
            )
        seen.add(name)


def get_memory_limit() -> int:
    """Bytes of memory that this process may have: the machine's, or those of its container."""
    found = [2**63 - 1]
    if hasattr(os, "sysconf"):
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(OSError, ValueError):  # there is none, or it says "max"
        found.append(int(_GROUP_LIMIT.read_text()))
    return min(found)


def _on_disk(path: str | Path, found: os.stat_result) -> int:
    """What a file takes on disk: less than its size where it has holes."""
    blocks = getattr(found, "st_blocks", 0) * BLOCK
    if found.st_size <= max(FREE_BYTES, MOST_TIMES * blocks) or not hasattr(os, "SEEK_HOLE"):
        return found.st_size
    with open(path, "rb") as file:  # noqa: PTH123 - as above; some file systems count blocks only after a while
        hole = os.lseek(file.fileno(), 0, os.SEEK_HOLE)
    return found.st_size if hole >= found.st_size else blocks
