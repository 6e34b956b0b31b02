"""How the native machine of off-policy algorithms takes its steps: in one compiled loop, or around Python's own.

Thread 0 steps the copies, remembers and draws the batches; the others wait until there is one to learn from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from velocirl.buffers.n_step import cut_off
from velocirl.engine.clock import now
from velocirl.engine.compiling import add_kernel, compile_loop
from velocirl.engine.cpu import CPUTarget
from velocirl.engine.lifecycle import Lifecycle
from velocirl.engine.threads import meet, run_together
from velocirl.networks.heads import Head
from velocirl.networks.mlp import Plan, Workspace
from velocirl.learners.counters import TIMED, TIMING, glance, lap, start, turn
from velocirl.learners.host import HostArrays
from velocirl.training.off_policy import (
    BUFFER,
    ENVIRONMENT,
    EVERY_ROUND,
    EVERY_UPDATE,
    FAULT,
    LEARNING,
    POLICY,
    ROUND,
    SAMPLE,
    SEEN,
    STEPPING,
    UPDATE,
    UPDATES,
    WAITING,
    Batch,
    Diary,
    Memory,
    Stages,
)  # fmt: skip
from velocirl.learners.pace import ANY_PACE, Pace, beta_at, exploration_at, updates_due
from velocirl.vector.host_interface import HostInterface
from velocirl.vector.native import FleetVectorEnv


class Crew(NamedTuple):
    """What one thread works with; all but its number and `learning` is shared."""

    thread: int
    threads: int
    plan: Plan  # of the network that acts,
    work: Workspace  # which thread 0 asks
    rng: NDArray[Any]  # (copies,) rows: of the actions
    noise: NDArray[Any]  # (copies,) rows: that of the actions, kept from step to step
    memory: Memory
    diary: Diary
    batch: Batch
    learning: Any  # the updater's, of this thread
    settings: Any  # of the loss


class Connected(Protocol):
    """Takes the steps of an iteration."""

    def run(self, pace: Pace, first: int) -> None:
        """Every copy takes `pace.rounds` steps; the run has taken `first` before them."""
        ...

    def state(self) -> dict[str, NDArray[Any]]:
        """What the copies are in the middle of."""
        ...

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `state` gave."""
        ...


def connect(
    envs: VectorEnv,
    head: Head,
    parts: Stages,
    update: Callable[..., Any],
    revise: Callable[..., Any],
    translator: Any,
    crew: Sequence[Crew],
) -> Connected:
    """Compile for a fleet, or for the two sides of a step in Python."""
    learn = learning_stage(parts, update, revise)
    for stage in (parts.decide, parts.remember, learn):
        # Called, not inlined: one function of all would take the compiler twice as long.
        add_kernel(translator, stage, disjoint=False)  # pyright: ignore[reportArgumentType]
    if isinstance(envs, FleetVectorEnv):
        return FleetSteps(envs, parts, learn, translator, crew)
    if isinstance(envs, HostInterface):
        return HostSteps(envs, head, parts, learn, translator, crew)
    raise TypeError(f"a {type(envs).__name__} is neither a compiled fleet nor one of Gymnasium's")


def learning_stage(parts: Stages, update: Callable[..., Any], revise: Callable[..., Any]) -> Callable[..., Any]:
    """`learn(one, pace, step, due, meetings) -> meetings`, called by each one of the crew."""
    draw_batch = parts.draw_batch

    def learn(one, pace, step, due, meetings):
        """So many updates after a step of all copies, at which the run has taken `step` steps."""
        thread, threads, memory, batch = one.thread, one.threads, one.memory, one.batch
        number = np.int64(batch.outcome[UPDATES])
        counters = batch.counters[thread]
        timed, since = False, 0
        for _ in range(due):
            if batch.outcome[FAULT] != 0.0:
                break
            number += 1
            timed = turn(counters, UPDATE, EVERY_UPDATE)
            counters[TIMING] = timed
            since = start(counters, UPDATE, timed)
            if thread == 0:
                draw_batch(memory, batch, beta_at(step, pace))
            since = lap(counters, SAMPLE, since, timed)
            meetings += 1
            meet(batch.meeting, thread, threads, meetings)
            lap(counters, WAITING, since, timed)
            meetings = update(thread, threads, one.learning, memory, batch, one.settings, pace, number, meetings)
            since = glance(timed)
            if thread == 0 and batch.outcome[FAULT] == 0.0:
                revise(memory.book, memory.counts, batch.places, batch.errors)
                batch.outcome[UPDATES] = number
                batch.outcome[SEEN] += len(batch.places)
            since = lap(counters, SAMPLE, since, timed)
        # The others read the number of updates when they come here again, which must be after this.
        meetings += 1
        meet(batch.meeting, thread, threads, meetings)
        lap(counters, WAITING, since, timed)
        return meetings

    return learn


