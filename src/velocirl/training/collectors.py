"""Collectors: rollouts of a compiled fleet, or of Gymnasium's environments on the host; the same journals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.rollout import allocate_rollout, sample_type
from velocirl.engine import random
from velocirl.engine.clock import now
from velocirl.engine.compiling import compile_loop
from velocirl.engine.cpu import CPUTarget
from velocirl.engine.registers import as_rows
from velocirl.engine.threads import run_together
from velocirl.engine.translating import Translator
from velocirl.networks.encoding import Encoding
from velocirl.networks.heads import Head
from velocirl.networks.mlp import ROWS, Plan, Workspace
from velocirl.networks.passes import Passes
from velocirl.training.collecting import (
    BUFFER,
    ENVIRONMENT,
    LAST_VALUES,
    POLICY,
    Eyes,
    Journal,
    Stages,
    collect_loop,
    new_journal,
    stages,
)  # fmt: skip
from velocirl.training.commands import writer_for
from velocirl.learners.counters import FIRST_KIND, TIMED, WHOLE
from velocirl.learners.host import HostArrays, HostRows
from velocirl.vector.host_interface import HostInterface
from velocirl.vector.native import FleetVectorEnv


class Policy(NamedTuple):
    """All of a policy that a collector needs."""

    head: Head
    encoding: Encoding
    plan: Plan
    functions: Passes
    translator: Translator  # that has compiled the functions


class Collector(Protocol):
    """Fills journals, one for each thread."""

    journals: list[Journal]
    works: list[Workspace]

    def connect(self, policy: Policy, works: list[Workspace]) -> None:
        """Compile for a policy; each thread has its own workspace with the packed parameters."""
        ...

    def collect(self, eyes: Eyes, gamma: float) -> None:
        """One rollout of all copies."""
        ...

    def state(self) -> dict[str, NDArray[Any]]:
        """All that decides the next rollouts."""
        ...

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a saved state."""
        ...


