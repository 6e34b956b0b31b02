"""What training takes of the machine: processor, memory and, where it is on one, GPU."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Annotated, Any

import msgspec
import psutil

from velocirl.monitor.gpu_watch import GPUWatch

EVERY = 1.0  # seconds between two readings; who asks sooner gets the last one again
TREE_EVERY = 5.0  # seconds after which worker processes that were started since are found
TREE_EVERY_SLOWLY = 60.0  # the same where all processes of the machine have to be looked at for that
NOTABLE_LOAD = 0.25  # cores that other programs keep busy, from which on it is shown
MOST_PROCESSES = 1024
PROCESSES = Path("/proc")
Amount = Annotated[float, msgspec.Meta(ge=0.0, le=1e18)]
Bytes = Annotated[int, msgspec.Meta(ge=0, le=10**18)]


class ResourceUse(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Figures of this process and those that it started, worker processes above all.

    Other ranks of an MPI job are not among them. Memory that processes share is counted for each that uses it. The
    GPU's figures are those of the whole device, whoever uses it.
    """

    cpu_percent: Amount  # 100 is one core
    memory_bytes: Bytes  # resident
    gpu_percent: Amount | None = None
    gpu_memory_bytes: Bytes | None = None
    other_cores: Amount | None = None  # cores, of those that this process may use, that other programs keep busy


class ResourceReader:
    """Reads the resources, at most once a second; a reading takes tens of microseconds for each process.

    The first one tells of the processor since this process began, the others since the reading before.
    """

    def __init__(self) -> None:
        self._own = psutil.Process()
        self._quick = (PROCESSES / "self" / "task" / str(self._own.pid) / "children").exists()
        self._children: dict[int, psutil.Process] = {}
        self._spent: dict[int, float] = {}  # seconds of the processor, by process
        self._looked: float | None = None  # when the children were looked for
        self._read_at: float | None = None
        self._resources: ResourceUse | None = None
        self._busy = busy_seconds()  # of all programs, when it was read last
        self._others, self._watched = 0.0, 0.0  # seconds: of other programs, and in which they were watched
        self._gpu: GPUWatch | None = None

    def watch_gpu(self) -> None:
        """Ask for the GPU's figures too, in the background; calling it again does nothing."""
        if self._gpu is None:
            self._gpu = GPUWatch()

    def read(self) -> ResourceUse:
        """The resources of now, or of less than a second ago."""
        now = time.monotonic()
        if self._resources is None or self._read_at is None or now - self._read_at >= EVERY:
            self._resources = self._read(now)
            self._read_at = now
        return self._resources

    @property
    def mean_other_cores(self) -> float:
        """Cores that other programs kept busy, on average over all readings; 0 where there is only one."""
        return self._others / self._watched if self._watched else 0.0

    def close(self) -> None:
        """Let the GPU be; what was read last stays. Calling it again does nothing."""
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
    """Seconds that the CPUs which this process may use have worked since the machine started, for any program.

    Time that a hypervisor took counts as work of others.
    """
    affinity = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    return sum(
        # What guests took is counted among the user's time already.
        sum(times) - times.idle - sum(getattr(times, name, 0.0) for name in ("iowait", "guest", "guest_nice"))
        for cpu, times in enumerate(psutil.cpu_times(percpu=True))
        if affinity is None or cpu in affinity
    )


def _descendants(root: int) -> list[int]:
    """The processes below one, from the kernel's own lists, without a look at every process of the machine."""
    found, waiting = [], [root]
    while waiting and len(found) < MOST_PROCESSES:
        tasks = PROCESSES / str(waiting.pop()) / "task"
        with contextlib.suppress(OSError):  # a process that has ended
            for task in os.listdir(tasks):  # noqa: PTH208 - names are enough, and this is the quickest
                with contextlib.suppress(OSError):  # a thread that has
                    children = list(map(int, (tasks / task / "children").read_bytes().split()))
                    found.extend(children)
                    waiting.extend(children)
    return found


def _children(process: Any) -> list[Any]:
    try:
        return process.children(recursive=True)
    except psutil.Error:
        return []
