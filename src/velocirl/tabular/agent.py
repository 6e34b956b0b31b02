"""Base class of tabular agents: acting, saving, and the learner that trains them."""

from __future__ import annotations

import dataclasses
import importlib
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from velocirl.engine import random
from velocirl.engine.disk.allowance import is_loading
from velocirl.engine.disk.saved import Specs, named, streams, within
from velocirl.monitor.words import plural
from velocirl.program.seeding import seed_or_drawn, spread_seed
from velocirl.tabular.acting import Actor
from velocirl.tabular.config import TableConfig, chosen_runtime
from velocirl.tabular.estimates import TableEstimates
from velocirl.tabular.learner import Outcome, TableLearner, TabularTask
from velocirl.tabular.loop import Pace
from velocirl.tabular.memory import Memory, memory_of
from velocirl.tabular.saved import TRAINED, table_specs, training_specs
from velocirl.tabular.tables.exploring import exploring
from velocirl.tabular.tables.rules import Rule, counted
from velocirl.tabular.tables.states import states_of
from velocirl.tabular.tables.table import row_type
from velocirl.tabular.tables.value_table import ValueTable, choose_storage
from velocirl.training.actors.batching import batched
from velocirl.training.agent import Agent, Row
from velocirl.training.estimates import Estimates
from velocirl.training.settings.device_choice import no_kernels
from velocirl.training.settings.params import check_copies
from velocirl.training.settings.scheduled import scheduled_value
from velocirl.training.source import Given

# Environments of a compiled fleet: enough to keep a core or a GPU busy, few enough to learn from early on.
COPIES = {"cpu": 64, "threads": 128, "cuda": 65_536}  # "threads": for each thread
# An iteration is a fraction of the training, so that schedules and callbacks have steps. It is long enough to hide
# Python's overhead and short enough for live progress. Limits: compiled ("cpu"), in Python ("host"), on a GPU.
ITERATIONS, FEWEST_ITERATIONS = 100, 20
LEAST_STEPS, MOST_STEPS = {"cpu": 16_384, "host": 256, "cuda": 2**23}, {"cpu": 2**20, "host": 4096, "cuda": 2**26}
# Modules of the runtimes. Each has a function `make_learner(agent) -> TableLearner` and may have a context manager
# `conduct(agent, total_steps)` around the training. It yields whether this process leads the others.
RUNTIMES = {
    "serial": "velocirl.tabular.runtimes.serial",
    "threads": "velocirl.tabular.runtimes.threads",
    "processes": "velocirl.tabular.runtimes.processes",
    "mpi": "velocirl.tabular.runtimes.mpi",
    "mpi-async": "velocirl.tabular.runtimes.mpi_async",
    "cuda": "velocirl.tabular.runtimes.cuda",
}


