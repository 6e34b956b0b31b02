"""Fleet on a GPU whose environments update one table there.

A thousand environments may take the same action in the same state of the same round. Each adds its target to the sum of
the pair. When all have, the first of them moves the value by 1 - (1 - learning rate)^n toward the mean of the n
targets. This equals n updates one after another, in whatever order the GPU had them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.engine import random
from velocirl.engine.fleets.fleet import SAVED as FLEET
from velocirl.engine.fleets.lifecycle import Lifecycle
from velocirl.engine.targets.cuda import CUDATarget
from velocirl.engine.targets.cuda_kernels import Kernel, cuda
from velocirl.program.faults import fault_of_rollout
from velocirl.program.rows.recording import FAULT_IN_REWARD
from velocirl.tabular.agent import TabularAgent
from velocirl.tabular.learner import SAVED, Outcome, TableLearner, TabularTask, typed
from velocirl.tabular.loop import (
    ERRORS,
    FAULT,
    FAULTY_COPY,
    FAULTY_ROUND,
    ROUNDS,
    Current,
    Pace,
    Scalars,
    tell,
)  # fmt: skip
from velocirl.tabular.memory import UNKNOWN
from velocirl.tabular.tables.table import Table
from velocirl.vector.native_cuda import CUDAFleetVectorEnv

ROWS = (
    "rng",
    "observation",
    "final_observation",
    "mask",
    "final_mask",
)  # arrays with several numbers per environment
WATCHED = 4096  # environments whose episodes are reported: enough to show progress, few enough to copy quickly
KEPT = 100  # episodes reported at most


def make_learner(agent: TabularAgent) -> TableLearner:
    """Create a learner with a fleet on the GPU."""
    config, native = agent.config, agent.source.native
    if native is None:
        raise ValueError(f'{agent.source.id} steps in Python, which no GPU runs: use runtime="processes"')
    if config.storage == "sparse":
        raise ValueError('a table on a GPU is dense: leave out storage="sparse", or use another runtime')
    if agent.task.memory.window.names != ("count",):
        raise ValueError(f'runtime="cuda" learns from one step at a time: use n_step=1, and no traces ({agent.name})')
    envs = CUDAFleetVectorEnv(
        native, agent.num_envs, seed=agent.seeds.environment, device="cuda", params=agent.source.params, copy=False
    )
    return CUDALearner(agent.task, envs, agent.seeds.policy, counts_visits=agent.counts_visits)


def by_columns(array: NDArray[Any]) -> Any:
    """Copy to the device in column order: values of neighboring environments are adjacent, for coalesced reads."""
    return cuda.to_device(np.asfortranarray(array))


MOVED = ROUNDS  # offset in the tally: on a GPU, the number of updated values


class Sums(NamedTuple):
    """Sums of the targets of a round's environments."""

    targets: NDArray[Any]  # (values of the table,) the sum of each value's targets
    hits: NDArray[np.int32]  # (values of the table,) the number of targets
    first: NDArray[np.int8]  # (envs,) whether this environment came first, and updates the value
    ended: NDArray[np.int8]  # (at most WATCHED,) whether an episode ended since the last read


