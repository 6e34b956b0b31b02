"""A team of threads that run compiled functions side by side; compiled functions hold no GIL."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

Task = tuple[Callable[..., Any], tuple[Any, ...]]


class ThreadTeam:
    """Persistent threads; the caller works too, so a team of one starts none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._inboxes: list[SimpleQueue[Sequence[Task]]] = []
        self._outcomes: SimpleQueue[BaseException | None] = SimpleQueue()

    def run(self, shares: Sequence[Sequence[Task]]) -> None:
        """Run each share of tasks in a thread of its own and return when all are done."""
        if len(shares) == 1:
            _work_off(shares[0])
            return
        with self._lock:
            self._grow(len(shares) - 1)
            for inbox, share in zip(self._inboxes, shares[1:], strict=False):
                inbox.put(share)
            own = _work_off_safely(shares[0])
            faults = [self._outcomes.get() for _ in shares[1:]]
        for fault in (own, *faults):
            if fault is not None:
                raise fault

    def _grow(self, size: int) -> None:
        if self._process != os.getpid():  # threads do not survive a fork
            self._process, self._inboxes, self._outcomes = os.getpid(), [], SimpleQueue()
        while len(self._inboxes) < size:
            inbox: SimpleQueue[Sequence[Task]] = SimpleQueue()
            threading.Thread(
                target=_serve, args=(inbox, self._outcomes), name=f"velocirl-{len(self._inboxes)}", daemon=True
            ).start()
            self._inboxes.append(inbox)


def _serve(inbox: SimpleQueue[Sequence[Task]], outcomes: SimpleQueue[BaseException | None]) -> None:
    while True:
        outcomes.put(_work_off_safely(inbox.get()))


def _work_off(tasks: Sequence[Task]) -> None:
    for function, arguments in tasks:
        function(*arguments)


def _work_off_safely(tasks: Sequence[Task]) -> BaseException | None:
    try:
        _work_off(tasks)
    except BaseException as fault:  # noqa: BLE001 - handed to the caller of run, which raises it
        return fault
    return None


TEAM = ThreadTeam()
