"""Rollout collectors: the environments, the acting network and the recorded rollout.

Subclasses define how a step of all environments runs: compiled for CPU threads, or launched over whole batches.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.records import narrow, side_by_side
from velocirl.collect.rollout_records import RolloutRecords
from velocirl.collect.sources import make_source
from velocirl.engine import random
from velocirl.program.rows.commands import command_for
from velocirl.program.rows.experience import Experience
from velocirl.program.rows.functions import Acting, Recording
from velocirl.program.rows.recording import Cuts, Rollout, Sight
from velocirl.program.seeding import Seeds
from velocirl.program.task import Task


class RolloutCollector:
    """Collector of rollouts with a network, which it may share with the learner.

    Environments are a fleet on the network's device, or Gymnasium environments on the host. With several agents, the
    environments of each agent are contiguous. Normalizers do not change during a rollout.
    """

    least_cuts = 0  # truncations reserved per environment, if episodes are never truncated
    collected: Any = None  # rollouts of collector processes
    counters: Any = ()  # time counters of the parts by worker, where measured

    def __init__(self, task: Task, device: Any, network: Any, seeds: Sequence[Seeds]) -> None:
        config, part, inputs = task.config, task.part, task.encoding.inputs
        self.task, self.device, self.network, self.horizon = task, device, network, config.horizon
        self.source = source = make_source(task, device, seeds)
        self.in_kernels, self.on_host = source.in_kernels, source.on_host
        self.envs, self.fleet, self.host = source.envs, source.fleet, source.host
        here = self.here = device.on_host() if self.on_host else device  # device of the environments
        self.agents, copies = len(seeds), len(seeds) * part.copies
        most = self._most_cuts()
        places = copies * most
        self.recorded = RolloutRecords(task, here, len(seeds), network.state_size, places)
        self.centre, self.inverse_scale = here.zeros(inputs), here.zeros(inputs)
        self.rng = here.put(np.concatenate([random.streams(one.policy, part.copies, part.first) for one in seeds]))
        self.memory, self.discounted = here.zeros(copies, network.state_size), here.zeros(copies)
        # If only actual truncations are evaluated, their frames are converted to network inputs at that time.
        self.values_all = len(seeds) > 1 or (self.in_kernels and here.captures)
        self.cuts = Cuts(
            count=here.zeros(copies, dtype=np.int32),
            time=here.zeros(copies, most, dtype=np.int32),
            inputs=here.zeros(places if task.frames is None or self.values_all else 0, inputs),
            mask=here.zeros(places, task.head.options if task.head.masked else 1, dtype=np.int8),
            state=here.zeros(places, network.state_size),
        )
        self._bind(source.experience)

    @abstractmethod
    def _bind(self, experience: Experience) -> None:
        """Bind the operations of a rollout."""

    @abstractmethod
    def _run(self) -> None:
        """Run the operations of a rollout."""

    def collect(self) -> None:
        """Collect one rollout of all environments."""
        self.source.begin()  # on the thread that steps them
        self._run()

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the environments' state, the policy's streams, discounted returns and recurrent state."""
        fetch = self.here.fetch
        own = {"policy.rng": fetch(self.rng), "policy.discounted": fetch(self.discounted)}
        if self.network.state_size:
            own["policy.state"] = fetch(self.memory)
        return {**own, **self.source.state()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a saved state; environments that Python steps begin new episodes."""
        here = self.here
        here.synchronise()
        here.store(self.rng, state["policy.rng"])
        self.source.load_state(state)
        if not self.in_kernels:
            here.fill(self.discounted, 0.0)
            here.fill(self.memory, 0.0)
            return
        here.store(self.discounted, state["policy.discounted"])
        if self.network.state_size:
            here.store(self.memory, state["policy.state"])

    def acting(self, experience: Experience, inputs: Any, outputs: Any) -> Acting:
        """Return the arguments for acting with these input and output rows of the network."""
        here, (_, table) = self.here, command_for(self.task.source.action_space)
        clock, settings = here.zeros(1, dtype=np.int64), here.shown(self.task.settings)
        return Acting(inputs, outputs, outputs, experience.mask, self.rng, settings, clock, here.put(table))

    def recording(self, experience: Experience) -> Recording:
        """Return the arguments for recording a rollout."""
        task, here, recorded = self.task, self.here, self.recorded
        records, film = recorded.records, recorded.film
        sight = Sight(
            experience.observation, experience.final, experience.final_mask, here.put(task.encoding.table),
            self.centre, self.inverse_scale,
        )  # fmt: skip
        rollout = Rollout(
            rows=narrow(records),
            observations=records["observation"] if film is None else film.frames,
            values=side_by_side(records, task.values),
            finals=side_by_side(records, [f"final_{name}" for name in task.values]),
            gamma=here.shown(task.settings["gamma"]),
            discounted=self.discounted,
            reward_sums=recorded.reward_sums,
            observation_sums=recorded.observation_sums,
            state=self.memory,
        )
        return Recording(sight, rollout, self.cuts, recorded.log, recorded.reported)

    def _most_cuts(self) -> int:
        """Return how often an environment's episodes may be truncated in a rollout."""
        native = self.task.source.native
        if native is None:
            return self.horizon
        return self.least_cuts if native.max_steps is None else -(-self.horizon // native.max_steps)
