"""The same work again and again, shared by threads that stay awake for a moment between two rounds of it.

Waking a sleeping thread takes tens of microseconds, as long as stepping thousands of copies. So a thread that has done
its share of a round watches a mailbox from compiled code, and does that of the next one at once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.compiler.compiling import cpu_translator
from velocirl.engine.compiler.registers import mailbox_read, mailbox_write, relax
from velocirl.engine.compiler.units import BoundUnit, bind_unit, call_unit
from velocirl.engine.targets.threads import send

PATIENCE = 5_000  # times that a thread looks into its mailbox before it goes to sleep: about 0.1 ms
WANTED, DONE, AWAKE = 0, 1, 2  # the places of a mailbox: rounds asked for, rounds done, whether a thread is watching


def watch(arguments, first, stop, place):
    """Do a share of every round that is wanted; returns when none was for `place` looks into the mailbox."""
    unit, mailbox = arguments
    done = mailbox_read(mailbox, DONE)
    looks = 0
    while True:
        if mailbox_read(mailbox, WANTED) != done:
            call_unit(unit, first, stop, 0)
            done += 1
            mailbox_write(mailbox, DONE, done)
            looks = 0
        relax()
        looks += 1
        if looks > place:
            mailbox_write(mailbox, AWAKE, 0)
            # Wanted between the last look and the line above? Then nobody else was told to do it.
            if mailbox_read(mailbox, WANTED) == done:
                return 0
            mailbox_write(mailbox, AWAKE, 1)
            looks = 0


class Rounds:
    """A unit that is called for ranges of indices, the first in the calling thread and each other in one of its own."""

    def __init__(self, unit: BoundUnit, ranges: Sequence[tuple[int, int]]) -> None:
        self._unit, self._own, others = unit, ranges[0], ranges[1:]
        self._others: list[tuple[tuple[int, int], NDArray[np.int64], BoundUnit]] = []
        for share in others:
            mailbox = np.zeros(8, np.int64)  # a cache line
            arguments = unit.frame, mailbox
            translator = cpu_translator("rounds", double=True)
            self._others.append((share, mailbox, bind_unit(watch, arguments, translator, disjoint=False)))
        self._faults: list[BaseException] = []
        self._process = os.getpid()

    def run(self) -> None:
        """Do one round and return when every share of it is done."""
        if self._others and self._process != os.getpid():  # in a fork nobody is watching
            self._process = os.getpid()
            for _, mailbox, _ in self._others:
                mailbox[:] = 0
        for thread, (share, mailbox, watching) in enumerate(self._others):
            mailbox[WANTED] += 1
            self._wake(thread, share, mailbox, watching)
        try:
            self._unit(*self._own)
        finally:
            self._wait()
        if self._faults:
            raise self._faults.pop()

    def _wait(self) -> None:
        for thread, (share, mailbox, watching) in enumerate(self._others):
            while mailbox[DONE] != mailbox[WANTED]:
                self._wake(thread, share, mailbox, watching)
                time.sleep(0)  # lets a thread that is just waking up have the GIL

    def _wake(self, thread: int, share: tuple[int, int], mailbox: NDArray[np.int64], watching: BoundUnit) -> None:
        if not mailbox[AWAKE]:
            mailbox[AWAKE] = 1
            send(thread, self._watch, share, mailbox, watching)

    def _watch(self, share: tuple[int, int], mailbox: NDArray[np.int64], watching: BoundUnit) -> None:
        try:
            watching(*share, PATIENCE)
        except BaseException as fault:  # noqa: BLE001 - raised by the round that wanted the work
            self._faults.append(fault)
            mailbox[DONE] = mailbox[WANTED]
            mailbox[AWAKE] = 0
