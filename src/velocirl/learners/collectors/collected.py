"""Experience that collectors bring, as a learner takes it: round by round, at the pace that its settings say."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.engine import random
from velocirl.learners.collectors.board import Board, Orders, Plan
from velocirl.learners.collectors.consolidating import Batch, Consolidator
from velocirl.learners.collectors.crew import Crew
from velocirl.learners.collectors.patience import wait_for
from velocirl.learners.collectors.ring import ACTED, DROPPED, GIVEN, LEAST_SLOTS, WAITED, Ring, Shape
from velocirl.learners.collectors.setup import environment_bytes, setup_bytes
from velocirl.learners.faults import fault_of_rollout
from velocirl.learners.pace import Pace
from velocirl.learners.recording import FAULT_KINDS, Log
from velocirl.learners.task import Task
from velocirl.vector.host.workers import open_memory

PUBLISH_EVERY = {"paced": 1, "free": 32}  # updates, where nobody says otherwise
AHEAD = 2  # rounds by which several collectors are ahead of the learner, where nobody says otherwise


class Collected:
    """Collectors and what they bring, for a learner whose weights `content` gives as bytes."""

    def __init__(self, task: Task, kind: np.dtype[Any], content: Callable[[], NDArray[np.uint8]]) -> None:
        config = task.config
        self.paced, self._config, self._content = config.collect_mode == "paced", config, content
        copies = config.num_envs // config.collectors
        ahead = config.collect_ahead if config.collect_ahead is not None else AHEAD * (config.collectors > 1)
        # Paced collectors never have more to give than they are ahead, and the round that is being learnt from.
        slots = ahead + LEAST_SLOTS + 1 if self.paced else config.ring_size // copies
        frames = task.frames
        picture = 0 if frames is None else frames.stack * frames.size
        shape = Shape(kind, copies, slots, task.head.action_size, task.report_rows, picture)
        self.plan = Plan(config.collectors, shape, len(content()), ahead, self.paced)
        self._descriptor = open_memory()
        weakref.finalize(self, os.close, self._descriptor)
        self.board = Board(self.plan, self._descriptor)
        self.rings = self.board.rings
        streams = random.streams(task.seeds.policy, config.num_envs)
        for own, ring in self._shares():
            ring.rng[:] = streams[own]
        environment = environment_bytes(task.source)
        self._crew: Crew | None = None
        self._consolidator: Consolidator | None = None

        def start() -> Crew:
            return Crew(
                task.source.id, self.rings, self.board.stopped, self._descriptor,
                lambda number, start: setup_bytes(task, self.plan, number, environment, start),
                config.collector_timeout, config.collector_restarts,
            )  # fmt: skip

        self._start_crew = start
        self._rounds = 0  # that were taken, of each collector
        self._stop = 0
        self._orders: Orders | None = None
        every = config.publish_every
        self._publish_every = every if every is not None else PUBLISH_EVERY[config.collect_mode]
        self._updates = self._unpublished = 0
        self._episodes = self._seed = 0
        self._waited = self._processed = self._batches = self._left_out = 0
        self._rate, self._since, self._before = 0.0, 0.0, 0
        self._stale = True  # whether the weights are others than those that were published last

    def start(self) -> None:
        """Start the processes, and wait until all of them are ready."""
        if self._crew is None:
            self._crew = self._start_crew()

    def begin(self, pace: Pace, step: int) -> None:
        """Let collectors take the rounds of an iteration, at whose beginning the run has taken `step` steps.

        Those that run free go on behind it.
        """
        self.start()
        assert self._crew is not None  # noqa: S101 - started
        self._crew.resume()
        self._count_rate()
        if self._stale:
            self.publish()
        self._stop = self._rounds + pace.rounds
        self.board.steps[0] = step
        if not self.paced and self._consolidator is None:
            self._consolidator = Consolidator(self.rings)
            weakref.finalize(self, self._consolidator.close)
        publication = self.board.weights.newest
        self._orders = Orders(tuple(pace), step, self._rounds, self._stop, publication, self._episodes, self._seed)
        self.board.orders.write(self._orders)

    def pause(self) -> None:
        """Let collectors that run free rest until the next iteration; paced ones do anyway."""
        if not self.paced and self._orders is not None:
            self.board.orders.write(self._orders._replace(stop=self._orders.first))

    def take(self, t: int, step: int, rows: NDArray[Any], log: Log, reported: NDArray[Any]) -> list[slice]:
        """Take the next round, which is the t-th of its iteration: into records (copies,) and into the log.

        Gives the copies whose episodes were broken off before it, because their collector was replaced.
        """
        broken = []
        for own, ring in self._shares():
            self._waited += wait_for(lambda ring=ring: len(ring) > 0, self._watch)
            slot = ring.taken % ring.slots
            self._check(ring.faults[slot], own.start, t, step)
            if ring.breaks[slot]:
                broken.append(own)
            rows[own] = ring.rows[ring.round(slot)]
            ended = ring.log.ends[0, slot] >= 0
            log.ends[0, t, own] = np.where(ended, t * self.plan.copies + np.arange(own.start, own.stop), -1)
            log.returns[0, t, own], log.lengths[0, t, own] = ring.log.returns[0, slot], ring.log.lengths[0, slot]
            reported[:, 0, t, own] = ring.reported[:, 0, slot]
            ring.take(1)
        self._processed += self.plan.copies
        self._batches += 1
        return broken

    def show(self, seen: NDArray[np.uint8], final: NDArray[np.uint8]) -> None:
        """The pictures (copies, bytes) of the round that was taken last: after it, and where episodes ended."""
        for own, ring in self._shares():
            slot = ring.round((ring.taken - 1) % ring.slots)
            seen[own], final[own] = ring.seen[slot], ring.finals[slot]

    def show_first(self, which: list[slice], seen: NDArray[np.uint8]) -> None:
        """The pictures before that round, of copies that began anew with it."""
        for own, ring in self._shares():
            if own in which:
                seen[own] = ring.firsts

    def next_batch(self, *, wait: bool) -> Batch | None:
        """The next batch of what free collectors brought; None where there is none yet and nobody waits for it."""
        assert self._consolidator is not None and self._crew is not None  # noqa: S101, PT018 - begun
        consolidator, watch = self._consolidator, self._crew.watch
        watch(lambda _: True)
        if wait:
            self._waited += wait_for(lambda: len(consolidator) > 0, lambda: watch(lambda _: True))
        batch = consolidator.next()
        if batch is not None:
            self._processed += len(batch.rows)
            self._batches += 1
        return batch

    def check(self, batch: Batch, taken: int, first: int) -> None:
        """Refuse numbers that are none, in a batch after so many transitions of an iteration."""
        self._check(batch.faults, batch.first, taken // self.plan.copies, first)

    def progress(self, step: int) -> None:
        """Let collectors that run free know how far the run is, which decides how much they explore."""
        self.board.steps[0] = step

    def leave_out(self, updates: int) -> None:
        """So many updates were due and are not done, because the learner of free collectors is late."""
        self._left_out += updates

    def improved(self, updates: int) -> None:
        """So many updates were done; now and then, collectors are given what came of them."""
        self._updates += updates
        self._unpublished += updates
        if self._unpublished >= self._publish_every:
            self.publish()

    def learnt(self, updates: int) -> None:
        """All that is due after a round was learnt, in so many updates: paced collectors go on."""
        board = self.board
        self.improved(updates)
        board.after[self._rounds % len(board.after)] = board.weights.newest
        self._rounds += 1
        board.learnt[0] = self._rounds

    def publish(self) -> None:
        """Let collectors act by the weights of now."""
        self.board.weights.publish(self._content(), self._updates)
        self._unpublished, self._stale = 0, False

    def change(self) -> None:
        """Something else than an update changed the weights."""
        self._stale = True

    @property
    def streams(self) -> tuple[NDArray[np.uint64], NDArray[np.float32]]:
        """The random streams of actions and what exploration keeps, of all copies; while nothing is collected."""
        return np.concatenate([ring.rng for ring in self.rings]), np.concatenate([ring.noise for ring in self.rings])

    def begin_anew(self, streams: NDArray[np.uint64]) -> None:
        """Go on with new episodes and these streams, of which their seed comes."""
        for own, ring in self._shares():
            ring.rng[:], ring.noise[:] = streams[own], 0.0
        self._episodes, self._seed = self._episodes + 1, int(streams[0, 0] >> np.uint64(33))

    @property
    def processes(self) -> list[int]:
        """The numbers of the collectors' processes, as the system counts."""
        return [] if self._crew is None else self._crew.processes

    @property
    def processed(self) -> int:
        """Transitions that the learner has taken in."""
        return self._processed

    def gauges(self) -> dict[str, float]:
        """What a monitor shows of collectors: counts are since they were started, seconds those of a collector.

        Counts are of transitions, but for batches. The rate is that of the iteration before, in transitions a second;
        the age of weights is that of the oldest that act, in updates.
        """
        counts = np.sum([ring.counts for ring in self.rings], axis=0)
        age = self._updates - min(int(ring.counts[ACTED]) for ring in self.rings)
        copies, crew = self.plan.shape.copies, self._crew
        return {
            "collectors": len(self.rings),
            "collector/given": float(counts[GIVEN]) * copies,
            "collector/dropped": float(counts[DROPPED]) * copies,
            "collector/ring_fill": max(len(ring) / (ring.slots - 1) for ring in self.rings),
            "collector/waiting_seconds": float(counts[WAITED]) * 1e-9 / len(self.rings),
            "collector/age_of_weights": float(age),
            "learner/processed": float(self._processed),
            "learner/batches": float(self._batches),
            "learner/updates_left_out": float(self._left_out),
            "learner/waiting_seconds": self._waited * 1e-9,
            "learner/rate": self._rate,
            "restarts": 0.0 if crew is None else float(crew.restarts),
        }

    def close(self) -> None:
        """End all collectors."""
        if self._crew is not None:
            self._crew.close()

    def _count_rate(self) -> None:
        """How many transitions a second were processed since the last iteration began."""
        now = time.monotonic()
        if self._since:
            self._rate = (self._processed - self._before) / max(now - self._since, 1e-9)
        self._since, self._before = now, self._processed

    def _shares(self) -> Iterator[tuple[slice, Ring]]:
        """The rings, and whose copies each has."""
        copies = self.plan.shape.copies
        return ((slice(n * copies, (n + 1) * copies), ring) for n, ring in enumerate(self.rings))

    def _watch(self) -> None:
        """While a round is waited for: those are busy who have not given theirs."""
        assert self._crew is not None  # noqa: S101 - started
        self._crew.watch(lambda number: self.rings[number].counts[GIVEN] < self._stop and not len(self.rings[number]))

    def _check(self, faults: NDArray[np.int32], first: int, t: int, step: int) -> None:
        """Refuse numbers that are none, which copies from the first on met in a round."""
        if faults.any():
            copy = int(np.flatnonzero(faults)[0])
            raise fault_of_rollout((int(faults[copy]) - 1) % FAULT_KINDS, first + copy, t, step, self.plan.copies)
