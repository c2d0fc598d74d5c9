"""How many threads compute: what the process may use, divided among ranks, unless it was told.

Torch looks at the machine's cores and not at a container's quota of them.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ltp_pipeline.errors import InputError
from ltp_pipeline.system import distributed, thread_env
from ltp_pipeline.system.text import pluralize

_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUPS = Path("/proc/self/cgroup")
_V1_FOLDERS = ("cpu", "cpu,cpuacct", "cpuacct,cpu")
_V2_FOLDERS = ("", "unified")
_TIMES_CORES, _ALWAYS = (
    8,
    64,
)  # threads that may be asked for; the system refuses thousands, and ends the process
_count: int | None = None  # of the run at work


def count_usable_cores(root: Path = _CGROUPS, own: Path = _OWN_CGROUPS) -> int:
    """Cores that this process may use: by its affinity, and by the quotas of its control groups."""
    mine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    allowed = read_cpu_quota(root, own)
    return mine if allowed is None else max(min(mine, math.floor(allowed)), 1)


def read_cpu_quota(root: Path = _CGROUPS, own: Path = _OWN_CGROUPS) -> float | None:
    """Cores' worth of time that the control groups allow, the least of a group and those above it; None: all."""
    found: list[float | None] = []
    for line in _read_file(own).splitlines():
        _, names, path = line.split(":", 2) if line.count(":") > 1 else ("", "none", "")
        if names == "":
            found += [
                _parse_quota(*_read_file(group / "cpu.max").split())
                for group in _iter_groups(root, _V2_FOLDERS, path)
            ]
        elif "cpu" in names.split(","):
            for group in _iter_groups(root, _V1_FOLDERS, path):
                files = (group / "cpu.cfs_quota_us", group / "cpu.cfs_period_us")
                found.append(_parse_quota(*(_read_file(file).strip() for file in files)))
    return min((cores for cores in found if cores is not None), default=None)


def _iter_groups(root: Path, mounts: Iterable[str], path: str) -> Iterator[Path]:
    """Folders of a group and of those above it; inside a container the mount itself may be the group."""
    for mount in mounts:
        inner = root / mount / path.lstrip("/")
        yield from (p for p in (inner, *inner.parents) if p.is_relative_to(root / mount))


def _read_file(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""


def _parse_quota(*numbers: str) -> float | None:
    """`quota period` in microseconds; "max" and -1 mean that there is none."""
    try:
        allowed, period = map(int, numbers)
        return allowed / period if allowed > 0 else None
    except (ValueError, ZeroDivisionError):
        return None


def choose_thread_count(
    asked: int | None,
    kept: int | None,
    default: int,
    cores: int,
    environ: Mapping[str, str] = os.environ,
) -> int:
    """Threads for a run: as asked, as it began with, as OMP_NUM_THREADS says (torch's `default` then), or by cores."""
    if asked or kept:
        return asked or kept or default
    by_torchrun = (
        distributed.is_distributed() and environ.get("OMP_NUM_THREADS") == "1"
    )  # which it sets where nobody did
    if environ.get("OMP_NUM_THREADS") and not by_torchrun:
        return default
    share = (
        max(cores // int(environ.get("LOCAL_WORLD_SIZE", "1")), 1)
        if distributed.is_distributed()
        else cores
    )
    return share if by_torchrun else min(default, share)


def current_threads() -> int:
    """Threads of the run at work; outside of one, as many as this process may use."""
    if _count is not None:
        return _count
    told = os.environ.get("OMP_NUM_THREADS", "")
    return int(told) if told.isdecimal() and int(told) else count_usable_cores()


@contextmanager
def use_threads(asked: int | None, kept: int | None, say: Callable[[str], None]) -> Iterator[None]:
    """Compute with the threads of a run; `kept` is what it began with: another number gives other bytes."""
    global _count
    import torch

    before, cores = torch.get_num_threads(), count_usable_cores()
    count, now = (
        choose_thread_count(asked, kept, before, cores),
        choose_thread_count(asked, None, before, cores),
    )
    most = max(_TIMES_CORES * (os.cpu_count() or 1), _ALWAYS)
    if count > most:
        what = f"{count} threads are far more than the {pluralize(os.cpu_count() or 1, 'core')} of this machine"
        raise InputError(what, f"set train.threads to at most {most}; the default is by the cores")
    if kept and now != kept:
        same = (
            f"{pluralize(kept, 'thread')}, as it began, so that its files are the same to the byte"
        )
        other = f"{pluralize(count, 'thread')} as asked, not {kept} as it began: its files will differ in the last bits"
        say(f"Going on with {same if count == kept else other}")
    if count > 1 and thread_env.was_set_too_late():
        warnings.warn(thread_env.TOO_LATE, stacklevel=2)
    _count = count
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _count = None
