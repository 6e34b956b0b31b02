"""Thread teams: the items of a parallel region are claimed by whichever threads are running.

A region is a number of items, each a call of a unit. Results depend on the items, never on the thread or the time that
runs them. The calling thread (worker 0) publishes a region, claims items itself, and waits only for items that others
have claimed. Helpers claim the rest. A helper that the system has suspended therefore delays one item at most, and a
helper that never arrives delays none. The autotuner adjusts the number of active helpers while training runs (see
`autotuner`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.compiler.clock import now
from velocirl.engine.compiler.compiling import cpu_translator
from velocirl.engine.compiler.python_units import PythonUnit
from velocirl.engine.compiler.registers import doze, exchange_if, mailbox_read, mailbox_write
from velocirl.engine.compiler.units import BoundUnit, bind_unit, call_unit
from velocirl.engine.targets.autotuner import TUNER, begin_tuner, ladder_of, most_workers, tune
from velocirl.engine.targets.threads import SPACING, send, wait_a_moment

MAX_ITEMS = 64  # of a region
ITEMS_PER_THREAD = 4  # where indices are distributed: a slow thread then delays a fraction of the work
LANES = 16  # indices that vectorized loops take together
NAP = 1_000  # microseconds that a helper sleeps while fewer workers are wanted
LINGER = 1_000_000  # nanoseconds that helpers stay after a run, in case the next follows at once
MAX_HELPERS = 1_024  # of a process; more threads are of no use
CALLS = np.zeros(MAX_HELPERS * SPACING, np.int64)  # number of calls of each of the process's helpers, by any team

# The board: one cache line for each of these, so that a write by one thread does not slow down readers of another.
EPOCH, REGION, WORKERS, RUNNING, FAULT, WAITED, ITEMS = (SPACING * line for line in range(7))
AVAILABLE = WORKERS + 1  # workers that could take part in this run
OFFSET, ITEM_STRIDE, WORKER_STRIDE, COUNT, ARGUMENT = range(REGION, REGION + 5)
CLAIMED, DONE = 0, 1  # within the line of an item: the epochs in which it was claimed and done
HELPERS = ITEMS + SPACING * MAX_ITEMS
ACTIVE, HELD, PRESENT = 0, 1, 2  # within the line of a helper: its epoch or 0, the item it runs, whether it polls


class TeamView(NamedTuple):
    """Team as compiled code accesses it."""

    board: NDArray[np.int64]
    frames: NDArray[np.int64]  # of all units that regions call
    calls: NDArray[np.int64]  # CALLS


def run_region(team, offset, item_stride, worker_stride, count, argument):
    """Call a unit for each of `count` items, in any order and by any worker; return when all are done.

    Item `i` calls the unit at `offset + i * item_stride + worker * worker_stride` of the team's frames, as
    `unit(i, argument, worker)`.
    """
    board = team.board
    if count == 1 or board[WORKERS] <= 1:
        for item in range(count):
            call_unit(team.frames[offset + item * item_stride], item, argument, 0)
        return
    epoch = board[EPOCH] + 1
    board[OFFSET], board[ITEM_STRIDE], board[WORKER_STRIDE] = offset, item_stride, worker_stride
    board[COUNT], board[ARGUMENT] = count, argument
    mailbox_write(board, EPOCH, epoch)
    claim_items(team, epoch, 0, offset, item_stride, worker_stride, count, argument)
    for item in range(count):
        wait_for_item(board, epoch, item)
    if mailbox_read(board, FAULT) != 0:
        raise RuntimeError("a helper thread failed")  # replaced by the helper's exception, see `Team.run`


def wait_for_item(board, epoch, item):
    """Wait until an item is done, by the worker that claimed it."""
    line, looks = ITEMS + item * SPACING, 0
    if mailbox_read(board, line + DONE) >= epoch:
        return
    began = now()
    while mailbox_read(board, line + DONE) < epoch:
        looks += 1
        wait_a_moment(looks)
    board[WAITED] += now() - began


def begin_work(team, tuner):
    """Admit the tuner's number of workers to the next regions; returns the current time."""
    tuner.available = team.board[AVAILABLE]
    mailbox_write(team.board, WORKERS, min(tuner.workers, tuner.available))
    return now()