class TabularAgent(Agent):
    """Agent that acts by a table of action values and updates it step by step."""

    config: TableConfig
    best_is_best = False  # training returns include exploration; a table improves as long as it learns

    def __init__(self, env: Given, **config: Any) -> None:
        super().__init__(env, **config)
        self.config = dataclasses.replace(self.config, runtime=chosen_runtime(self.config.runtime))
        source = self.source
        source.refuse_parts(self.name)
        if not isinstance(source.action_space, Discrete):
            raise ValueError(
                f"{self.name} chooses one of several actions, and those of {source.id} are {source.action_space}:"
                " use PPO, or SAC and TD3 for continuous ones"
            )
        self.actions, self.first_action = int(source.action_space.n), int(source.action_space.start)
        self.states = states_of(source.observation_space, source.id)
        self.rule = self.make_rule()
        if self.counts_visits:
            self.rule = self.rule._replace(learn=counted(self.rule.learn))
        self.exploring = exploring(self.config.exploration, self.actions, source.masked, self.rule.value)
        self.config = self._resolved()
        if self.config.runtime == "cuda" and not is_loading() and (missing := no_kernels()) is not None:
            raise ValueError(f'runtime="cuda" cannot be used: {missing}; give another runtime, such as "threads"')
        self.seeds = spread_seed(self.seed)
        self.table = self.make_table()
        self._acting = random.streams(self.seeds.acting, 1)  # random stream for acting outside of training
        self._actor: Actor | None = None
        check_copies(source.native, source.params, self.num_envs)

    def preset(self) -> Mapping[str, Any]:
        """Return the environment's preset for tabular algorithms, overridden by the preset for this algorithm."""
        return {**(self.source.preset("tabular") or {}), **super().preset()}

    @abstractmethod
    def make_rule(self) -> Rule:
        """Build the learning rule: how the next state is valued and how a value is updated."""

    def parts(self) -> dict[str, str]:
        """Return descriptions of the table and its runtime."""
        workers = f", {plural(self.config.workers, 'worker')}" if self.config.workers else ""
        met = f", {len(self.table):,} met" if self.table.sparse else ""
        table = f"{self.config.storage}, {plural(self.states.count, 'state')} x {plural(self.actions, 'action')}{met}"
        return {"table": table, "runtime": f"{self.config.runtime}{workers}"}

    def make_memory(self) -> Memory:
        """Build the backup that stores steps of an episode until they are learned from."""
        return memory_of(self.rule.learn, getattr(self.config, "n_step", 1))

    @property
    def num_envs(self) -> int:
        """Number of environments that learn in parallel."""
        assert self.config.num_envs is not None  # noqa: S101 - resolved in the constructor
        return self.config.num_envs

    @property
    def device(self) -> str:
        """Device of the environments: "cpu" (compiled), "host" (in Python) or "cuda"."""
        if self.source.native is None:
            return "host"
        return "cuda" if self.config.runtime == "cuda" else "cpu"

    @property
    def counts_visits(self) -> bool:
        """True if the table counts visits of actions: for UCB exploration, or to weigh updates of threads and ranks."""
        return self.config.exploration == "ucb" or self.config.runtime in ("threads", "mpi", "mpi-async")

    @property
    def parameters(self) -> NDArray[Any]:
        """Values of all rows of the table, (rows, sets * actions)."""
        self._settle()
        return self.table.values

    @property
    def learner(self) -> TableLearner:
        """Learner that trains this agent; `prepare` must have been called."""
        assert self._learner is not None  # noqa: S101 - prepared
        return self._learner

    @property
    def task(self) -> TabularTask:
        """Learner input: the algorithm bound to this agent's environment, table and configuration."""
        return TabularTask(
            self.rule,
            self.exploring,
            self.states,
            self.actions,
            self.source.masked,
            self.make_memory(),
            self.table,
            self.phases,
            self.report,
        )

    def make_table(self, **options: Any) -> ValueTable:
        """Create an empty table."""
        config = self.config
        return ValueTable(
            self.states.count,
            self.actions,
            sets=self.rule.sets,
            storage=config.storage,
            visits=self.counts_visits,
            marks=config.runtime == "mpi",
            dtype=config.dtype,
            initial=config.initial_value,
            **options,
        )

    def make_estimates(self) -> Estimates:
        """Return estimates based on the current table."""
        self._settle()
        rate = self.exploration_at(1.0)
        return TableEstimates(self.task, self.config.exploration, rate, self._numbers, self.first_action)

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,  # noqa: ARG002 - as every agent
        deterministic: bool = False,
        action_masks: Any = None,
    ) -> tuple[Any, Any]:
        """Return the action for an observation, or the actions for a batch of observations.

        If `deterministic`, it is the best action (the first of equal ones). Otherwise it is sampled at the final
        exploration rate of training.
        """
        observations, masks, single = batched(self.source, observation, action_masks)
        if self._actor is None:
            self._actor = Actor(self.task, self._acting)
        self._settle()
        rate = None if deterministic else self.exploration_at(1.0)
        actions = self._actor.choose(self._numbers(observations), masks, rate)
        actions = (actions + self.first_action).astype(self.source.action_space.dtype)
        return (actions[0] if single else actions), state

    def conducted(self, total_steps: int | None) -> AbstractContextManager[bool]:
        """Enter the training context; of several ranks, rank 0 has the callbacks, the run and the display."""
        conduct = getattr(self._runtime, "conduct", None)
        return super().conducted(total_steps) if conduct is None else conduct(self, total_steps)

    @property
    def follows(self) -> bool:
        """True if this process is one of several MPI ranks, but not rank 0."""
        if self.config.runtime not in ("mpi", "mpi-async"):
            return False
        from velocirl.scale.mpi import world  # needs mpi4py

        return world().rank > 0

    def prepare(self) -> None:
        """Create the environments and compile everything, once."""
        if self._learner is not None:
            return
        self._learner = self._runtime.make_learner(self)
        if self._waiting is not None:
            self.learner.load_state(self._waiting)
            self._waiting = None

    def pause(self) -> None:
        """Do nothing, as no step is pending between iterations; raise under MPI, where other ranks would not follow."""
        if self._learner is not None and self.config.runtime in ("mpi", "mpi-async"):
            raise ValueError(f'with runtime="{self.config.runtime}", params are given before training, on every rank')

    def release(self, learner: Any) -> None:
        """Release the resources of a learner."""
        learner.close()

    def iterate(self) -> Row | None:
        """Run one iteration: every environment takes many steps and is learned from. Returns the metrics."""
        pace = self.pace()
        return self._after(self.learner.run(pace, self.steps))

    def drain(self) -> Row | None:
        """Account for steps that other ranks took before they learned that training stops.

        Returns the metrics, if any.
        """
        if (meter := getattr(self.learner, "meter", None)) is not None:
            meter.fold()
        drain = getattr(self.learner, "drain", None)
        outcome = None if drain is None else drain()
        return None if outcome is None else self._after(outcome)

    def _after(self, outcome: Outcome) -> Row:
        """Count the steps and episodes of some rounds. Returns their metrics."""
        self.steps += outcome.steps
        self.iterations += 1
        self.recent.take(outcome.returns, outcome.lengths, outcome.reported)
        return {**self.time_metrics(self.steps), **self.row(outcome)}

    def pace(self) -> Pace:
        """Return the schedule of the next iteration."""
        goal = self.goal
        assert goal is not None  # noqa: S101 - learning
        least, most = LEAST_STEPS[self.device], MOST_STEPS[self.device]
        grain = min(self.learner.grain, goal.total // FEWEST_ITERATIONS)
        steps = min(max(goal.total // ITERATIONS, least, grain), max(most, grain), goal.stop - self.steps)
        rounds = -(-steps // self.num_envs)
        return self.pace_between(self.steps, self.steps + rounds * self.num_envs, rounds)

    def pace_between(self, first: int, last: int, rounds: int) -> Pace:
        """Return the schedule of `rounds` rounds, from step `first` to step `last` of the run."""
        goal = self.goal
        assert goal is not None  # noqa: S101 - learning
        before, after = goal.progress(first), goal.progress(last)
        step, rate = self.learning_rate_at(before), self.exploration_at(before)
        return Pace(
            rounds=rounds,
            chunk=rounds,
            fullest=0,
            step=step,
            step_change=(self.learning_rate_at(after) - step) / rounds,
            rate=rate,
            rate_change=(self.exploration_at(after) - rate) / rounds,
            gamma=self.config.gamma,
        )

    def learning_rate_at(self, progress: float) -> float:
        """Return the learning rate at a fraction `progress` of the training."""
        return scheduled_value(self.config, "learning_rate", progress)

    def exploration_at(self, progress: float) -> float:
        """Return the exploration rate at a fraction `progress` of the training."""
        return scheduled_value(self.config, "exploration_rate", progress)

    def row(self, outcome: Outcome) -> Row:
        """Return the metrics of an iteration."""
        assert self.goal is not None  # noqa: S101 - learning
        progress = self.goal.progress(self.steps)
        return {
            "rollout/exploration_rate": self.exploration_at(progress),
            "train/learning_rate": self.learning_rate_at(progress),
            "train/n_updates": self.steps,
            "train/states": len(self.table),
            "train/td_error": outcome.error,
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the table, random streams and the learner's state."""
        arrays = {**self.policy_arrays(), "acting.rng": self._acting.copy()}
        if self._waiting is not None:  # loaded and not trained since
            return {**self._waiting, **arrays}
        return arrays if self._learner is None else {**arrays, **self._learner.state()}

    def specs(self, arrays: Mapping[str, NDArray[Any]]) -> Specs:
        """Return the specs of this agent's arrays, with the learner's arrays if it has trained."""
        own = {**table_specs(self.table), "acting.rng": streams(1)}
        if TRAINED not in arrays:
            return own
        native, memory = self.source.native, self.make_memory()
        return {**own, **training_specs(native, self.num_envs, memory, self.actions, arrays)}

    def load_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Continue from saved arrays; the training state is kept until training begins."""
        self.load_policy_arrays({name: array for name, array in arrays.items() if name.startswith("table.")})
        self._acting[:] = arrays["acting.rng"]
        self._waiting = {name: array for name, array in arrays.items() if not name.startswith("table.")}

    def policy_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the table's arrays."""
        self._settle()
        return named("table", self.table.state())

    def load_policy_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Replace the table by the given arrays."""
        kept = within("table", arrays)
        self.table.load_state({name: kept[name] for name in self.table.specs() if name in kept})
        if self._learner is not None:
            self._learner.take()

    def _settle(self) -> None:
        """Bring the agent's table up to date if the learner works on another."""
        if self._learner is not None:
            self._learner.settle()

    @property
    def _runtime(self) -> Any:
        return importlib.import_module(RUNTIMES[self.config.runtime])

    def _numbers(self, observations: NDArray[Any]) -> NDArray[np.int64]:
        digits = observations.reshape(len(observations), -1).astype(np.int64) - np.array(self.states.starts)
        sizes = np.array(self.states.sizes)
        if not ((digits >= 0) & (digits < sizes)).all():
            wrong = int(np.argwhere(~((digits >= 0) & (digits < sizes)).all(axis=1))[0, 0])
            raise ValueError(f"observation {observations[wrong]} is not in {self.source.observation_space}")
        numbers = np.zeros(len(digits), np.int64)
        for k, size in enumerate(self.states.sizes):
            numbers = numbers * size + digits[:, k]
        return numbers

    def _resolved(self) -> TableConfig:
        """Return the configuration with open settings resolved, so that the run can be repeated."""
        config = self.config
        seed = seed_or_drawn(config.seed)
        workers = config.workers
        if config.runtime in ("threads", "processes") and workers is None:
            from velocirl.engine.targets.cores import available_cores

            workers = available_cores()
        kind = "threads" if config.runtime == "threads" else self.device
        copies = config.num_envs or COPIES.get(kind, 1) * (workers or 1)
        if workers is not None and copies % workers:
            raise ValueError(f"num_envs must be a multiple of workers={workers}, so that all are alike; got {copies}")
        row = row_type(self.actions, sets=self.rule.sets, visits=self.counts_visits, dtype=config.dtype)
        # A GPU has no use for a hash table: its memory holds the rows of billions of states.
        wanted = "dense" if (config.runtime, config.storage) == ("cuda", "auto") else config.storage
        storage = choose_storage(wanted, self.states.count, row, self.source.id)
        return dataclasses.replace(config, seed=seed, num_envs=copies, workers=workers, storage=storage)
