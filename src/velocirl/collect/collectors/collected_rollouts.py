"""Rollouts from collectors for on-policy learners: one of each, or of any that has one if they run free."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.collect.collectors.board import Orders
from velocirl.collect.collectors.collection import Collection
from velocirl.collect.collectors.columns import Columns, column_type
from velocirl.collect.collectors.content import seeing, to_bytes
from velocirl.collect.collectors.patience import wait_for
from velocirl.collect.collectors.ring import GIVEN, LEAST_SLOTS, Ring, Shape
from velocirl.collect.rollout_records import RolloutRecords
from velocirl.engine.compiler.clock import now
from velocirl.engine.compiler.counters import TIMED, WHOLE, allocate
from velocirl.program.counting.phases import ENVIRONMENT, ROUND
from velocirl.program.pace import PACE
from velocirl.program.task import Task

AHEAD = 1  # rollouts by which several collectors are ahead of the learner, by default
ENDLESS = 2**62  # rounds: paced collectors wait for weights instead


class CollectedRollouts(Collection):
    """Collectors of rollouts, which are received into `columns`.

    A free-running collector's ring holds at most one waiting rollout, so that no rollout learned from is old.
    """

    def __init__(
        self, task: Task, columns: Columns, content: Callable[[], NDArray[np.uint8]], updates: Callable[[], int]
    ) -> None:
        """Set up rings for whole rollouts; `updates` returns the number of updates so far."""
        config, state_size = task.config, columns.start_state.shape[1]
        copies, paced = config.num_envs // config.collectors, config.collect_mode == "paced"
        ahead = config.collect_ahead if config.collect_ahead is not None else AHEAD * (config.collectors > 1)
        slots = LEAST_SLOTS + (ahead if paced else 0)
        shape = Shape(column_type(task, state_size), copies, slots, 1 + state_size, 0, steps=config.horizon)
        super().__init__(task, shape, ahead, content)
        self._columns, self._count_updates = columns, updates
        self._orders: Orders | None = None
        self._allowed = 0  # rounds that paced collectors may take so far
        self._turn = 0  # the free-running collector checked first

    def collect(self) -> None:
        """Publish the current weights, and receive rollouts of all environments."""
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
        """Pause collectors until the next iteration, paced ones once they are as far ahead as allowed."""
        if self._orders is not None and not self._resting:
            stop = self._allowed if self.paced else self._orders.first
            self.board.orders.write(self._orders._replace(stop=stop))
            self._resting = True

    def gauges(self) -> dict[str, float]:
        """Return the metrics of `Collection.gauges`; the policy lag counts the last iteration's updates."""
        self._updates = self._count_updates()
        return super().gauges()

    def settle(self) -> None:
        """Wait until paced collectors are as far ahead as allowed."""
        if self.paced and self._crew is not None and not self._crew.closed:
            wait_for(lambda: all(ring.counts[GIVEN] >= self._allowed for ring in self.rings), self._watch_paced)

    def _give_orders(self) -> None:
        """Record the newest weights as those after all received rollouts, and allow one more rollout."""
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
        """Wait for a rollout and return its ring: this one, or any of free-running collectors."""
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
        """Watch collectors while waiting; one that has not delivered all allowed rounds is busy."""
        self._watch(lambda number: int(self.rings[number].counts[GIVEN]) < self._allowed)


class ProcessCollector:
    """Rollout collector backed by collector processes; its rollouts are on the host."""

    in_kernels, on_host = False, True
    envs = fleet = None  # they are in the collector processes

    def __init__(self, task: Task, device: Any, network: Any, updates: Callable[[], int]) -> None:
        here, inputs = device.on_host(), task.encoding.inputs
        self.network, self.counters = network, allocate(1)
        self.recorded = RolloutRecords(task, here, 1, network.state_size)
        self.centre, self.inverse_scale = here.zeros(inputs), here.zeros(inputs)
        self.collected = CollectedRollouts(task, self.recorded.columns(), self._weights, updates)
        self.collected.start()

    def collect(self) -> None:
        """Receive rollouts of all environments; the time counted is the wait for them."""
        begun = now()
        self.collected.collect()
        self.counters[0, [ENVIRONMENT, WHOLE]] += now() - begun
        self.counters[0, [ROUND, ROUND + TIMED]] = 1

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the policy's random streams, the discounted returns and the recurrent state.

        Rollouts that wait in rings are not saved.
        """
        self.collected.settle()
        rng, kept = self.collected.streams
        memory = {"policy.state": kept[:, 1:]} if self.network.state_size else {}
        return {"policy.rng": rng, "policy.discounted": kept[:, 0], **memory}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue with new episodes, whose seeds come from the policy's streams."""
        self.collected.begin_anew(state["policy.rng"])

    def _weights(self) -> NDArray[np.uint8]:
        network = self.network
        buffers = network.buffers() if network.takes_statistics else {}
        return to_bytes(network.to_host(), {**buffers, **seeing(self)})
