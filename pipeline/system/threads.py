"""How many threads compute: the cores that the process may use, divided among ranks.

Torch looks at the cores of the machine, not at a container's quota of them.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ltp_pipeline.errors import InputError
from ltp_pipeline.system import distributed, thread_env
from ltp_pipeline.system.text import pluralize

_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUPS = Path("/proc/self/cgroup")
_V1_FOLDERS = ("cpu", "cpu,cpuacct", "cpuacct,cpu")
_V2_FOLDERS = ("", "unified")
# Limits of the number of threads that a user may request. Thousands of threads make the system end
# the process.
_MAX_PER_CORE = 8
_MAX_ALWAYS_ALLOWED = 64
_count: int | None = None  # threads of the current run


def count_usable_cores() -> int:
    """Return the number of cores that this process may use, by affinity and quota."""
    mine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    allowed = read_cpu_quota()
    return mine if allowed is None else max(min(mine, math.floor(allowed)), 1)


def read_cpu_quota() -> float | None:
    """Return the cores' worth of time that control groups allow; None without a quota.

    The smallest quota of a group and of those above it counts.
    """
    quotas: list[float] = []
    for line in _read_file(_OWN_CGROUPS).splitlines():
        names, _, path = line.partition(":")[2].partition(":")
        if not path:
            continue
        if not names:  # version 2 has one hierarchy without a name
            for group in _iter_groups(_V2_FOLDERS, path):
                quotas += _parse_quota(_read_file(group / "cpu.max"))
        elif "cpu" in names.split(","):
            for group in _iter_groups(_V1_FOLDERS, path):
                quota = _read_file(group / "cpu.cfs_quota_us")
                quotas += _parse_quota(f"{quota} {_read_file(group / 'cpu.cfs_period_us')}")
    return min(quotas, default=None)


def _iter_groups(mounts: Iterable[str], path: str) -> Iterator[Path]:
    """Yield the folders of a control group and of those above it.

    Inside a container the mount itself may be the group.
    """
    for mount in mounts:
        root = _CGROUPS / mount
        inner = root / path.lstrip("/")
        yield from (group for group in (inner, *inner.parents) if group.is_relative_to(root))


def _read_file(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""


def _parse_quota(text: str) -> list[float]:
    """Return quota / period; nothing for "max" and -1, which mean that there is no quota."""
    try:
        allowed, period = map(int, text.split())
        return [allowed / period] if allowed > 0 else []
    except (ValueError, ZeroDivisionError):
        return []


def choose_thread_count(asked: int | None, kept: int | None, default: int, cores: int) -> int:
    """Return the number of threads of a run.

    Args:
        asked: The number that the user requests.
        kept: The number that a resumed run began with.
        default: The number that torch uses by default, which follows OMP_NUM_THREADS.
        cores: Number of usable cores.
    """
    if asked or kept:
        return asked or kept or default
    setting = os.environ.get("OMP_NUM_THREADS")
    if not distributed.is_distributed():
        return default if setting else min(default, cores)
    if setting and setting != "1":
        return default
    own_cores = max(cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1")), 1)
    # torchrun sets OMP_NUM_THREADS to 1 if nobody has set it.
    return own_cores if setting else min(default, own_cores)


def current_threads() -> int:
    """Return the threads of the current run; outside of a run, as many as can be used."""
    if _count is not None:
        return _count
    setting = os.environ.get("OMP_NUM_THREADS", "")
    if setting.isdecimal() and int(setting):
        return int(setting)
    return count_usable_cores()


@contextmanager
def use_threads(asked: int | None, kept: int | None, say: Callable[[str], None]) -> Iterator[None]:
    """Compute with the threads of a run.

    Args:
        asked: The number that the user requests.
        kept: The number that a resumed run began with. Another number gives other bytes.
        say: Shows a line to the user.

    Raises:
        InputError: Too many threads are requested.
    """
    global _count
    import torch

    before = torch.get_num_threads()
    cores = count_usable_cores()
    count = choose_thread_count(asked, kept, before, cores)
    most = max(_MAX_PER_CORE * (os.cpu_count() or 1), _MAX_ALWAYS_ALLOWED)
    if count > most:
        machine_cores = pluralize(os.cpu_count() or 1, "core")
        raise InputError(
            f"{count} threads are far more than the {machine_cores} of this machine",
            f"set train.threads to at most {most}, or leave it out to use the cores",
        )
    if kept and choose_thread_count(asked, None, before, cores) != kept:
        threads = pluralize(count, "thread")
        if count == kept:
            say(f"Resuming with {threads}, as the run began, to get identical files")
        else:
            say(
                f"Resuming with {threads} as requested, and the run began with {kept}: "
                "the files will differ in their last bits"
            )
    if count > 1 and thread_env.was_set_too_late():
        warnings.warn(thread_env.TOO_LATE, stacklevel=2)
    _count = count
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _count = None
