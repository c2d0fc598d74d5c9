"""Memory of the machine: how much is available, and limits that turn shortage into an error."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

GIGABYTE = 10**9
USABLE_FRACTION = 0.8  # fraction of the free memory that may be taken; other programs need some too
_MEMINFO = Path("/proc/meminfo")
# Files with the limit and the use of a control group, in versions 2 and 1.
_CGROUPS = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (
        Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        Path("/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ),
)
_SHORTAGE = (
    "allocate memory",
    "not enough memory",
    "out of memory",
    "bad_alloc",
    "Unable to allocate",
)


def available_memory() -> int | None:
    """Return the bytes that can be taken without swapping; None if that is not known.

    Limits of a container are respected.
    """
    try:
        entry = _MEMINFO.read_text(encoding="ascii").partition("\nMemAvailable:")[2]
        free = int(entry.split()[0]) * 1024
    except (OSError, ValueError, IndexError):  # not every system has this
        return None
    for most, used in _CGROUPS:
        try:
            free = min(free, int(most.read_text()) - int(used.read_text()))
        except (OSError, ValueError):  # no such limit
            continue
    return max(free, 0)


def is_shortage(error: BaseException | None) -> bool:
    """Return whether an error, or its cause, says that memory was refused."""
    if error is None:
        return False
    # OutOfMemoryError is torch's error for the memory of a device.
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return any(words in str(error) for words in _SHORTAGE) or is_shortage(error.__cause__)


@contextmanager
def limit_memory(max_memory: int | None = None) -> Iterator[None]:
    """Make allocations of this process fail when they exceed a limit.

    Args:
        max_memory: Largest address space in bytes. None allows a fraction of the free memory on
            top of what the process has mapped.
    """
    try:
        import resource

        free = available_memory()
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        old = resource.getrlimit(resource.RLIMIT_AS)
        limit = mapped + int(USABLE_FRACTION * free) if free is not None else old[0]
        if max_memory is not None:
            limit = max_memory
        if old[0] != resource.RLIM_INFINITY:
            limit = min(limit, old[0])
        resource.setrlimit(resource.RLIMIT_AS, (limit, old[1]))
    except (ImportError, OSError, ValueError):  # not every system has this
        yield
        return
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, old)
