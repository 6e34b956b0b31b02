"""Resource use of training: processor, memory and, if used, the GPU."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Annotated, Any

import msgspec
import psutil

from velocirl.monitor.gpu_watch import GPUWatch

EVERY = 1.0  # seconds between two readings; earlier calls return the last one again
TREE_EVERY = 5.0  # seconds between searches for new worker processes
TREE_EVERY_SLOWLY = 60.0  # the same, where a search must inspect all processes of the machine
NOTABLE_LOAD = 0.25  # cores kept busy by other programs, from which their load is shown
MOST_PROCESSES = 1024
PROCESSES = Path("/proc")
Amount = Annotated[float, msgspec.Meta(ge=0.0, le=1e18)]
Bytes = Annotated[int, msgspec.Meta(ge=0, le=10**18)]


class ResourceUse(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Resource use of this process and its child processes, mainly workers.

    Other ranks of an MPI job are excluded. Memory shared between processes counts for each of them. The GPU's values
    cover the whole device, including other users.
    """

    cpu_percent: Amount  # 100 is one core
    memory_bytes: Bytes  # resident
    gpu_percent: Amount | None = None
    gpu_memory_bytes: Bytes | None = None
    other_cores: Amount | None = None  # of the cores available to this process, those kept busy by other programs


class ResourceReader:
    """Reader of resource use, at most once a second; a reading takes tens of microseconds per process.

    The first reading covers the processor time since this process began, later ones the time since the reading before.
    """

    def __init__(self) -> None:
        self._own = psutil.Process()
        self._quick = (PROCESSES / "self" / "task" / str(self._own.pid) / "children").exists()
        self._children: dict[int, psutil.Process] = {}
        self._spent: dict[int, float] = {}  # seconds of processor time, by process
        self._looked: float | None = None  # time of the last search for children
        self._read_at: float | None = None
        self._resources: ResourceUse | None = None
        self._busy = busy_seconds()  # of all programs, at the last reading
        self._others, self._watched = 0.0, 0.0  # seconds: used by other programs, and observed in total
        self._gpu: GPUWatch | None = None

    def watch_gpu(self) -> None:
        """Read the GPU too, in the background; further calls do nothing."""
        if self._gpu is None:
            self._gpu = GPUWatch()

    def read(self) -> ResourceUse:
        """Return the current resource use, or one less than a second old."""
        now = time.monotonic()
        if self._resources is None or self._read_at is None or now - self._read_at >= EVERY:
            self._resources = self._read(now)
            self._read_at = now
        return self._resources

    @property
    def mean_other_cores(self) -> float:
        """Cores kept busy by other programs, averaged over all readings; 0 if there is only one."""
        return self._others / self._watched if self._watched else 0.0

    def close(self) -> None:
        """Stop reading the GPU; the last values stay. Further calls do nothing."""
        if self._gpu is not None:
            self._gpu.close()

    def _read(self, now: float) -> ResourceUse:
        self._look_for_children(now)
        before, self._spent = self._spent, {}
        used, memory = 0.0, 0
        for process in (self._own, *self._children.values()):
            try:
                with process.oneshot():
                    times, resident = process.cpu_times(), process.memory_info().rss
            except psutil.Error:  # it has ended
                continue
            self._spent[process.pid] = spent = times.user + times.system
            used += max(spent - before.get(process.pid, spent), 0.0)
            memory += resident
        busy, others = busy_seconds(), None
        if self._read_at is None:
            used, elapsed = self._spent.get(self._own.pid, 0.0), time.time() - self._own.create_time()
        else:
            elapsed = now - self._read_at
            others = max(busy - self._busy - used, 0.0)
            self._others += others
            self._watched += elapsed
            others = round(others / max(elapsed, 1e-3), 2)
        self._busy = busy
        percent, gpu_memory = (None, None) if self._gpu is None else self._gpu.latest
        return ResourceUse(
            cpu_percent=round(100.0 * used / max(elapsed, 1e-3), 1),
            memory_bytes=memory,
            gpu_percent=percent,
            gpu_memory_bytes=gpu_memory,
            other_cores=others,
        )

    def _look_for_children(self, now: float) -> None:
        if self._looked is not None and now - self._looked < (TREE_EVERY if self._quick else TREE_EVERY_SLOWLY):
            return
        self._looked = now
        hidden = None if self._gpu is None else self._gpu.pid
        found = _descendants(self._own.pid) if self._quick else [one.pid for one in _children(self._own)]
        known, self._children = self._children, {}
        for pid in found[:MOST_PROCESSES]:
            if pid != hidden:
                try:
                    self._children[pid] = known.get(pid) or psutil.Process(pid)
                except psutil.Error:
                    continue


def busy_seconds() -> float:
    """Return the seconds that the CPUs available to this process have worked since boot, for any program.

    Time taken by a hypervisor counts as work of other programs.
    """
    affinity = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    return sum(
        # Guest time is already included in user time.
        sum(times) - times.idle - sum(getattr(times, name, 0.0) for name in ("iowait", "guest", "guest_nice"))
        for cpu, times in enumerate(psutil.cpu_times(percpu=True))
        if affinity is None or cpu in affinity
    )


def _descendants(root: int) -> list[int]:
    """Return the processes below one, from the kernel's own lists, without scanning every process of the machine."""
    found, waiting = [], [root]
    while waiting and len(found) < MOST_PROCESSES:
        tasks = PROCESSES / str(waiting.pop()) / "task"
        with contextlib.suppress(OSError):  # the process has ended
            for task in os.listdir(tasks):  # noqa: PTH208 - names are enough, and this is the quickest
                with contextlib.suppress(OSError):  # the thread has ended
                    children = list(map(int, (tasks / task / "children").read_bytes().split()))
                    found.extend(children)
                    waiting.extend(children)
    return found


def _children(process: Any) -> list[Any]:
    try:
        return process.children(recursive=True)
    except psutil.Error:
        return []