def claim_items(team, epoch, worker, offset, item_stride, worker_stride, count, argument):
    """Claim and run items until none is left, beginning with the worker's own part, whose data its core has cached."""
    board = team.board
    workers = max(mailbox_read(board, WORKERS), 1)
    start = worker * count // workers if worker < workers else 0
    for k in range(count):
        item = start + k if start + k < count else start + k - count
        line = ITEMS + item * SPACING
        claimed = mailbox_read(board, line + CLAIMED)
        if claimed < epoch and exchange_if(board, line + CLAIMED, claimed, epoch) == claimed:
            mailbox_write(board, HELPERS + worker * SPACING + HELD, item)
            frame = team.frames[offset + item * item_stride + worker * worker_stride]
            call_unit(frame, item, argument, worker)
            mailbox_write(board, line + DONE, epoch)


def assist(arguments, first, stop, place):  # noqa: ARG001 - as every unit
    """Claim items of every region as helper number `first`, until no run has been active for LINGER nanoseconds.

    The helper leaves at once if another team has called it since its own call, number `stop`.
    """
    team = arguments[0]
    board, own = team.board, HELPERS + first * SPACING
    seen, looks, idle = 0, 0, now()
    while True:
        epoch, wanted = mailbox_read(board, EPOCH), first < mailbox_read(board, WORKERS)
        if epoch != seen and wanted:
            offset, count = mailbox_read(board, OFFSET), mailbox_read(board, COUNT)
            item_stride, worker_stride = mailbox_read(board, ITEM_STRIDE), mailbox_read(board, WORKER_STRIDE)
            argument = mailbox_read(board, ARGUMENT)
            mailbox_write(board, own + ACTIVE, epoch)
            if mailbox_read(board, EPOCH) == epoch:  # otherwise the values read may belong to two regions
                claim_items(team, epoch, first, offset, item_stride, worker_stride, count, argument)
                seen, looks = epoch, 0
            mailbox_write(board, own + ACTIVE, 0)
            idle = now()
            continue
        looks += 1
        if mailbox_read(board, RUNNING) != 0:
            if wanted:
                wait_a_moment(looks)
            else:
                doze(NAP)
            idle = now()
        else:
            wait_a_moment(looks)
            called = mailbox_read(team.calls, first * SPACING) != stop
            if called or not wanted or now() - idle > LINGER:
                mailbox_write(board, own + PRESENT, 0)
                # A run may have begun between the last poll and the line above, without calling this helper.
                if mailbox_read(board, RUNNING) == 0:
                    return 0
                mailbox_write(board, own + PRESENT, 1)


def call_range(arguments, item, argument, worker):  # noqa: ARG001
    """Call units, one after the other, for the item's range of indices."""
    frames, size, count = arguments
    for k in range(len(frames)):
        call_unit(frames[k], item * size, min((item + 1) * size, count), argument)
    return 0


def run_bound_region(arguments, first, stop, place):  # noqa: ARG001
    """Run one region, as a unit of work of a tuner: `first` items with the argument `stop`."""
    team, tuner, offset, item_stride, worker_stride = arguments
    since = begin_work(team, tuner[0])
    run_region(team, offset, item_stride, worker_stride, first, stop)
    tune(tuner[0], since, 1)
    return 0


