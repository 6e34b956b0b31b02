"""Threads that run compiled functions in parallel; compiled functions release the GIL."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

from velocirl.engine.compiler.registers import doze, relax

Task = tuple[Callable[..., Any], tuple[Any, ...]]
SPINS = 2_500  # polls of other threads before a thread sleeps between polls: about 50 µs
SPACING = 8  # integers in a cache line, so that no two threads write to the same one


class _Threads:
    """Daemon threads of this process, each with an inbox of tasks; started when first needed."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._inboxes: list[SimpleQueue[Task]] = []
        self._lock = threading.Lock()

    def send(self, thread: int, function: Callable[..., Any], *arguments: Any) -> None:
        """Queue a function call for a thread; the function must not raise."""
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
        del function, arguments  # frees a fleet without other references


_THREADS = _Threads()
_TOGETHER = threading.Lock()
send = _THREADS.send


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


def wait_a_moment(looks):
    """Spin at first, then sleep between polls.

    Others arrive within microseconds as long as all threads have cores. If other programs use the cores too, a thread
    that only spins uses up its time slice, and is suspended when it is needed: 20x slower.
    """
    relax()
    if looks > SPINS:
        doze(1)