class CUDALearner:
    """Learner with one thread per environment; an iteration is one launch, with grid synchronization between rounds."""

    grain = 0  # a call may be short: no minimum of steps

    def __init__(self, task: TabularTask, envs: CUDAFleetVectorEnv, seed: int, *, counts_visits: bool) -> None:
        self._table, self._report, self.fleet = task.table, task.report, envs
        self.num_envs = count = envs.num_envs
        target: Any = envs.target
        fleet: CUDATarget = target
        streams = random.streams(seed, count)
        host = task.current(count, streams)
        plain = host._replace(rng=streams)
        self._pupils = Current(*map(by_columns, plain))
        values = task.table.values.size
        self._sums = Sums(
            *(
                cuda.to_device(np.zeros(size, kind))
                for size, kind in (
                    (values, task.table.dtype), (values, np.int32), (count, np.int8), (min(count, WATCHED), np.int8),
                )
            )
        )  # fmt: skip
        self.take()
        parts = task.scalars()
        learn = learning(task, counts_visits)
        self._begin = Kernel(begin_kernel(parts), fleet.translator, fleet.rehearse, fleet.tell)
        loop = round_kernel(fleet.life, parts, entering(task), learn)
        self._run = Kernel(loop, fleet.translator, fleet.rehearse, fleet.tell)
        envs.reset()
        host_copies: Any = fleet.copies
        self._copies = fleet.copies._replace(
            **{name: by_columns(getattr(host_copies, name).copy_to_host()) for name in ROWS}
        )
        self._begun, self._ahead, self._threads = False, False, 0

    def run(self, pace: Pace, first: int) -> Outcome:
        """Run all rounds in one launch."""
        if not self._begun:
            self._begin.launch(self.num_envs, (self._copies, self._rows, self._pupils, np.float32(pace.rate)))
            self._begun = True
        if not self._threads:
            self._launch(128, pace._replace(rounds=0))
            self._threads = min(self._run.threads_at_once(), self.num_envs)
        self._launch(self._threads, pace)
        self._ahead = True
        return self._outcome(pace, first)

    def settle(self) -> None:
        """Copy the table of the GPU into the agent's."""
        if self._ahead:
            self._rows.rows.copy_to_host(self._table.arrays.rows)  # pyright: ignore[reportAttributeAccessIssue]
            self._ahead = False

    def take(self) -> None:
        """Copy the agent's table to the GPU."""
        self._rows = Table(*(cuda.to_device(array) for array in self._table.arrays))
        self._ahead = False

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the environments' states, their pending steps and random streams."""
        if not self._begun:
            return {}
        own = {f"current.{name}": self._fetched(self._pupils, name) for name in SAVED}
        fleet = {f"fleet.{name}": self._fetched(self._copies, name) for name in (*FLEET, "action")}
        return {**own, **fleet, "policy.rng": self._fetched(self._pupils, "rng")}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a saved state."""
        if "policy.rng" not in state:
            return
        arrays: dict[str, Any] = {"policy.rng": self._pupils.rng}
        arrays |= {f"current.{name}": getattr(self._pupils, name) for name in SAVED}
        arrays |= {f"fleet.{name}": getattr(self._copies, name) for name in (*FLEET, "action")}
        for name, array in arrays.items():
            array.copy_to_device(np.asfortranarray(state[name]))
        self.take()
        self._begun = True

    def close(self) -> None:
        """Do nothing: the arrays are freed with the learner."""

    @staticmethod
    def _fetched(arrays: Any, name: str) -> NDArray[Any]:
        return np.ascontiguousarray(getattr(arrays, name).copy_to_host())

    def _launch(self, threads: int, pace: Pace) -> None:
        arguments = self._copies, self._rows, self._pupils, self._sums, typed(pace, self._table.dtype)
        self._run.launch(threads, arguments)

    def _outcome(self, pace: Pace, first: int) -> Outcome:
        tally = self._fetched(self._pupils, "tally")
        if tally[FAULT]:
            copy, t = int(tally[FAULTY_COPY]), int(tally[FAULTY_ROUND])
            raise fault_of_rollout(int(tally[FAULT]), copy, t, first, self.num_envs)
        told = np.flatnonzero(self._fetched(self._sums, "ended"))[:KEPT]
        returns, lengths = (
            getattr(self._copies, name)[:WATCHED].copy_to_host()[told] for name in ("episode_return", "episode_length")
        )
        for array in (self._pupils.tally, self._sums.ended):
            array.copy_to_device(np.zeros(array.shape, array.dtype))  # pyright: ignore[reportAttributeAccessIssue]
        error = float(tally[ERRORS] / max(tally[MOVED], 1))
        reported: dict[str, list[float]] = {}
        if self._report:
            states = self._copies.final_state[:WATCHED].copy_to_host()[told]  # pyright: ignore[reportAttributeAccessIssue]
            reported = {name: states[name].tolist() for name in self._report}
        return Outcome(pace.rounds * self.num_envs, error, returns.tolist(), lengths.tolist(), reported)


def entering(task: TabularTask) -> Callable[..., Any]:
    """Compose `enter(sums, place, action, coin, target, i)`: add environment i's target to the sum of its value."""
    actions, sets = task.actions, task.rule.sets

    def enter(sums, place, action, coin, target, i):
        value = (np.int64(place) * sets + coin) * actions + action
        sums.first[i] = cuda.atomic.add(sums.hits, value, 1) == 0
        cuda.atomic.add(sums.targets, value, target)

    return enter


