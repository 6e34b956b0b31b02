"""Rollouts that collectors bring, as a learner takes them: one of each, or where they run free of whoever has one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from velocirl.learners.collectors.board import Orders
from velocirl.learners.collectors.collection import Collection
from velocirl.learners.collectors.columns import Columns, column_type
from velocirl.learners.collectors.patience import wait_for
from velocirl.learners.collectors.ring import GIVEN, LEAST_SLOTS, Ring, Shape
from velocirl.learners.pace import PACE
from velocirl.learners.task import Task

AHEAD = 1  # rollouts by which several collectors are ahead of the learner, where nobody says otherwise
ENDLESS = 2**62  # rounds: it is the weights that paced collectors wait for


class CollectedRollouts(Collection):
    """Collectors of rollouts, which write those that are taken into `columns`.

    In free rings one rollout waits at most, so that what is learnt from is never old.
    """

    def __init__(
        self, task: Task, columns: Columns, content: Callable[[], NDArray[np.uint8]], updates: Callable[[], int]
    ) -> None:
        """`updates` says how many there were so far."""
        config, state_size = task.config, columns.start_state.shape[1]
        copies, paced = config.num_envs // config.collectors, config.collect_mode == "paced"
        ahead = config.collect_ahead if config.collect_ahead is not None else AHEAD * (config.collectors > 1)
        slots = LEAST_SLOTS + (ahead if paced else 0)
        shape = Shape(column_type(task, state_size), copies, slots, 1 + state_size, 0, steps=config.horizon)
        super().__init__(task, shape, ahead, content)
        self._columns, self._count_updates = columns, updates
        self._orders: Orders | None = None
        self._allowed = 0  # rounds that paced collectors may take so far
        self._turn = 0  # the free collector that is asked first

    def collect(self) -> None:
        """Let collectors act by the weights of now, and take rollouts of all copies."""
        self._resume()
        self._updates = self._count_updates()
        self.publish()
        self._give_orders()
        for own, ring in self._shares():
            given = self._wait_for(ring)
            self._columns.read(given.rows[given.round(given.taken % given.slots)], own)
            given.take(1)
        self._rounds += 1
        self._batches += 1
        self._processed += self.plan.copies * self.plan.shape.steps

    def pause(self) -> None:
        """Let collectors rest until the next iteration, paced ones once they are as far ahead as they may be."""
        if self._orders is not None and not self._resting:
            stop = self._allowed if self.paced else self._orders.first
            self.board.orders.write(self._orders._replace(stop=stop))
            self._resting = True

    def gauges(self) -> dict[str, float]:
        """As of collectors of steps; after an iteration, its updates count for the age of the weights."""
        self._updates = self._count_updates()
        return super().gauges()

    def settle(self) -> None:
        """Wait until paced collectors are as far ahead as they may be."""
        if self.paced and self._crew is not None and not self._crew.closed:
            wait_for(lambda: all(ring.counts[GIVEN] >= self._allowed for ring in self.rings), self._watch_paced)

    def _give_orders(self) -> None:
        """The weights of now are those after the rollouts that were taken so far, and one more may be collected."""
        board, newest = self.board, self.board.weights.newest
        board.after[(self._rounds - 1) % len(board.after)] = newest
        board.learnt[0] = self._rounds
        self._allowed = self._rounds + 1 + self.plan.ahead
        if self._orders is None:
            no_pace = np.zeros(1, PACE)[0].item()
            self._orders = Orders(no_pace, 0, self._rounds, ENDLESS, newest, self._episodes, self._seed)
        if self._resting:
            board.orders.write(self._orders)
            self._resting = False

    def _wait_for(self, ring: Ring) -> Ring:
        """Wait for a ring with a rollout in it: this one, or any where they run free."""
        if self.paced:
            self._waited += wait_for(lambda: len(ring) > 0, self._watch_paced)
            return ring
        self._watch()
        self._waited += wait_for(lambda: any(len(one) > 0 for one in self.rings), self._watch)
        while not len(self.rings[self._turn]):
            self._turn = (self._turn + 1) % len(self.rings)
        found, self._turn = self.rings[self._turn], (self._turn + 1) % len(self.rings)
        return found

    def _watch_paced(self) -> None:
        """Those are busy who have not given what they may."""
        self._watch(lambda number: int(self.rings[number].counts[GIVEN]) < self._allowed)
