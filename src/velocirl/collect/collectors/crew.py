"""Collector processes: start, supervision, replacement after a failure, and guaranteed shutdown."""

from __future__ import annotations

import os
import select
import time
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from velocirl.collect.collectors.process import COLLECT
from velocirl.collect.collectors.ring import STEPPED, Ring
from velocirl.vector.host.worker_handle import WorkerError, WorkerHandle, stop_workers

MODULE = "velocirl.collect.collectors.process"
START_PATIENCE = 300.0  # seconds for a collector to import, create its environments and compile
LOOK_EVERY = 0.02  # seconds between checks of all processes
ANSWER = 5.0  # seconds for the rest of a message


def release(workers: list[WorkerHandle], stopped: NDArray[np.bool_], owner: int) -> None:
    """End all processes; in a forked child of the owner, do nothing."""
    if os.getpid() == owner:
        stopped[0] = True
        stop_workers(workers, owner)


class Crew:
    """One process per ring. Processes that raise, end or hang are replaced, up to `restarts` in all."""

    def __init__(
        self, name: str, rings: Sequence[Ring], stopped: NDArray[np.bool_], descriptor: int,
        setup: Callable[[int, int], bytes], timeout: float, restarts: int,
    ) -> None:  # fmt: skip
        """Start all processes; `setup(number, start)` returns a collector's setup after `start` earlier starts."""
        self._name, self._rings, self._setup, self._descriptor = name, rings, setup, descriptor
        self._timeout, self._left, self.restarts = timeout, restarts, 0
        self._starts = [0] * len(rings)
        self._ready = [False] * len(rings)
        self._stepped, self._since = [-1] * len(rings), [0.0] * len(rings)
        self._looked = 0.0
        self._workers: list[WorkerHandle] = []
        self._finalizer = weakref.finalize(self, release, self._workers, stopped, os.getpid())
        try:
            for number in range(len(rings)):
                self._workers.append(self._start(number))
            while not all(self._ready):
                select.select(self._workers, [], [], LOOK_EVERY)
                self.watch(lambda _: True)
        except BaseException:
            self.close()
            raise

    @property
    def processes(self) -> list[int]:
        """Process IDs of the collectors."""
        return [worker.process for worker in self._workers]

    @property
    def closed(self) -> bool:
        """True if all processes were ended."""
        return not self._finalizer.alive

    def watch(self, busy: Callable[[int], bool]) -> None:
        """Replace processes that failed, and busy ones that have not stepped for too long."""
        now = time.monotonic()
        if now < self._looked + LOOK_EVERY:
            return
        self._looked = now
        poller = select.poll()
        for worker in self._workers:
            poller.register(worker.fileno(), select.POLLIN)
        heard = {descriptor for descriptor, _ in poller.poll(0)}
        for number, worker in enumerate(self._workers):
            try:
                if worker.fileno() in heard or not worker.alive:
                    worker.receive(now + ANSWER)
                    self._ready[number], self._since[number] = True, now
                self._expect_progress(number, now, busy)
            except WorkerError as error:
                self._replace(number, error)

    def resume(self) -> None:
        """Expect progress from now on; time before, without supervision, does not count."""
        self._since = [time.monotonic()] * len(self._rings)

    def close(self) -> None:
        """End all processes."""
        self._finalizer()

    def _expect_progress(self, number: int, now: float, busy: Callable[[int], bool]) -> None:
        stepped = int(self._rings[number].counts[STEPPED])
        if stepped != self._stepped[number] or not busy(number):
            self._stepped[number], self._since[number] = stepped, now
        patience = self._timeout if self._ready[number] else START_PATIENCE
        if now > self._since[number] + patience:
            raise WorkerError(f"has not done a step for {patience:g} s")

    def _start(self, number: int) -> WorkerHandle:
        self._ready[number], self._since[number] = False, time.monotonic()
        worker = WorkerHandle(self._descriptor, self._setup(number, self._starts[number]), MODULE)
        worker.send(COLLECT)  # as soon as it has started
        self._starts[number] += 1
        return worker

    def _replace(self, number: int, error: WorkerError) -> None:
        begun = self._ready[number] or self._starts[number] > 1  # otherwise it never worked, and would fail again
        if self._left == 0 or error.sentence or not begun:
            self._fail(number, error)
        self._left -= 1
        self.restarts += 1
        warnings.warn(
            f"{self._report(number, error)}\nIt is replaced, and its episodes are left unfinished;"
            f" {self._left} restarts left",
            RuntimeWarning,
            stacklevel=2,
        )
        self._workers[number].kill()
        self._workers[number] = self._start(number)

    def _fail(self, number: int, error: WorkerError) -> NoReturn:
        report = self._report(number, error)
        self._workers[number].kill()  # it may hang: only the others are worth waiting for
        self.close()
        raise error.reported(report) from None

    def _report(self, number: int, error: WorkerError) -> str:
        copies = self._rings[number].copies
        first = number * copies
        which = f"copy {first}" if copies == 1 else f"copies {first} to {first + copies - 1}"
        return (
            f"{self._name}: collector {number}, which has {which}, {'raised:' + chr(10) if error.alive else ''}{error}"
        )
