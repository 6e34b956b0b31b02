"""Usable cores: the process's affinity, the container's CPU quota, and physical cores instead of hyperthreads."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

CPUS = Path("/sys/devices/system/cpu")
CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


def available_cores() -> int:
    """Return the number of cores that this process may keep busy; at least 1.

    Compute-bound loops gain nothing from a second hyperthread of a core, so each physical core counts once. A quota is
    rounded down: one thread too many would exhaust it, and then all threads pause until the next period.
    """
    affinity = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    cores = len({_core_of(cpu) for cpu in affinity})
    quota = cpu_quota()
    return max(1, cores if quota is None else min(cores, int(quota)))


def cpu_quota() -> float | None:
    """Return the cores that cgroups allow this process, the smallest of all levels; None without a limit."""
    return _smallest_quota(CGROUPS, MEMBERSHIP)


@cache
def _core_of(cpu: int) -> str:
    """Return the list of hyperthreads of a CPU's physical core as its id; the CPU's own number if unknown."""
    try:
        return (CPUS / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)


def _smallest_quota(cgroups: Path, membership: Path) -> float | None:
    """Return the smallest quota, cgroup v2 (`cpu.max`) or v1 (`cpu.cfs_quota_us`), from the process's group upwards."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return None
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            roots, read = [cgroups, cgroups / "unified"], _read_v2
        elif "cpu" in controllers.split(","):
            roots, read = [cgroups / "cpu", cgroups / controllers], _read_v1
        else:
            continue
        own = Path(path.lstrip("/"))
        for root in roots:
            found += [read(root / level) for level in (own, *own.parents)]
    return min((quota for quota in found if quota is not None), default=None)


def _read_v2(group: Path) -> float | None:
    words = _words(group / "cpu.max")
    return _quota(*words) if len(words) == 2 else None


def _read_v1(group: Path) -> float | None:
    words = _words(group / "cpu.cfs_quota_us") + _words(group / "cpu.cfs_period_us")
    return _quota(*words) if len(words) == 2 else None


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []


def _quota(quota: str, period: str) -> float | None:
    """Return a quota in cores; `max` (v2) and -1 (v1) mean no limit."""
    return int(quota) / int(period) if quota.isdigit() and int(quota) > 0 and int(period) > 0 else None
