"""The machine of off-policy algorithms on native networks: steps, memory and updates in one compiled loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from velocirl.buffers.prioritised import PrioritisedReplayBuffer
from velocirl.buffers.rank_based import RankReplayBuffer
from velocirl.buffers.replay import ReplayBuffer, transition_type
from velocirl.engine import random
from velocirl.engine.registers import as_rows
from velocirl.engine.threads import SPACING
from velocirl.monitor.phases import add, add_parts
from velocirl.networks.encoding import Encoding
from velocirl.networks.heads import Head
from velocirl.networks.mlp import Plan, Workspace
from velocirl.networks.passes import Passes
from velocirl.training.collecting import COUNTS, ENDED, EPISODE, FAULT, FAULTY_COPY, FAULTY_STEP
from velocirl.learners.counters import Meter, clear, read
from velocirl.training.deep_agent import fitting_all
from velocirl.learners.faults import check_update, fault_of_rollout
from velocirl.learners.learner import Report
from velocirl.training.off_policy import (
    ACTED,
    ACTOR_METRICS,
    LEARNING,
    METRICS,
    NORMS,
    ROLLOUT_COUNTS,
    SEEN,
    STEPPING,
    UPDATE_COUNTS,
    UPDATES,
    Behaviour,
    Diary,
    Memory,
    allocate_batch,
    stages,
)
from velocirl.training.off_policy import FAULT as FAULTY_UPDATE
from velocirl.training.off_policy_config import OffPolicyConfig
from velocirl.training.off_policy_steps import Connected, Crew, connect
from velocirl.learners.pace import Pace


class Updater(Protocol):
    """What learns from a batch: networks, optimisers and frozen copies, for as many threads as there are."""

    settings: Any  # of the loss: a NamedTuple of float32
    functions: Passes  # of the network that acts
    acting: tuple[Plan, Workspace]  # that network
    translator: Any  # which has every kernel that `update` calls
    # (thread, threads, learning, memory, batch, settings, pace, number, meetings) -> meetings, to be compiled; every
    # thread calls it for its rows of the batch, and the errors of all rows are written when it returns.
    update: Callable[..., Any]
    learning: list[Any]  # a NamedTuple of arrays for each thread

    @property
    def learnt(self) -> list[NDArray[np.float32]]:
        """All parameters that learn."""
        ...

    @property
    def totals(self) -> list[NDArray[np.float64]]:
        """The sums of the metrics, of each thread."""
        ...

    def take(self) -> None:
        """Go on from parameters that something else has changed."""
        ...

    def state(self) -> dict[str, NDArray[Any]]:
        """What decides the next updates, besides the agent's own parameters."""
        ...

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `state` gave."""
        ...


class OffPolicyMachine:
    """Steps all copies, remembers and learns; everything is done when `iterate` returns."""

    def __init__(
        self,
        envs: VectorEnv,
        config: OffPolicyConfig,
        head: Head,
        encoding: Encoding,
        behaviour: Behaviour,
        updater: Updater,
        *,
        most_steps: int,  # of each copy in an iteration
        seeds: tuple[int, int],  # of the actions, and of what is drawn from memory
        recent: int,  # episodes that a report tells of at most
        phases: dict[str, float],
    ) -> None:
        self.envs, self.updater, self.phases, self._recent = envs, updater, phases, recent
        self._meter = Meter(phases, "rollout", self._count)
        copies, threads = envs.num_envs, len(updater.learning)
        self._rng = random.streams(seeds[0], copies)
        self._noise = np.zeros((copies, head.action_size), np.float32)
        self.buffer = make_buffer(config, head, encoding, seeds[1])
        selection, book = self.buffer.selection(config.batch_size)
        self.memory = Memory(
            rows=self.buffer.rows,
            counts=self.buffer.counts,
            rng=self.buffer.rng,
            book=book,
            encoded=np.zeros(encoding.inputs, np.float32),
            copies=copies,
            n_step=config.n_step,
            gamma=float(config.gamma),
        )
        self.batch = allocate_batch(config.batch_size, threads * SPACING)
        has_actor = len(updater.learnt) > 1
        self._update_counts = [one for one in UPDATE_COUNTS if one.name != "actor" or has_actor]
        self._diary = Diary(np.zeros(copies * most_steps, EPISODE), np.zeros(COUNTS, np.int64))
        parts = stages(behaviour, encoding, updater.functions.forward, selection)
        streams = as_rows(self._rng), as_rows(self._noise)
        crew = [
            Crew(
                thread, threads, *updater.acting, *streams, self.memory, self._diary, self.batch, learning,
                updater.settings,
            )
            for thread, learning in enumerate(updater.learning)
        ]  # fmt: skip
        self._steps: Connected = connect(envs, head, parts, updater.update, selection.revise, updater.translator, crew)
        self.take()

    def iterate(self, schedule: Pace, steps: int) -> Report:
        """Every copy takes `schedule.rounds` steps, after which the run has taken `steps`; what is due is learnt."""
        diary, outcome, copies = self._diary, self.batch.outcome, self.envs.num_envs
        before = int(outcome[UPDATES])
        diary.counts[:], outcome[SEEN:] = 0, 0.0
        for totals in self.updater.totals:
            totals[:] = 0.0
        first = steps - schedule.rounds * copies
        begun = perf_counter()
        self._steps.run(schedule, first)
        self.buffer.tidy()
        self._meter.add(perf_counter() - begun)
        kind, copy, t = (int(diary.counts[place]) for place in (FAULT, FAULTY_COPY, FAULTY_STEP))
        if kind:
            raise fault_of_rollout(kind, copy, t, first, copies)
        for parameters in self.updater.learnt:
            check_update(bool(outcome[FAULTY_UPDATE]), parameters, steps)
        updates = int(outcome[UPDATES]) - before
        last = diary.episodes[: diary.counts[ENDED]][-self._recent :]
        seen = np.where(np.arange(METRICS) < ACTOR_METRICS, outcome[SEEN], outcome[ACTED])
        return Report(
            steps=steps,
            learning_rate=schedule.learning_rate,
            means=np.sum(self.updater.totals, axis=0) / np.maximum(seen, 1),
            gradient_norm=float(outcome[NORMS]) / max(updates, 1),
            minibatches=updates,
            optimiser_steps=before + updates,
            explained_variance=float("nan"),
            returns=last["total"].tolist(),
            lengths=last["length"].tolist(),
        )

    def drain(self) -> Report | None:
        """Nothing is ever under way."""
        self._meter.fold()

    def settle(self) -> None:
        """The agent's own arrays are those that this machine works on."""

    def take(self) -> None:
        """Lay the parameters out anew, after something else than an update changed them."""
        self.updater.take()

    def state(self) -> dict[str, NDArray[Any]]:
        """The memory, the target networks, the optimisers, the copies and every random stream."""
        rows = self.buffer.rows[: len(self.buffer)]  # as they lie: a checkpoint writes the new ones only
        memory = {f"memory.{name}": array for name, array in {"rows": rows, **self.buffer.bookkeeping()}.items()}
        own = {name: array.copy() for name, array in self._own_arrays().items()}
        steps = np.array(int(self.batch.outcome[UPDATES]), np.int64)
        return {**own, "learner.steps": steps, **memory, **self.updater.state(), **self._steps.state()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a saved state."""
        own = self._own_arrays()
        fitting_all(state, own)
        self.buffer.load_state(
            {name.removeprefix("memory."): array for name, array in state.items() if name.startswith("memory.")}
        )
        self.updater.load_state(state)
        for name, array in own.items():
            array[...] = state[name]
        self.batch.outcome[UPDATES] = int(state["learner.steps"])
        self._steps.load_state(state)
        self.take()

    def _count(self, seconds: float) -> None:
        """Add what thread 0 counted to the phases: it steps, the others wait for it, and all share the updates."""
        row = self.batch.counters[0]
        learning = min(float(row[LEARNING]) * 1e-9, seconds)
        rollout, update = read([row], ROLLOUT_COUNTS, STEPPING), read([row], self._update_counts, LEARNING)
        clear(self.batch.counters)
        if rollout:
            for parent, spent, parts in (("rollout", seconds - learning, rollout), ("update", learning, update)):
                add(self.phases, parent, spent)
                add_parts(self.phases, parent, spent, parts)

    def _own_arrays(self) -> dict[str, NDArray[Any]]:
        return {"policy.rng": self._rng, "policy.noise": self._noise}


def make_buffer(config: OffPolicyConfig, head: Head, encoding: Encoding, seed: int) -> ReplayBuffer:
    """The memory that a configuration asks for, in whole groups of a record for each copy."""
    choices = head.outputs if head.masked else 0
    kind = transition_type(encoding.inputs, head.action_size, head.action_dtype, choices)
    capacity = max(config.buffer_size // config.num_envs, 1) * config.num_envs
    path = None if config.buffer_file is None else Path(config.buffer_file)
    if config.priority == "proportional":
        return PrioritisedReplayBuffer(capacity, kind, seed, config.priority_alpha, path=path)
    if config.priority == "rank":
        return RankReplayBuffer(capacity, kind, seed, config.priority_alpha, path=path)
    return ReplayBuffer(capacity, kind, seed, path)
