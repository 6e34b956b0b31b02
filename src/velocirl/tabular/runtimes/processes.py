"""Processes that share a table, above all for environments whose steps are Python."""

from __future__ import annotations

import os
import pickle
import select
import time
import weakref
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.compiler.counters import ROW
from velocirl.tabular.agent import TabularAgent
from velocirl.tabular.learner import CHUNKS, NO_LIMIT, Outcome, meter_of, outcome_of
from velocirl.tabular.loop import FAULT, KEPT, ROUNDS, TALLY, TICKET, Pace
from velocirl.tabular.runtimes.pinning import cores_for
from velocirl.tabular.runtimes.process_memory import SharedMemory
from velocirl.tabular.runtimes.process_setup import Recipe
from velocirl.tabular.runtimes.process_worker import ATTACH, LOAD, STATE, TAKE
from velocirl.tabular.tables.table import Table
from velocirl.vector.host.worker_handle import WorkerError, WorkerHandle, stop_workers

MODULE = "velocirl.tabular.runtimes.process_worker"
START_PATIENCE = 300.0  # seconds a worker may take to import, create its environments and compile
PATIENCE = 60.0  # seconds a worker may take for a step of its environments
LONGEST = 2.0  # seconds after which a call ends early, so that a signal takes effect soon
SAVED = ("policy.", "current.", "fleet.")  # prefixes of the workers' arrays in a saved state


def make_learner(agent: TabularAgent) -> ProcessLearner:
    """Create a learner whose worker processes share the environments."""
    return ProcessLearner(agent)


