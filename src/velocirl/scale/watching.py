"""Ranks that hang are found and named: each says now and then how far it is, beside the sums.

A rank that waits in a sum knows that it waits, not for whom. So every rank has a thread that tells the first rank what
it does (works, waits for the others, or is excused), and the first rank tells all what it has heard. A rank hangs where
somebody has waited for `limit` seconds while it worked, or where it is not heard of any more: a process that was
stopped has no thread that could speak. Ranks are excused outside of iterations: while they compile, save and evaluate,
and while callbacks run. Their threads speak all the same, unless something holds Python's lock; so silence counts then,
too, with some patience. Where an iteration is long, others are given as long again before anybody complains of them.

Seconds are counted in looks of that thread, so that a machine that slept has not waited.
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
LOOKS = 12  # of the thread within the limit
LONGEST_LOOK = 5.0  # seconds from one to the next
SLACK = 2.0  # a rank may take so many times as long as the others did
EXCUSED_LIMIT = 2.0  # limits for a rank that is excused, if it is not heard of either
GRACE = 3  # looks in which a rank may say by itself that it hangs
FORWARDED = 2.0  # seconds in which a launcher passes on what was said, before it ends all
EXCUSED, WORKING, WAITING = 0.0, 1.0, 2.0
News = Iterable[tuple[int, NDArray[np.float64]]]  # from which rank, and the rows it knows


class Row(NamedTuple):
    """What is known of a rank, as numbers that travel."""

    beat: float = 0.0  # of its thread
    training: float = 0.0  # which of those of its process
    meetings: float = 0.0
    state: float = EXCUSED
    seconds: float = 0.0  # in that state, at that meeting
    stretch: float = 0.0  # that it had worked before it came to wait
    age: float = 0.0  # seconds since it was heard of


class Channel(Protocol):
    """What carries news beside the sums, and never blocks."""

    def exchange(self, rows: NDArray[np.float64]) -> News:
        """Send rows, the first rank to all and the others to the first; what has come meanwhile."""
        ...


class Hanging(NamedTuple):
    """A rank that keeps the others waiting."""

    rank: int
    silent: bool  # it is not heard of, so that others have to speak
    seconds: float


class Watch:
    """What one rank knows of all. Its main thread writes `state` and `meetings`; the rest belongs to `look`."""

    def __init__(self, rank: int, size: int, limit: float) -> None:
        self.rank, self.limit = rank, limit
        self.state, self.meetings, self.training = EXCUSED, 0, 0
        self.rows = [Row() for _ in range(size)]

    def begin(self) -> None:
        """A training begins, of which nobody has said anything yet."""
        self.training += 1
        self.state = EXCUSED
        self.rows = [Row() for _ in self.rows]

    def look(self, elapsed: float, news: News) -> None:
        """Take in what has come in these seconds."""
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
        """What this rank sends: the first one all that it knows, the others themselves."""
        return np.array(self.rows if self.rank == 0 else [self.rows[self.rank]])

    def hanging(self) -> list[Hanging]:
        """The ranks for which somebody has waited too long; of others but the first, only the first knows."""
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
    """The thread of a rank that looks, and ends the job where a rank hangs."""

    def __init__(self, watch: Watch, channel: Channel, names: list[str], abort: Callable[[int], None]) -> None:
        self._watch, self._channel, self._names, self._abort = watch, channel, names, abort
        self._pause = min(watch.limit / LOOKS, LONGEST_LOOK)
        self._looks: dict[int, int] = {}  # in which a rank was seen to hang
        self._main = threading.get_ident()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="velocirl-watch", daemon=True)

    def start(self) -> None:
        """Look, until `stop`."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        before = time.monotonic()
        while not self._done.wait(self._pause):
            now = time.monotonic()
            elapsed = min(now - before, 2 * self._pause)  # whoever slept has not looked
            self._watch.look(elapsed, self._channel.exchange(self._watch.told()))
            before = now
            for one in self._watch.hanging():
                self._looks[one.rank] = self._looks.get(one.rank, 0) + 1
                if self._looks[one.rank] > self._delay(one) and not self._done.is_set():
                    self._end(one)

    def _delay(self, one: Hanging) -> int:
        """Looks before this rank speaks: who hangs speaks first, or else the first one that can."""
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
    """Seconds after which a rank hangs, as somebody may have set them."""
    given = environment.get(VARIABLE, "")
    try:
        seconds = float(given) if given else LIMIT
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:
        raise ValueError(f"the environment variable {VARIABLE} must be seconds, 0 for no limit, got {given!r}")
    return seconds or math.inf