def allocate_journals(num_envs: int, horizon: int, threads: int, head: Head, inputs: int) -> list[Journal]:
    """A rollout, shared out to threads."""
    samples = allocate_rollout(
        num_envs, horizon, sample_type(inputs, head.action_size, head.action_dtype, head.outputs if head.masked else 0)
    )
    share = -(-num_envs // threads)
    return [new_journal(samples[first : first + share], inputs) for first in range(0, num_envs, share)]


class FleetCollector:
    """Rollouts of a compiled fleet: one call for each thread, no Python in between."""

    def __init__(self, fleet: FleetVectorEnv, horizon: int, head: Head, encoding: Encoding, seed: int) -> None:
        self.fleet = fleet
        target: Any = fleet.target
        self._target: CPUTarget = target
        self.journals = allocate_journals(fleet.num_envs, horizon, self._target.threads, head, encoding.inputs)
        self._rng = random.streams(seed, fleet.num_envs)
        self._streams = _shared_out(as_rows(self._rng), self.journals)

    def connect(self, policy: Policy, works: list[Workspace]) -> None:
        """Compile the rollout."""
        steps = stages(policy.head, policy.encoding, writer_for(self.fleet.single_action_space), policy.functions)
        for stage in steps:  # learner's code, in the learner's manner; the environment's own stays strict
            self._target.translator.adopt(stage, policy.translator.scalar(stage))  # pyright: ignore[reportArgumentType]
        self._plan, self.works = policy.plan, works
        eyes = Eyes(*(np.zeros(policy.encoding.inputs, np.float32) for _ in Eyes._fields))
        self._collect = self._target.compile(
            collect_loop(self._target.life, steps), *self._arguments(0, eyes, np.float32(1))
        )

    def collect(self, eyes: Eyes, gamma: float) -> None:
        """One rollout of all copies."""
        threads = range(len(self.journals))
        run_together([[(self._collect, self._arguments(thread, eyes, np.float32(gamma)))] for thread in threads])

    def _arguments(self, thread: int, eyes: Eyes, gamma: np.float32) -> tuple[Any, ...]:
        copies, journal = self._target.shares[thread], self.journals[thread]
        return copies, self._plan, self.works[thread], self._streams[thread], eyes, journal, gamma

    def state(self) -> dict[str, NDArray[Any]]:
        """The fleet, the policy's random streams, and the discounted returns so far."""
        fleet = {f"fleet.{name}": array for name, array in self.fleet.get_state().items()}
        return {**fleet, **_common_state(self._rng, self.journals)}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on where the copies were."""
        fleet = {name.removeprefix("fleet."): array for name, array in state.items() if name.startswith("fleet.")}
        self.fleet.set_state(fleet)
        _load_common_state(state, self._rng, self.journals)


class HostCollector:
    """Rollouts of Gymnasium's environments, in this process or in workers: compiled decisions, steps in Python."""

    def __init__(
        self, envs: HostInterface, horizon: int, head: Head, encoding: Encoding, seed: int, threads: int
    ) -> None:
        self.envs = envs
        self.horizon = horizon
        self.journals = allocate_journals(envs.num_envs, horizon, threads, head, encoding.inputs)
        self._rng = random.streams(seed, envs.num_envs)
        self._streams = _shared_out(as_rows(self._rng), self.journals)
        self._host = HostArrays.allocate(envs, head)
        self._shares = [
            HostRows(*parts) for parts in zip(*(_shared_out(a, self.journals) for a in self._host.rows), strict=True)
        ]
        self._begun = False
        self._seed: int | None = None  # of the next reset, where it is not the one that the environments were made with

    def connect(self, policy: Policy, works: list[Workspace]) -> None:
        """Compile the stages on either side of a step."""
        steps = stages(policy.head, policy.encoding, writer_for(self.envs.single_action_space), policy.functions)
        self._plan, self.works = policy.plan, works
        eyes = Eyes(*(np.zeros(policy.encoding.inputs, np.float32) for _ in Eyes._fields))
        arguments = (self._shares[0], policy.plan, works[0], self._streams[0], eyes, self.journals[0], 0, np.float32(1))
        self._decide, self._settle, self._finish = (
            compile_loop(loop, arguments, policy.translator, before=lambda: None) for loop in host_loops(steps)
        )

    def collect(self, eyes: Eyes, gamma: float) -> None:
        """One rollout of all copies."""
        policy = environment = buffer = 0
        if not self._begun:
            begun = now()
            self._host.take(*self.envs.reset(seed=self._seed))  # by the thread that will step them
            self._begun, self._seed, environment = True, None, now() - begun
        for t in range(self.horizon):
            begun = now()
            self._run(self._decide, eyes, t, gamma)
            decided = now()
            result = self.envs.step(self._host.action)
            stepped = now()
            self._host.take_step(*result)
            self._run(self._settle, eyes, t, gamma)
            policy += decided - begun
            environment += stepped - decided
            buffer += now() - stepped
        begun = now()
        self._run(self._finish, eyes, self.horizon, gamma)
        whole = policy + environment + buffer + (finished := now() - begun)
        counters = self.journals[0].counters  # Python runs all threads' parts
        counters[[POLICY, ENVIRONMENT, BUFFER, LAST_VALUES, WHOLE]] += policy, environment, buffer, finished, whole
        counters[[FIRST_KIND, FIRST_KIND + TIMED]] = 1

    def _run(self, stage: Any, eyes: Eyes, t: int, gamma: float) -> None:
        for thread, journal in enumerate(self.journals):
            streams, work = self._streams[thread], self.works[thread]
            stage(self._shares[thread], self._plan, work, streams, eyes, journal, t, np.float32(gamma))

    def state(self) -> dict[str, NDArray[Any]]:
        """The policy's random streams; what Gymnasium's environments are in the middle of cannot be saved."""
        return _common_state(self._rng, self.journals)

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on with new episodes: their seeds come from the policy's streams, so that no episode is repeated."""
        _load_common_state(state, self._rng, self.journals)
        for journal in self.journals:
            journal.discounted[:] = 0.0
        self._begun, self._seed = False, int(self._rng[0, 0] >> np.uint64(33))


def host_loops(steps: Stages) -> tuple[Any, Any, Any]:
    """The stages over all blocks of one thread, with the same arguments."""
    decide, settle, finish = steps

    def decide_all(copies, plan, work, rng, eyes, journal, t, gamma):  # noqa: ARG001 - all three have the same arguments
        for start in range(0, len(copies.reward), ROWS):
            decide(copies, plan, work, rng, eyes, journal, start, min(ROWS, len(copies.reward) - start), t)

    def settle_all(copies, plan, work, rng, eyes, journal, t, gamma):  # noqa: ARG001
        for start in range(0, len(copies.reward), ROWS):
            settle(copies, plan, work, eyes, journal, start, min(ROWS, len(copies.reward) - start), t, gamma)

    def finish_all(copies, plan, work, rng, eyes, journal, t, gamma):  # noqa: ARG001
        for start in range(0, len(copies.reward), ROWS):
            finish(copies, plan, work, eyes, journal, start, min(ROWS, len(copies.reward) - start))

    return decide_all, settle_all, finish_all


def _shared_out(array: NDArray[Any], journals: list[Journal]) -> list[NDArray[Any]]:
    """The rows of each thread."""
    shares, first = [], 0
    for journal in journals:
        shares.append(array[first : first + len(journal.samples)])
        first += len(journal.samples)
    return shares


def _common_state(rng: NDArray[np.uint64], journals: list[Journal]) -> dict[str, NDArray[Any]]:
    return {"policy.rng": rng.copy(), "policy.discounted": np.concatenate([one.discounted for one in journals])}


def _load_common_state(state: Mapping[str, NDArray[Any]], rng: NDArray[np.uint64], journals: list[Journal]) -> None:
    rng[:] = state["policy.rng"]
    for journal, discounted in zip(journals, _shared_out(state["policy.discounted"], journals), strict=True):
        journal.discounted[:] = discounted
