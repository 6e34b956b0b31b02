"""Threads that run compiled functions side by side; compiled functions hold no GIL.

Waking a sleeping thread takes tens of microseconds, as long as stepping thousands of copies. So a thread that has taken
a step stays awake for a moment, watching a mailbox from compiled code, and takes the next one at once.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

import numpy as np

from velocirl.engine.registers import give_way, mailbox_read, mailbox_write, relax

Task = tuple[Callable[..., Any], tuple[Any, ...]]
PATIENCE = 5_000  # times that a thread looks into its mailbox before it goes to sleep: about 0.1 ms
LOOKS = 200  # times that a thread looks for the others at a meeting before it lets someone else have the core
SPACING = 8  # whole numbers in a line of the cache, so that no two threads write to the same one
WANTED, DONE, AWAKE = 0, 1, 2  # the places of a mailbox: rounds asked for, rounds done, whether a thread is watching


class _Threads:
    """Daemon threads of this process, each with an inbox of tasks; started when first needed."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._inboxes: list[SimpleQueue[Task]] = []
        self._lock = threading.Lock()

    def send(self, thread: int, function: Callable[..., Any], *arguments: Any) -> None:
        """Let a thread call a function when it is done with what it has; the function must not raise."""
        with self._lock:
            if self._process != os.getpid():  # threads do not survive a fork
                self._process, self._inboxes = os.getpid(), []
            while len(self._inboxes) <= thread:
                inbox: SimpleQueue[Task] = SimpleQueue()
                name = f"velocirl-{len(self._inboxes)}"
                threading.Thread(target=_serve, args=(inbox,), name=name, daemon=True).start()
                self._inboxes.append(inbox)
        self._inboxes[thread].put((function, arguments))


def _serve(inbox: SimpleQueue[Task]) -> None:
    while True:
        function, arguments = inbox.get()
        function(*arguments)
        del function, arguments  # a fleet that nobody else holds may go


_THREADS = _Threads()
_TOGETHER = threading.Lock()


def run_together(shares: Sequence[Sequence[Task]]) -> None:
    """Run each share of tasks in a thread of its own, the first in this one, and return when all are done."""
    outcomes: SimpleQueue[BaseException | None] = SimpleQueue()
    with _TOGETHER:  # shares that wait for each other must be in the same order in every inbox
        for thread, share in enumerate(shares[1:]):
            _THREADS.send(thread, lambda tasks: outcomes.put(_fault_of(tasks)), share)
    faults = [_fault_of(shares[0]), *(outcomes.get() for _ in shares[1:])]
    for fault in faults:
        if fault is not None:
            raise fault


def _fault_of(tasks: Sequence[Task]) -> BaseException | None:
    try:
        for function, arguments in tasks:
            function(*arguments)
    except BaseException as fault:  # noqa: BLE001 - handed to the caller, who raises it
        return fault
    return None


class Rounds:
    """The same work again and again, shared by threads: `function(share, mailbox, patience)` does one round.

    With patience 0 it does just that; else it watches the mailbox, does a round whenever one is wanted, and returns
    when it has seen nothing new for `patience` looks.
    """

    def __init__(self, function: Callable[..., Any], shares: Sequence[Any]) -> None:
        self._function = function
        self._own = shares[0]
        self._others = [(share, np.zeros(8, np.int64)) for share in shares[1:]]  # a cache line for each mailbox
        self._no_mailbox = np.zeros(8, np.int64)
        self._faults: list[BaseException] = []
        self._process = os.getpid()

    def run(self) -> None:
        """Do one round and return when every share of it is done."""
        if self._others and self._process != os.getpid():  # in a fork nobody is watching
            self._process = os.getpid()
            for _, mailbox in self._others:
                mailbox[:] = 0
        for thread, (share, mailbox) in enumerate(self._others):
            mailbox[WANTED] += 1
            self._wake(thread, share, mailbox)
        try:
            self._function(self._own, self._no_mailbox, 0)
        finally:
            self._wait()
        if self._faults:
            raise self._faults.pop()

    def _wait(self) -> None:
        for thread, (share, mailbox) in enumerate(self._others):
            while mailbox[DONE] != mailbox[WANTED]:
                self._wake(thread, share, mailbox)
                time.sleep(0)  # lets a thread that is just waking up have the GIL

    def _wake(self, thread: int, share: Any, mailbox: np.ndarray) -> None:
        if not mailbox[AWAKE]:
            mailbox[AWAKE] = 1
            _THREADS.send(thread, self._watch, share, mailbox)

    def _watch(self, share: Any, mailbox: np.ndarray) -> None:
        try:
            self._function(share, mailbox, PATIENCE)
        except BaseException as fault:  # noqa: BLE001 - raised by the round that wanted the work
            self._faults.append(fault)
            mailbox[DONE] = mailbox[WANTED]
            mailbox[AWAKE] = 0


def next_round(mailbox, done, patience):
    """Wait until a round after `done` is wanted; False if none was for `patience` looks, and the thread may sleep."""
    looks = 0
    while mailbox_read(mailbox, WANTED) == done:
        relax()
        looks += 1
        if looks > patience:
            mailbox_write(mailbox, AWAKE, 0)
            # Wanted between the last look and the line above? Then nobody else was told to do it.
            if mailbox_read(mailbox, WANTED) == done:
                return False
            mailbox_write(mailbox, AWAKE, 1)
            looks = 0
    return True


def meet(meeting, thread, threads, count):
    """Wait until every thread has come to its meeting number `count`; counting begins at 1."""
    mailbox_write(meeting, thread * SPACING, count)
    for other in range(threads):
        looks = 0
        while mailbox_read(meeting, other * SPACING) < count:
            relax()
            looks += 1
            if looks > LOOKS:
                give_way()
                looks = 0
