"""Updates of whole batches: a batch is drawn from a ring and goes through the program; on a GPU, recorded as graphs."""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import Any

import numpy as np

from velocirl.backends.batch.networks import BatchNetworks
from velocirl.backends.batch.ring import BatchRing
from velocirl.backends.batch.update import BatchProgram, Rows
from velocirl.engine import random
from velocirl.engine.compiler.columns import Indexed
from velocirl.program.clock import GOOD, RUN_STEP
from velocirl.program.pace import Pace
from velocirl.program.reducing import Share
from velocirl.program.task import Task


class BatchUpdates:
    """Draws batches from a ring and learns from them; who fills the ring is not known here."""

    def __init__(self, task: Task, device: Any, networks: BatchNetworks, ring: BatchRing, share: Share) -> None:
        """`share` are the rows of a batch that this process draws, of all that train together."""
        config, (first, stop) = task.config, share
        self.task, self.device, self.networks, self.ring = task, device, networks, ring
        batch = stop - first
        self.streams = device.put(random.streams(task.seeds.learner + 1, batch, first))
        parts = gcd(config.gradient_accumulation, batch)  # all of which are equally large
        whole = config.effective_batch_size
        self.program = BatchProgram(task.program, networks, self._rows(), batch, parts=parts, batch=whole)
        self.done = 0  # updates of the run
        self._graphs: dict[frozenset[str], Callable[[], None]] = {}  # of each kind of update

    def begin(self, pace: Pace, step: int) -> None:
        """Begin an iteration, at `step` of the run."""
        counts = np.zeros(GOOD, np.int64)  # how long there was no overflow counts on
        counts[RUN_STEP] = step
        self.device.write(self.networks.clock.counts.reshape(-1)[:GOOD], counts)
        self.networks.set_rates(pace.learning_rate, pace.max_grad_norm, pace.max_grad_value)
        self.ring.begin(pace)
        self.program.begin()
        self.networks.begin()

    def run(self, count: int, step: int) -> None:  # noqa: ARG002 - the device counts steps
        """Run `count` updates."""
        for _ in range(count):
            self.done += 1
            due = self.task.program.due(self.task.config, self.done)
            graph = self._graphs.get(due)
            if graph is None:
                self.update(due)
            else:
                graph()

    def end(self) -> None:
        """End an iteration; the device has counted its updates."""

    def update(self, due: frozenset[str]) -> None:
        """Run one update with the stages of these periods."""
        self.ring.draw()
        self.program.run(due)
        self.ring.revise()

    def try_each(self) -> None:
        """Run one update of each kind, so that they can be recorded."""
        for kind in self.task.program.kinds_of_updates():
            self.update(kind)

    def capture(self) -> None:
        """Record updates of each kind as graphs."""
        for kind in self.task.program.kinds_of_updates():
            self._graphs[kind] = self.device.capture(lambda kind=kind: self.update(kind))

    def count(self, seconds: float) -> None:
        """Parts of updates are not timed here."""

    def fold(self) -> None:
        """The phases are up to date."""

    def state(self) -> dict[str, Any]:
        """Return the random streams, and the number of updates."""
        own = {"learner.rng": self.device.fetch(self.streams), "learner.updates": np.array([self.done])}
        return {**own, **self.ring.stream_state()}

    def load_state(self, state: Any) -> None:
        """Continue from what `state` gave."""
        if state["learner.rng"].shape == self.streams.shape:  # else it comes from another device
            self.device.store(self.streams, state["learner.rng"])
        self.ring.load_streams(state)
        self.done = int(state["learner.updates"][0])

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
        return Rows(drawn.rows, fields, {**widths, "observation": inputs, "next_observation": inputs}, self.streams)
