"""Setup of a worker process: the agent's class, settings and environment, as bytes."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

import cloudpickle
import numpy as np

from velocirl.engine.environment import Environment
from velocirl.program.seeding import Seeds, spread_seed
from velocirl.tabular.agent import TabularAgent
from velocirl.tabular.runtimes.process_memory import Region
from velocirl.training.settings.config import as_plain
from velocirl.training.source import Source
from velocirl.vector.host.copies import Source as Makers
from velocirl.vector.host.interface import find_source
from velocirl.vector.host.worker_handle import pickle_source, pickled_by_value


class Setup(NamedTuple):
    """Initial state of a worker."""

    algorithm: type[TabularAgent]
    environment: bytes  # (EnvSpec | Environment, {}), pickled
    config: dict[str, Any]
    seeds: Seeds
    copies: range  # this worker's environments, numbered among all
    core: int | None  # the core to pin to
    tally: Region  # reported by this worker,
    episodes: Region
    counters: Region
    work: Region  # shared by all workers: the rounds to take


@dataclass(frozen=True)
class Recipe:
    """Setup that the workers of an agent have in common."""

    algorithm: type[TabularAgent]
    environment: bytes
    config: dict[str, Any]
    source: Source
    seed: int

    @classmethod
    def of(cls, agent: TabularAgent, copies: int) -> Recipe:
        """Build the recipe of an agent whose workers have `copies` environments each."""
        source = agent.source
        # In its process, a worker is serial. The shared table has the initial values already: a worker fills none.
        own = {"runtime": "serial", "workers": None, "pin": False, "num_envs": copies, "initial_value": 0.0}
        native = source.native
        specification = None if native is not None else _sendable(source)
        environment = pickle_source(specification, {}) if specification is not None else pickle_native(native)
        return cls(type(agent), environment, {**as_plain(agent.config), **own}, source, agent.seed)

    def setup(self, copies: range, core: int | None, start: int, regions: tuple[Region, ...]) -> bytes:
        """Return the setup of one worker as bytes; `start` counts how often workers were started."""
        seed = self.seed if start == 0 else int(np.random.SeedSequence([self.seed, start]).generate_state(1)[0])
        config = {**self.config, "params": self.source.params_of(copies)}
        with pickled_by_value(self.algorithm):
            return cloudpickle.dumps(
                Setup(self.algorithm, self.environment, config, spread_seed(seed), copies, core, *regions)
            )


def _sendable(source: Source) -> Makers:
    if not source.makers or source.ready is not None:
        raise ValueError(f'{source.id} is made already, and steps as its maker chose: use runtime="serial"')
    return find_source(source.makers)


def pickle_native(environment: Environment | None) -> bytes:
    """Pickle a compiled environment, wherever its functions were defined."""
    functions = [] if environment is None else environment.functions.values()
    with ExitStack() as stack:
        for function in {function.__module__: function for function in functions}.values():
            stack.enter_context(pickled_by_value(function))
        return cloudpickle.dumps((environment, {}))
