"""Updates over whole batches: sample from a ring and run the program; on a GPU, as CUDA graphs."""

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
    """Updates from sampled batches of a ring; independent of who fills the ring."""

    def __init__(self, task: Task, device: Any, networks: BatchNetworks, ring: BatchRing, share: Share) -> None:
        """`share` is the range of a batch's rows that this process samples."""
        config, (first, stop) = task.config, share
        self.task, self.device, self.networks, self.ring = task, device, networks, ring
        batch = stop - first
        self.streams = device.put(random.streams(task.seeds.learner + 1, batch, first))
        parts = gcd(config.gradient_accumulation, batch)  # of equal size
        whole = config.effective_batch_size
        self.program = BatchProgram(task.program, networks, self._rows(), batch, parts=parts, batch=whole)
        self.done = 0  # updates of the run
        self._graphs: dict[frozenset[str], Callable[[], None]] = {}  # one per kind of update

    def begin(self, pace: Pace, step: int) -> None:
        """Begin an iteration, at `step` of the run."""
        counts = np.zeros(GOOD, np.int64)  # the later counts, of steps without overflow, are kept
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
        """No-op: the device has counted the updates."""

    def update(self, due: frozenset[str]) -> None:
        """Run one update with the stages due in these periods."""
        self.ring.draw()
        self.program.run(due)
        self.ring.revise()

    def try_each(self) -> None:
        """Run one update of each kind, so that they can be captured."""
        for kind in self.task.program.kinds_of_updates():
            self.update(kind)

    def capture(self) -> None:
        """Capture updates of each kind as CUDA graphs."""
        for kind in self.task.program.kinds_of_updates():
            self._graphs[kind] = self.device.capture(lambda kind=kind: self.update(kind))

    def count(self, seconds: float) -> None:
        """No-op: parts of updates are not timed."""

    def fold(self) -> None:
        """No-op: the phases are up to date."""

    def state(self) -> dict[str, Any]:
        """Return the random streams, and the number of updates."""
        own = {"learner.rng": self.device.fetch(self.streams), "learner.updates": np.array([self.done])}
        return {**own, **self.ring.stream_state()}

    def load_state(self, state: Any) -> None:
        """Continue from a saved `state`."""
        if state["learner.rng"].shape == self.streams.shape:  # else saved on another device
            self.device.store(self.streams, state["learner.rng"])
        self.ring.load_streams(state)
        self.done = int(state["learner.updates"][0])

    def _rows(self) -> Rows:
        """Return the rows of a batch, with the columns that networks read."""
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
