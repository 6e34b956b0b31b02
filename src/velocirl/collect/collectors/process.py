"""Collector process: acts, steps its environments and fills its ring until the learner stops it."""

from __future__ import annotations

import pickle
from contextlib import suppress
from typing import Any

import numpy as np

from velocirl.collect.collectors.acting import make_acting
from velocirl.collect.collectors.board import Board
from velocirl.collect.collectors.patience import wait_for
from velocirl.collect.collectors.ring import ACTED, GIVEN, STEPPED, WAITED
from velocirl.collect.collectors.setup import Setup
from velocirl.vector.host import worker_process
from velocirl.vector.host.worker_process import read_payload

COLLECT = b"g"


class Stopped(Exception):  # noqa: N818 - it says what is so, and is no error
    """Stop request of the learner in the middle of a rollout."""


class Worker(worker_process.Worker):
    """Worker process that collects from the COLLECT command on until it is stopped."""

    acting: Any = None

    def start(self) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] - there is nothing to describe
        """Create the environments and the acting side."""
        setup: Setup = pickle.loads(read_payload(self.commands))  # noqa: S301 - from the parent
        self.board = Board(setup.plan, self.memory)
        self.ring, plan = self.board.rings[setup.number], setup.plan
        self.first = setup.number * plan.shape.copies
        self.acting = make_acting(setup.task, self.ring)
        self.whole_rollouts = setup.task.value is not None
        if self.whole_rollouts:
            self.acting.host.after_step = self._note_step
        self.orders: Any = None
        self.seen, self.published = -1, 0  # number of orders read; number of the acting weights
        # Number of episode restarts seen; None in a replacement process, which begins new episodes anyway.
        self.episodes = 0 if setup.start == 0 else None

    def answer(self, command: bytes) -> bytes | None:
        """Collect; COLLECT is the only command."""
        if command != COLLECT:
            raise RuntimeError(f"a collector knows no command {command!r}")
        choose = self._paced if self.board.plan.paced else self._free
        if not self.whole_rollouts:
            # Rounds of a replaced process are taken first: the break in its episodes then has a known position.
            wait_for(lambda: len(self.ring) == 0 or bool(self.board.stopped[0]))
        with suppress(Stopped):
            while not self.board.stopped[0]:
                self._look()
                step = choose()
                if step is not None:
                    self.acting.step(step)
                    self.ring.give()
        return None

    def _note_step(self) -> None:
        """Count a step as progress within a rollout; raise `Stopped` if the learner has stopped."""
        self.ring.counts[STEPPED] += 1
        if self.board.stopped[0]:
            raise Stopped

    def _look(self) -> None:
        """Read the orders if they are new."""
        board = self.board
        if (given := board.orders.writes) == self.seen:
            return
        self.orders, self.seen = board.orders.read(), given
        self.acting.pace[0] = self.orders["pace"]
        begun = int(self.orders["episodes"])
        if self.episodes not in (None, begun):
            self.acting.host.begin_anew(int(self.orders["seed"]) + self.first)
            self.ring.interrupt()
        self.episodes = begun

    def _paced(self) -> int | None:
        """Load the weights of the next round and return its step in the run; None if it is not due."""
        board, orders, counts = self.board, self.orders, self.ring.counts
        number = int(counts[GIVEN])
        if orders is None or number >= orders["stop"]:
            wait_for(self._news)
            return None
        counts[WAITED] += wait_for(lambda: self._news() or board.weights_for(number, orders) is not None)
        publication = board.weights_for(number, orders)
        if publication is None:
            return None
        self._act_by(publication)
        return int(orders["step"]) + (number - int(orders["first"])) * board.plan.copies

    def _free(self) -> int | None:
        """Load the newest weights and return the learner's step count, without waiting; None while paused."""
        board, orders = self.board, self.orders
        if orders is None or orders["stop"] <= orders["first"]:
            wait_for(self._news)
            return None
        if board.weights.newest != self.published:
            self._act_by(None)
        return int(board.steps[0])

    def _news(self) -> bool:
        """Return whether there are new orders or a stop."""
        return bool(self.board.stopped[0]) or self.board.orders.writes != self.seen

    def _act_by(self, publication: int | None) -> None:
        if publication is None or publication != self.published:
            found = self.board.weights.read(publication)
            self.published, self.ring.counts[ACTED] = int(found["number"]), found["updates"]
            self.acting.take(np.ascontiguousarray(found["bytes"]))

    def current(self) -> int:
        """Return -1: the traceback shows which environment raised."""
        return -1

    def close(self) -> None:
        """Close the environments."""
        if self.acting is not None:
            self.acting.envs.close()
