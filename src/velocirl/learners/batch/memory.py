"""Learning in whole batches from the records of a memory: a batch is drawn and goes through the program."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from math import gcd
from typing import Any

import numpy as np

from velocirl.engine import random
from velocirl.engine.compiler.columns import Indexed
from velocirl.learners.batch.learner import BatchLearner
from velocirl.learners.batch.networks import GOOD, LEARNING_RATE, RUN_STEP
from velocirl.learners.batch.program import BatchProgram, Rows
from velocirl.learners.batch.ring import BatchRing
from velocirl.learners.pace import Pace
from velocirl.learners.reducing import Share
from velocirl.learners.sharing import Sharing
from velocirl.learners.task import Task


class BatchMemory(BatchLearner):
    """Networks that learn from what is drawn from a ring; who fills that is not said here."""

    def __init__(self, task: Task, device: Any) -> None:
        config = task.config
        super().__init__(task, device, agents=1, scaling=config.precision == "fp16")
        whole, self.sharing = config.effective_batch_size, self._make_sharing()
        first, stop = share = self.sharing.streams[task.reducer.rank]
        batch = stop - first
        self.ring = self._make_ring(share)
        self._streams = device.put(random.streams(task.seeds.learner + 1, batch, first))
        parts = gcd(config.gradient_accumulation, batch)  # all of which are equally large
        self.program = BatchProgram(task.program, self.networks, self._rows(), batch, parts=parts, batch=whole)
        self._updates: dict[frozenset[str], Callable[[], None]] = {}  # as graphs, where the device has those

    @abstractmethod
    def _make_sharing(self) -> Sharing:
        """Who has what where several processes train: each draws its share of a batch."""

    def _make_ring(self, share: Share) -> BatchRing:
        return BatchRing(self.device, self.task, self.clock, share)

    def _rows(self) -> Rows:
        """The rows of a batch, and where networks find what they read."""
        ring, drawn = self.ring, self.ring.drawn
        names = [name for name in drawn.rows.dtype.names or () if drawn.rows.dtype[name].base == np.float32]
        fields: dict[str, Any] = {}
        for name in names:
            array = drawn.rows[name]
            fields[name] = array if len(array.shape) > 1 else array[:, None]
        if ring.frames is not None:
            fields["observation"], fields["next_observation"] = ring.frames.now, ring.frames.after
        else:
            fields["observation"] = Indexed(ring.rows["observation"], drawn.places)
            fields["next_observation"] = Indexed(ring.rows["next_observation"], drawn.lasts)
        inputs = self.task.encoding.inputs
        widths = {name: array.shape[-1] for name, array in fields.items() if name in names}
        return Rows(drawn.rows, fields, {**widths, "observation": inputs, "next_observation": inputs}, self._streams)

    def _begin(self, pace: Pace, step: int) -> None:
        """At the beginning of an iteration."""
        counts = np.zeros(GOOD, np.int64)  # how long there was no overflow counts on
        counts[RUN_STEP] = step
        self.device.write(self.clock.counts.reshape(-1)[:GOOD], counts)
        self.device.fill(self.clock.numbers[:, LEARNING_RATE], pace.learning_rate)
        self.ring.begin(pace)
        self.program.begin()
        self.networks.begin()

    def _learn(self, updates: int) -> None:
        """So many updates."""
        for _ in range(updates):
            self.done += 1
            due = self.task.program.due(self.task.config, self.done)
            captured = self._updates.get(due)
            if captured is None:
                self._update(due)
            else:
                captured()

    def _update(self, due: frozenset[str]) -> None:
        self.ring.draw()
        self.program.run(due)
        self.ring.revise()

    def _capture_updates(self) -> None:
        """Let updates of each kind be graphs from now on."""
        for kind in self.task.program.kinds_of_updates():
            self._updates[kind] = self.device.capture(lambda kind=kind: self._update(kind))

    def learnt_state(self) -> dict[str, Any]:
        """The networks, optimisers and random streams of updates."""
        own = {"learner.rng": self.device.fetch(self._streams), "learner.updates": np.array([self.done])}
        return {**own, **self.loss_scale(), **self.networks.state()}

    def load_learnt(self, state: Any) -> None:
        """Go on from what `learnt_state` gave."""
        self.networks.load_state(state)
        if state["learner.rng"].shape == self._streams.shape:  # else it comes from another device
            self.device.store(self._streams, state["learner.rng"])
        self.load_loss_scale(state)
        self.done = int(state["learner.updates"][0])
