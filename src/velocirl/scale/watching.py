"""Hang detection: each rank reports its progress from time to time, in parallel with the reductions.

A rank blocked in an all-reduce cannot tell which rank is late. Each rank therefore reports its state (working, waiting,
exempt) to rank 0 from a thread, and rank 0 sends all states to all ranks. A working rank hangs if others have waited
for it for `limit` seconds. A silent rank hangs too: a stopped process has no thread that could report.

Ranks are exempt outside of iterations: while they compile, save and evaluate, and while callbacks run. Their threads
still report, unless something holds Python's lock. Silence therefore counts there too, with a longer limit. A rank may
take twice as long as the others' iterations did before it is reported.

Seconds are counted in checks of that thread, so that suspending the machine does not count as waiting.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

LIMIT = 60.0  # seconds
VARIABLE = "VELOCIRL_HANG_SECONDS"
LOOKS = 12  # checks of the thread within the limit
LONGEST_LOOK = 5.0  # seconds between two checks
SLACK = 2.0  # a rank may take this many times as long as the others did
EXCUSED_LIMIT = 2.0  # limits for an exempt rank that is silent
GRACE = 3  # checks within which a hanging rank may report itself
FORWARDED = 2.0  # seconds for the launcher to forward the message before it ends all ranks
EXCUSED, WORKING, WAITING = 0.0, 1.0, 2.0
News = Iterable[tuple[int, NDArray[np.float64]]]  # sending rank, and the rows it sent


class Row(NamedTuple):
    """State of one rank, as numbers to send."""

    beat: float = 0.0  # counter of its thread
    training: float = 0.0  # number of the training in its process
    meetings: float = 0.0
    state: float = EXCUSED
    seconds: float = 0.0  # in that state, since that reduction
    stretch: float = 0.0  # that it had worked before it waited
    age: float = 0.0  # seconds since its last report


class Channel(Protocol):
    """Nonblocking exchange of state rows, separate from the reductions."""

    def exchange(self, rows: NDArray[np.float64]) -> News:
        """Send rows, rank 0 to all and others to rank 0. Returns the rows received meanwhile."""
        ...


class Hanging(NamedTuple):
    """Rank that keeps the others waiting."""

    rank: int
    silent: bool  # it sends no reports, so other ranks report it
    seconds: float


class Watch:
    """One rank's view of all ranks. Its main thread writes `state` and `meetings`; the rest belongs to `look`."""

    def __init__(self, rank: int, size: int, limit: float) -> None:
        self.rank, self.limit = rank, limit
        self.state, self.meetings, self.training = EXCUSED, 0, 0
        self.rows = [Row() for _ in range(size)]

    def begin(self) -> None:
        """Begin a training: discard all reports."""
        self.training += 1
        self.state = EXCUSED
        self.rows = [Row() for _ in self.rows]

    def look(self, elapsed: float, news: News) -> None:
        """Update the view with the reports received in the `elapsed` seconds."""
        own = self.rows[self.rank]
        meetings, state = float(self.meetings), self.state
        same = own.meetings == meetings and own.state == state
        came = own.meetings == meetings and own.state == WORKING and state == WAITING
        stretch = own.seconds if came else own.stretch if same else 0.0
        seconds = own.seconds + elapsed if same else 0.0
        self.rows = [row._replace(age=row.age + elapsed) for row in self.rows]
        self.rows[self.rank] = Row(own.beat + 1, self.training, meetings, state, seconds, stretch)
        for sender, told in news:
            for rank in range(len(self.rows)) if sender == 0 else (sender,):
                row = Row(*told[rank if sender == 0 else 0].tolist())
                if rank != self.rank and row.training == self.training and row.beat != self.rows[rank].beat:
                    self.rows[rank] = row._replace(age=0.0 if rank == sender else row.age)

    def told(self) -> NDArray[np.float64]:
        """Return the rows to send: all rows on rank 0, the own row elsewhere."""
        return np.array(self.rows if self.rank == 0 else [self.rows[self.rank]])

    def hanging(self) -> list[Hanging]:
        """Return the ranks that others have waited for too long. Only rank 0 finds all; others see 0 and themselves."""
        waiting = [row for row in self.rows if row.state == WAITING and row.age < self.limit / 2]
        if max((row.seconds for row in waiting), default=0.0) < self.limit:
            return []
        patience = max(self.limit, SLACK * max(row.stretch for row in waiting))
        found = []
        for rank, row in enumerate(self.rows):
            if self.rank != 0 and rank not in (0, self.rank):
                continue
            silent = row.age >= (EXCUSED_LIMIT * self.limit if row.state == EXCUSED else patience)
            if silent or (row.state == WORKING and row.seconds + row.age >= patience):
                found.append(Hanging(rank, silent, row.age if silent else row.seconds + row.age))
        return found


class Watchman:
    """Thread of a rank that checks for hanging ranks, and ends the job if it finds one."""

    def __init__(self, watch: Watch, channel: Channel, names: list[str], abort: Callable[[int], None]) -> None:
        self._watch, self._channel, self._names, self._abort = watch, channel, names, abort
        self._pause = min(watch.limit / LOOKS, LONGEST_LOOK)
        self._looks: dict[int, int] = {}  # number of checks in which each rank hung
        self._main = threading.get_ident()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="velocirl-watch", daemon=True)

    def start(self) -> None:
        """Start the checks, until `stop`."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the checks."""
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        before = time.monotonic()
        while not self._done.wait(self._pause):
            now = time.monotonic()
            elapsed = min(now - before, 2 * self._pause)  # suspended time does not count
            self._watch.look(elapsed, self._channel.exchange(self._watch.told()))
            before = now
            for one in self._watch.hanging():
                self._looks[one.rank] = self._looks.get(one.rank, 0) + 1
                if self._looks[one.rank] > self._delay(one) and not self._done.is_set():
                    self._end(one)

    def _delay(self, one: Hanging) -> int:
        """Return the checks before this rank reports: a hanging rank reports itself first, else the first able one."""
        if one.rank == self._watch.rank:
            return 0
        return GRACE * (max(self._watch.rank - 1, 0) + (not one.silent))

    def _end(self, one: Hanging) -> None:
        who = f"rank {one.rank} of {len(self._names)} ({self._names[one.rank]})"
        if one.rank == self._watch.rank:
            frame = sys._current_frames().get(self._main)
            where = "".join(traceback.format_stack(frame)) if frame is not None else ""
            said = f"{who} hangs: the others have waited {one.seconds:.0f} s for it. It is here:\n{where}"
        elif one.silent:
            said = (
                f"{who} has not been heard of for {one.seconds:.0f} s, and the others wait for it: it was stopped, is"
            )
            said += " in a call that does not return, or its machine is lost\n"
        else:
            said = f"{who} hangs: the others have waited {one.seconds:.0f} s for it\n"
        advice = "The job ends; `velocirl resume` goes on from its last checkpoint."
        print(f"{said}{advice} {VARIABLE} sets the seconds, 0 for no limit.", file=sys.stderr, flush=True)
        time.sleep(FORWARDED)
        self._abort(1)
        os._exit(1)  # the main thread may be in a call that does not return


def limit_from(environment: Any = os.environ) -> float:
    """Return the seconds after which a rank hangs, from the environment variable or by default."""
    given = environment.get(VARIABLE, "")
    try:
        seconds = float(given) if given else LIMIT
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:
        raise ValueError(f"the environment variable {VARIABLE} must be seconds, 0 for no limit, got {given!r}")
    return seconds or math.inf