def fleet_loop(life: Lifecycle, parts: Stages, learn: Callable[..., Any]) -> Callable[..., Any]:
    """`run(copies, one, pace, step)`: an iteration of one thread."""
    move, conclude, show = life.move, life.conclude, life.show
    decide, remember = parts.decide, parts.remember

    def run(copies, one, pace, step):
        num_envs = len(copies.reward)
        stop = np.uint64(num_envs)
        meetings = 0
        counters, begun = one.batch.counters[one.thread], glance(True)
        learnt = counters[LEARNING]
        for t in range(pace.rounds):
            if one.thread == 0:
                timed = turn(counters, ROUND, EVERY_ROUND)
                since = start(counters, ROUND, timed)
                warm, exploration = step < pace.learning_starts, np.float32(exploration_at(step, pace))
                decide(copies, one.plan, one.work, one.rng, one.noise, one.memory, one.diary, warm, exploration, t)
                since = lap(counters, POLICY, since, timed)
                for i in range(np.uint64(0), stop):
                    move(copies, i)
                for i in range(np.uint64(0), stop):
                    conclude(copies, i)
                for i in range(np.uint64(0), stop):
                    show(copies, i)
                since = lap(counters, ENVIRONMENT, since, timed)
                remember(copies, one.noise, one.memory, one.diary, t)
                lap(counters, BUFFER, since, timed)
            step += num_envs
            due = updates_due(step, num_envs, pace)
            if due > 0:
                since = glance(True)
                meetings = learn(one, pace, step, due, meetings)
                lap(counters, LEARNING, since, True)
        # What was not learning was stepping: that takes no look at the clock in each round.
        lap(counters, STEPPING, begun + counters[LEARNING] - learnt, True)

    return run


class FleetSteps:
    """Many steps of a compiled fleet: one call of each thread."""

    def __init__(
        self,
        envs: FleetVectorEnv,
        parts: Stages,
        learn: Callable[..., Any],
        translator: Any,
        crew: Sequence[Crew],
    ) -> None:
        self._envs = envs
        target: Any = envs.target
        fleet: CPUTarget = target
        # Learner's code, in the learner's manner; the environment's own stays strict.
        for stage in (parts.decide, parts.remember, learn):
            fleet.translator.adopt(stage, translator.scalar(stage))
        self._copies, self._crew = fleet.shares[0], crew
        self._run = fleet.compile(fleet_loop(fleet.life, parts, learn), self._copies, crew[0], ANY_PACE, 0)
        envs.reset()

    def run(self, pace: Pace, first: int) -> None:
        """One compiled call for each thread."""
        self._crew[0].batch.meeting[:] = 0
        run_together([[(self._run, (self._copies, one, pace, first))] for one in self._crew])

    def state(self) -> dict[str, NDArray[Any]]:
        """The copies."""
        return {f"fleet.{name}": array for name, array in self._envs.get_state().items()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """The copies go on from there."""
        own = {name.removeprefix("fleet."): array for name, array in state.items() if name.startswith("fleet.")}
        self._envs.set_state(own)


def host_loops(parts: Stages, learn: Callable[..., Any]) -> tuple[Callable[..., Any], ...]:
    """Before a step, after it, and what is learnt then."""
    decide, remember = parts.decide, parts.remember

    def before(copies, one, pace, step, t):
        warm, exploration = step < pace.learning_starts, np.float32(exploration_at(step, pace))
        decide(copies, one.plan, one.work, one.rng, one.noise, one.memory, one.diary, warm, exploration, t)

    def after(copies, one, t):
        remember(copies, one.noise, one.memory, one.diary, t)

    def improve(one, pace, step, due):
        learn(one, pace, step, due, 0)

    return before, after, improve


class HostSteps:
    """Steps of Gymnasium's environments: compiled decisions and updates, the steps themselves in Python."""

    def __init__(
        self,
        envs: HostInterface,
        head: Head,
        parts: Stages,
        learn: Callable[..., Any],
        translator: Any,
        crew: Sequence[Crew],
    ) -> None:
        self._envs, self._host = envs, HostArrays.allocate(envs, head)
        self._crew = crew
        rows, one = self._host.rows, crew[0]
        examples = (rows, one, ANY_PACE, 0, 0), (rows, one, 0), (one, ANY_PACE, 0, 0)
        self._before, self._after, self._learn = (
            compile_loop(loop, example, translator, before=lambda: None)  # pyright: ignore[reportArgumentType]
            for loop, example in zip(host_loops(parts, learn), examples, strict=True)
        )
        self._begun, self._seed = False, None

    def run(self, pace: Pace, first: int) -> None:
        """Step by step; the threads come together where something is to be learnt."""
        policy = environment = buffer = learning = 0
        if not self._begun:
            begun = now()
            self._host.take(*self._envs.reset(seed=self._seed))
            self._begun, self._seed, environment = True, None, now() - begun
        copies, rows, one = self._envs.num_envs, self._host.rows, self._crew[0]
        for t in range(pace.rounds):
            step = first + t * copies
            begun = now()
            self._before(rows, one, pace, step, t)
            decided = now()
            result = self._envs.step(self._host.action)
            stepped = now()
            self._host.take_step(*result)
            self._after(rows, one, t)
            remembered = now()
            policy += decided - begun
            environment += stepped - decided
            buffer += remembered - stepped
            step += copies
            due = updates_due(step, copies, pace)
            if due:
                one.batch.meeting[:] = 0
                run_together([[(self._learn, (each, pace, step, due))] for each in self._crew])
                learning += now() - remembered
        counters, stepping = one.batch.counters[0], policy + environment + buffer
        counters[[POLICY, ENVIRONMENT, BUFFER, STEPPING, LEARNING]] += policy, environment, buffer, stepping, learning
        counters[[ROUND, ROUND + TIMED]] = 1

    def state(self) -> dict[str, NDArray[Any]]:
        """What Gymnasium's environments are in the middle of cannot be saved."""
        return {}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:  # noqa: ARG002 - as that of a fleet
        """Go on with new episodes: their seeds come from the policy's streams, so that no episode is repeated."""
        memory, rng = self._crew[0].memory, self._crew[0].rng
        cut_off(memory.rows, memory.counts, memory.copies)
        self._crew[0].noise["row"][...] = 0.0
        self._begun, self._seed = False, int(rng["row"][0, 0] >> np.uint64(33))
