"""Sources of steps: a compiled fleet on the learner's device, or environments that Python steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.engine import random
from velocirl.engine.disk.saved import named, within
from velocirl.program.rows.experience import Experience
from velocirl.program.rows.host import HostExperience
from velocirl.program.seeding import Seeds
from velocirl.program.task import Task


class FleetSource:
    """Compiled fleet on the device of the networks."""

    in_kernels = True  # whether steps are compiled, so that episodes are saved and restored
    on_host = False  # whether observations come from the host, while networks may be elsewhere
    envs: Any = None
    host: Any = None

    def __init__(self, task: Task, device: Any, seeds: Sequence[Seeds]) -> None:
        """Create the environments of all agents, contiguous by agent and seeded by each agent's `seeds`."""
        source, part, self._device = task.source, task.part, device
        count = len(seeds) * part.copies
        params = source.params_of(part.first + np.arange(count) % part.copies)
        self.fleet = device.make_fleet(source.native, count, params, check=source.check)
        starts = np.concatenate([random.streams(one.environment, part.copies, part.first) for one in seeds])
        device.store(self.fleet.copies.rng, starts)
        self.fleet.target.begin(np.ones(count, np.bool_))
        self.experience: Experience = device.experience(self.fleet)

    def begin(self) -> None:
        """Do nothing: the first episodes have begun already."""

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the state of all environments."""
        return named("fleet", self.fleet.get_state())

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue the episodes of a saved state."""
        self._device.synchronise()
        self.fleet.set_state(within("fleet", state))


class HostSource:
    """Environments that Python steps: Gymnasium's, or tensor environments on the learner's device."""

    in_kernels = False
    fleet: Any = None

    def __init__(self, task: Task, device: Any, seeds: Sequence[Seeds]) -> None:
        part, config = task.part, task.config
        self.on_host = config.overlap or not device.steps_itself(task.source)
        self.envs = task.source.make_copies(
            part.copies, seed=seeds[0].environment, threads=1, workers=config.workers, first=part.first
        )
        make = HostExperience if self.on_host else device.experience_of
        self.host: Any = make(self.envs, task.head, costs=task.reads_costs)
        self.experience: Experience = self.host.arrays

    def begin(self) -> None:
        """Begin the first episodes, unless they have begun."""
        self.host.begin()

    def state(self) -> dict[str, NDArray[Any]]:
        """Return an empty dict: the state of such environments cannot be saved."""
        return {}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Begin new episodes. Their seeds come from the policy's streams, so that no episode is repeated."""
        self.host.begin_anew(int(state["policy.rng"][0, 0] >> np.uint64(33)))


Source = FleetSource | HostSource


def make_source(task: Task, device: Any, seeds: Sequence[Seeds] = ()) -> Source:
    """Make the environments of a task, for one agent or for several."""
    return (FleetSource if task.source.native is not None else HostSource)(task, device, seeds or [task.seeds])