class ProcessLearner:
    """Learner whose workers claim rounds as they become free, and update one table without locks.

    The table is moved to memory that all processes share. It grows while the workers wait. A worker that ends, raises
    or hangs causes a `WorkerError`. All workers are ended then, and the next call starts new ones, with new episodes.
    """

    grain = 0  # a call may be short: no minimum of steps

    def __init__(self, agent: TabularAgent) -> None:
        if os.name != "posix":
            raise ValueError('runtime="processes" needs Linux or macOS: use runtime="serial" or "threads" here')
        self.num_envs, workers = agent.num_envs, agent.config.workers or 1
        self._name, self._report, self._memory = agent.source.id, agent.report, SharedMemory()
        agent.table.move(self._memory.allocate)
        self._table, self._attached = agent.table, None
        share = self.num_envs // workers
        self._groups = [range(first, first + share) for first in range(0, self.num_envs, share)]
        self._cores = cores_for(workers) if agent.config.pin else [None] * workers
        self._work = self._memory.allocate((8,), np.int64)
        nobody = np.zeros((share, 2), np.uint64)
        self._pupils = [
            agent.task.current(share, nobody)._replace(
                tally=self._memory.allocate((TALLY,), np.float64),
                episodes=self._memory.allocate((KEPT,), agent.task.episode),
                counters=self._memory.allocate((ROW,), np.int64),
            )
            for _ in self._groups
        ]
        self.meter = meter_of(agent.phases, self._pupils)
        self._recipe, self._starts = Recipe.of(agent, share), 0
        self._waited = self._idle = 0.0  # seconds: of this process for the workers, and of workers for the last of them
        self._workers: list[WorkerHandle] = []
        self._finalizer = weakref.finalize(self, stop_workers, self._workers, os.getpid())
        self._start()

    def run(self, pace: Pace, first: int) -> Outcome:
        """Let the workers take rounds until all are taken. A full table grows in between. Returns the result."""
        if not self._workers:
            self._start()
        for current in self._pupils:
            current.tally[:] = 0.0
        begun = time.monotonic()
        workers, end = len(self._groups), begun + LONGEST
        wanted, done, over = pace.rounds * workers, 0, False
        while not over:
            # A worker in the middle of a round when the table is full enough finishes the round.
            self._attach(self._table.grow(4 * self.num_envs))
            fullest = self._table.capacity - 2 * self.num_envs if self._table.sparse else NO_LIMIT
            self._work[TICKET] = done
            chunk = max(1, (wanted - done) // (workers * CHUNKS))
            taken = pace.shared_by(workers)._replace(chunk=chunk, fullest=fullest)
            began = time.monotonic()
            self._exchange(TAKE, [tuple(taken)] * workers, end=end)
            self._waited += time.monotonic() - began
            done = int(sum(current.tally[ROUNDS] for current in self._pupils))
            over = done >= wanted or time.monotonic() > end or any(current.tally[FAULT] for current in self._pupils)
        self.meter.add(time.monotonic() - begun)
        return outcome_of(self._pupils, first, self.num_envs, self._report)

    def settle(self) -> None:
        """Do nothing: the workers update the agent's table itself."""

    def take(self) -> None:
        """End the workers if the table is sparse, as its rows may have moved; the next call starts new ones."""
        if self._table.sparse:
            self.close()

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what determines the next rounds of all workers; nothing if a fault has ended them."""
        parts = self._exchange(STATE) if self._workers else [{}]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if all(parts) else {}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from the result of `state`, possibly of other workers."""
        own = {name: array for name, array in state.items() if name.startswith(SAVED)}
        if "policy.rng" not in own:
            return
        if not self._workers:
            self._start()
        groups = ({name: array[group.start : group.stop] for name, array in own.items()} for group in self._groups)
        self._exchange(LOAD, list(groups))

    def gauges(self) -> dict[str, float]:
        """Return the number of workers and restarts, the seconds spent waiting for workers and their idle seconds.

        A worker is idle from the end of its own last round to the end of the last round of all.
        """
        times = {"waiting_seconds": self._waited, "workers/idle_seconds": self._idle}
        return {"workers": len(self._workers), **times, "restarts": max(self._starts - 1, 0)}

    def close(self) -> None:
        """End the workers; they begin no more rounds."""
        self._work[TICKET] = NO_LIMIT
        stop_workers(self._workers, os.getpid())

    def _start(self) -> None:
        """Start all workers; after a restart they have other seeds, so that no episode is repeated."""
        try:
            region = self._memory.region
            for group, core, current in zip(self._groups, self._cores, self._pupils, strict=True):
                shared = current.tally, current.episodes, current.counters, self._work
                regions = tuple(region(array) for array in shared)
                setup = self._recipe.setup(group, core, self._starts, regions)
                self._workers.append(WorkerHandle(self._memory.descriptor, setup, MODULE))
            self._wait(START_PATIENCE)
            self._starts, self._attached = self._starts + 1, None
            self._attach(self._table.arrays)
        except BaseException:
            self.close()
            raise

    def _attach(self, arrays: Table) -> None:
        if arrays is not self._attached:
            self._exchange(ATTACH, [[self._memory.region(array) for array in arrays]] * len(self._groups))
            self._attached = arrays

    def _exchange(self, command: bytes, payloads: list[Any] | None = None, end: float | None = None) -> list[Any]:
        """Send a command to all workers and collect the replies."""
        try:
            for number, worker in enumerate(self._workers):
                worker.send(command, None if payloads is None else pickle.dumps(payloads[number]))
            return self._wait(PATIENCE, end)
        except BaseException:
            self.close()  # the workers are out of step with this process
            raise

    def _wait(self, patience: float, end: float | None = None) -> list[Any]:
        """Collect the replies of all workers in any order; after time `end`, no more rounds begin."""
        replies: list[Any] = [None] * len(self._workers)
        waiting = set(range(len(self._workers)))
        poller, number_at = select.poll(), {worker.fileno(): n for n, worker in enumerate(self._workers)}
        for descriptor in number_at:
            poller.register(descriptor, select.POLLIN)
        progress, since = [-1.0] * len(replies), [time.monotonic()] * len(replies)
        answered = since.copy()
        while waiting:
            ready = {number_at[descriptor] for descriptor, _ in poller.poll(100)}
            now = time.monotonic()
            for number in sorted(waiting):
                worker, rounds = self._workers[number], float(self._pupils[number].tally[ROUNDS])
                if rounds != progress[number]:
                    progress[number], since[number] = rounds, now
                if number in ready or not worker.alive:
                    replies[number] = self._receive(number)
                    answered[number] = now
                    waiting.discard(number)
                    poller.unregister(worker.fileno())
                elif now > since[number] + patience:
                    self._fail(number, WorkerError(f"has not done a step, or answered, for {patience:.0f} s"))
            if end is not None and now > end:
                self._work[TICKET] = NO_LIMIT
        if end is not None:
            self._idle += sum(max(answered) - one for one in answered)
        return replies

    def _receive(self, number: int) -> Any:
        try:
            return self._workers[number].receive(time.monotonic() + PATIENCE)
        except WorkerError as error:
            self._fail(number, error)

    def _fail(self, number: int, error: WorkerError) -> NoReturn:
        group = self._groups[number]
        copies = f"copy {group.start}" if len(group) == 1 else f"copies {group.start} to {group.stop - 1}"
        who = f"worker {number}, which has {copies},"
        self._workers[number].kill()  # it may hang: only the others are worth waiting for
        self.close()
        report = f"{self._name}: {who} {'raised:' + chr(10) if error.alive else ''}{error}"
        raise error.reported(report) from None