class Team:
    """Threads that divide a learner's or a fleet's work: the caller, and up to `threads - 1` helpers.

    Helper threads belong to the process and serve all of its teams; a team never waits for one to arrive.
    """

    def __init__(self, threads: int, frames: int = 1024) -> None:
        self.threads = threads = min(threads, MAX_HELPERS)
        self._board = np.zeros(HELPERS + SPACING * (threads + 1), np.int64)
        self._frames, self._used = np.zeros(frames, np.int64), 0
        self.view = TeamView(self._board, self._frames, CALLS)
        self._assist = bind_unit(assist, (self.view,), cpu_translator("team", double=True), disjoint=False)
        self._held: list[Any] = []
        self.outside: list[PythonUnit] = []  # Python units that drivers call; `run` raises their exceptions
        self._faults: list[BaseException] = []
        self._process = os.getpid()

    def add(self, units: Sequence[BoundUnit]) -> int:
        """Register units that regions call; returns the offset of the first."""
        first, self._used = self._used, self._used + len(units)
        if self._used > len(self._frames):
            raise ValueError(f"a team of {self._used} units: allocate room for them")
        self._frames[first : self._used] = [unit.frame for unit in units]
        self._held += units
        return first

    def region(self, tuner: NDArray[Any], units: Sequence[BoundUnit], *, by_worker: bool = False) -> BoundUnit:
        """Bind a region as a driver for `run`, called with the number of items and an argument.

        There is one unit per item or, with `by_worker`, one per worker for all items. A single unit serves all items
        and workers.
        """
        offset, several = self.add(units), len(units) > 1
        arguments = self.view, tuner, offset, int(several and not by_worker), int(several and by_worker)
        return bind_unit(run_bound_region, arguments, cpu_translator("team", double=True), disjoint=False)

    def ranges(self, units: Sequence[BoundUnit], count: int) -> Callable[[int], None]:
        """Distribute `count` indices over threads; returns a function of `place` that calls the units for all indices.

        The units are called one after the other for a range of indices before the next range.
        """
        size = -(-count // min(ITEMS_PER_THREAD * self.threads, MAX_ITEMS))
        size = size if size < LANES else -(-size // LANES) * LANES
        items = -(-count // size)
        tuner = self.tuner(items)
        frames = np.array([unit.frame for unit in units], np.int64)
        call = bind_unit(call_range, (frames, size, count), cpu_translator("team", double=True), disjoint=False)
        driver = self.region(tuner, [call])
        self._held += units
        return lambda argument=0: self.run(driver, tuner, items, argument)

    def tuner(self, items: int) -> NDArray[Any]:
        """Make the state of an autotuner for one kind of work of this team, with at most `items` items."""
        tuner = np.zeros(1, TUNER)
        begin_tuner(tuner[0], ladder_of(min(self.threads, items)))
        return tuner

    @property
    def waited(self) -> float:
        """Seconds that the calling thread has waited for helpers."""
        return float(self._board[WAITED]) * 1e-9

    def gauges(self, tuner: NDArray[Any]) -> dict[str, float]:
        """Return the number of threads for a kind of work now; empty for a single-threaded team."""
        return {"threads": float(tuner[0]["workers"])} if self.threads > 1 else {}

    def run(self, driver: BoundUnit, tuner: NDArray[Any], first: int, stop: int, place: int = 0) -> None:
        """Call a driver, which runs regions, with the tuner's number of workers.

        A helper's exception is raised here, after all threads have stopped working.
        """
        board, workers = self._board, tuner[0]["workers"]
        due = workers > 1 or tuner[0]["probe_at"] <= time.monotonic_ns()
        several = self.threads > 1 and tuner[0]["levels"] > 1 and due
        board[AVAILABLE] = most_workers(tuner[0]) if several else 1
        board[WORKERS] = workers if several else 1
        try:
            if several:
                self._recruit()
            driver(first, stop, place)
        except BaseException:
            self._stop_region()
            if self._faults:
                raise self._faults[0] from None
            raise
        finally:
            board[RUNNING] = 0
            self._faults.clear()
            board[FAULT] = 0
            for unit in self.outside:
                unit.raise_fault()

    def _recruit(self) -> None:
        """Call the helpers of the next run that are not polling for work already."""
        board = self._board
        if self._process != os.getpid():  # threads do not survive a fork
            self._process = os.getpid()
            board[HELPERS:] = 0
        board[RUNNING] = 1
        for helper in range(1, board[AVAILABLE]):
            line = HELPERS + helper * SPACING
            if not board[line + PRESENT]:
                board[line + PRESENT] = 1
                CALLS[helper * SPACING] += 1
                try:
                    send(helper - 1, self._help, helper, int(CALLS[helper * SPACING]))
                except BaseException:  # an interrupt: the helper may not have been called
                    board[line + PRESENT] = 0
                    raise

    def _help(self, helper: int, call: int) -> None:
        board, line = self._board, HELPERS + helper * SPACING
        try:
            self._assist(helper, call)
        except BaseException as fault:  # noqa: BLE001 - raised by the run that wanted the work
            self._faults.append(fault)
            epoch, item = board[line + ACTIVE], ITEMS + board[line + HELD] * SPACING
            board[FAULT] = 1
            board[line + ACTIVE] = board[line + PRESENT] = 0
            board[item + DONE] = epoch

    def _stop_region(self) -> None:
        """Leave the region after a fault, and wait until no helper works on one of its items."""
        board = self._board
        board[COUNT] = 0
        board[EPOCH] += 1
        for helper in range(1, self.threads):
            line = HELPERS + helper * SPACING
            while 0 < board[line + ACTIVE] < board[EPOCH]:
                time.sleep(0.0001)