def learning(task: TabularTask, counts_visits: bool) -> Callable[..., Any]:
    """Compose `learn(rows, sums, place, action, coin, step) -> error`: move a value toward the mean of its targets."""
    actions, sets, move = task.actions, task.rule.sets, task.rule.learn

    def learn(rows, sums, place, action, coin, step):
        value = (np.int64(place) * sets + coin) * actions + action
        hits = sums.hits[value]
        share = 1 - (1 - step) ** (step * 0 + hits)
        error = move(rows, place, action, sums.targets[value] / hits, share, coin)
        sums.hits[value] = 0
        sums.targets[value] = 0
        if counts_visits:
            rows[place].visits[action] += hits - 1  # the rule has counted one
        return abs(error)

    return learn


def begin_kernel(parts: Scalars) -> Callable[..., Any]:
    """Compose `begin(copies, table, current, rate)`: observe and choose for the first time."""
    look, decide = parts.look, parts.decide

    def begin(copies, table, current, rate):
        i = cuda.grid(1)
        if i < len(copies.reward):
            current.next_place[i] = look(copies.observation[i], table, current, i, 0)
            decide(copies, table, current, rate, i)
            current.place[i] = current.next_place[i]
            copies.action[i] = current.next_action[i]

    return begin


def round_kernel(
    life: Lifecycle,
    parts: Scalars,
    enter: Callable[..., Any],
    learn: Callable[..., Any],
) -> Callable[..., Any]:
    """Compose `run(copies, table, current, sums, pace)`: many rounds, with a grid synchronization after each half."""
    move, conclude, show = life.move, life.conclude, life.show
    look, decide, look_back = parts

    def run(copies, table, current, sums, pace):
        grid = cuda.cg.this_grid()
        start, stride, count = cuda.grid(1), cuda.gridsize(1), len(copies.reward)
        errors, moved = np.float64(0), 0
        for t in range(pace.rounds):
            step, rate = pace.step + t * pace.step_change, pace.rate + t * pace.rate_change
            for i in range(start, count, stride):
                move(copies, i)
                conclude(copies, i)
                show(copies, i)
                terminated, truncated = copies.terminated[i], copies.truncated[i]
                if i < len(sums.ended) and (terminated or truncated):
                    sums.ended[i] = 1
                current.next_place[i] = look(copies.observation[i], table, current, i, t)
                decide(copies, table, current, rate, i)
                if truncated and not terminated:
                    look_back(copies, table, current, rate, i, t)
                reward = copies.reward[i]
                if reward * 0 != 0:
                    tell(current.tally, FAULT_IN_REWARD, i, t)
                ahead = current.ahead[i] * 0 if terminated else current.ahead[i]
                sums.first[i] = 0
                if current.coin[i] != UNKNOWN:
                    target = reward + pace.gamma * ahead
                    enter(sums, current.place[i], copies.action[i], current.coin[i], target, i)
            grid.sync()
            for i in range(start, count, stride):
                if sums.first[i]:
                    errors += learn(table.rows, sums, current.place[i], copies.action[i], current.coin[i], step)
                    moved += 1
                current.place[i] = current.next_place[i]
                copies.action[i] = current.next_action[i]
            grid.sync()
        cuda.atomic.add(current.tally, ERRORS, errors)
        cuda.atomic.add(current.tally, MOVED, np.float64(moved))

    return run
