"""Runs the rounds of a tabular algorithm in Gymnasium's environments: compiled choices and updates, steps in Python."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from velocirl.engine import random
from velocirl.engine.compiler.clock import now
from velocirl.engine.compiler.compiling import learning_translator
from velocirl.engine.compiler.counters import TIMED, TIMING, WHOLE
from velocirl.engine.compiler.registers import as_rows, fetch_add
from velocirl.engine.compiler.units import BoundUnit, bind_unit, compile_waiting
from velocirl.tabular.learner import NO_LIMIT, Outcome, Settling, TabularTask, meter_of, outcome_of, typed
from velocirl.tabular.loop import ENVIRONMENT, FAULT, ROUND, ROUNDS, TICKET, Pace, Rows
from velocirl.tabular.memory import places_in
from velocirl.tabular.tables.table import ROWS_USED
from velocirl.vector.host.copies import Arrays, Nested, map_arrays
from velocirl.vector.host.interface import HostInterface

EVERY = 7  # rounds of which one is timed: a step in Python may take a few microseconds


class HostLearner:
    """Copies of one of Gymnasium's environments, stepped one after another."""

    grain = 0  # a call may be short

    def __init__(self, task: TabularTask, envs: VectorEnv, seed: int, first: int = 0) -> None:
        """Where these are some of several copies, `first` is the number of the first one."""
        if not isinstance(envs, HostInterface):
            raise TypeError(f"a {type(envs).__name__} is not one of Gymnasium's environments")
        self._lesson, self._envs, self._table = task, envs, task.table
        self.num_envs = count = envs.num_envs
        self._rng = random.streams(seed, first + count)[first:]
        self.current = task.current(count, self._rng)
        space: Any = envs.single_action_space
        self._first_action = int(space.start)
        self._rows, self._copied = rows_over(envs.arrays, task)
        self.meter = meter_of(task.phases, [self.current])
        self._work = np.zeros(8, np.int64)
        self._settling = Settling(task, self._rows, self.current)
        self._settling.at(self._table.arrays)
        self._tickets: tuple[NDArray[np.int64], BoundUnit] = self._work, _bind_ticket(self._work)
        compile_waiting()
        self._begun = False
        self._seed: int | None = None  # of the next reset, where it is not the one that the environments were made with

    def run(self, pace: Pace, first: int) -> Outcome:
        """Every copy takes `pace.rounds` steps; where the table is full, it grows in between."""
        begun = perf_counter()
        self.current.tally[:] = 0.0
        self._table.grow(2 * self.num_envs)
        self.begin(pace.rate)
        done = 0
        while done < pace.rounds:
            self._table.grow(4 * self.num_envs)
            fullest = self._table.capacity - 2 * self.num_envs if self._table.sparse else NO_LIMIT
            self._work[TICKET] = done
            self.take_rounds(pace._replace(chunk=pace.rounds, fullest=fullest), self._work)
            if self.current.tally[FAULT]:
                break
            done = int(self.current.tally[ROUNDS])
        self.meter.add(perf_counter() - begun)
        return outcome_of([self.current], first, self.num_envs)

    def begin(self, rate: float) -> None:
        """The first episodes begin, unless they did; the table has room for what is seen."""
        if self._begun:
            return
        self.current.window[:] = np.zeros((), self.current.window.dtype)
        self._envs.reset(seed=self._seed)
        for array, source in self._copied:
            array[...] = source
        self._settling.begin(self._table.arrays, rate)
        self._begun, self._seed = True, None

    def remembered(self) -> NDArray[np.uint64]:
        """The places of steps that are still to be learnt from."""
        return places_in(self.current.window)

    def take_rounds(self, pace: Pace, work: NDArray[np.int64]) -> None:
        """Take rounds until all are taken, the table is full, or something went wrong; others may take some as well."""
        begun, counters = now(), self.current.counters
        self._take_rounds(pace, work)
        counters[WHOLE] += now() - begun
        counters[[ROUND, ROUND + TIMED]] = 1  # what was timed is scaled up to the whole, whatever its share was

    def _take_rounds(self, pace: Pace, work: NDArray[np.int64]) -> None:
        envs, rows, copied, table = self._envs, self._rows, self._copied, self._table.arrays
        tally, counts, counters = self.current.tally, table.counts, self.current.counters
        settle, moment = self._settling.at(table), self._settling.moment
        pace = typed(pace, self._table.dtype)
        kind, single = type(pace.step), np.float32
        if work is not self._tickets[0]:
            self._tickets = work, _bind_ticket(work)
        ticket = self._tickets[1]
        while (first := ticket(0, 0, pace.chunk)) < pace.rounds:
            for t in range(first, min(first + pace.chunk, pace.rounds)):
                if counts[ROWS_USED] > pace.fullest or work[TICKET] >= NO_LIMIT:
                    return
                timed, begun = t % EVERY == 0, now()
                np.add(rows.action, self._first_action, out=envs.arrays.actions)
                self._begun = False  # unless the step succeeds: else new episodes begin the next time
                envs.advance()
                self._begun = True
                for array, source in copied:
                    array[...] = source
                if timed:
                    counters[TIMING] = 1
                    counters[ENVIRONMENT] += now() - begun
                step, rate = kind(pace.step + t * pace.step_change), single(pace.rate + t * pace.rate_change)
                moment[0] = pace.gamma, step, rate
                settle(0, self.num_envs, t)
                if timed:
                    counters[TIMING] = 0
                tally[ROUNDS] += 1
                if tally[FAULT]:
                    return

    def settle(self) -> None:
        """The agent's table is the one that is learnt into."""

    def take(self) -> None:
        """Where rows lie elsewhere now, new episodes begin."""
        if self._table.sparse:
            self._begun = False

    def state(self) -> dict[str, NDArray[Any]]:
        """The random streams; what Gymnasium's environments are in the middle of cannot be saved."""
        return {"policy.rng": self._rng.copy()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on with new episodes: their seeds come from the streams, so that no episode is repeated."""
        if "policy.rng" not in state:
            return
        self._rng[:] = state["policy.rng"]
        self._begun, self._seed = False, int(self._rng[0, 0] >> np.uint64(33))

    def close(self) -> None:
        """Close the environments."""
        self._envs.close()


def rows_over(arrays: Arrays, task: TabularTask) -> tuple[Rows, list[tuple[NDArray[Any], NDArray[Any]]]]:
    """What the copies say, as the stages see it: their own arrays where that can be, and what has to be copied from."""
    count, copied = len(arrays.rewards), []

    def digits(nested: Nested) -> NDArray[Any]:
        leaves: list[NDArray[Any]] = []
        map_arrays(lambda leaf: leaves.append(leaf.reshape(count, -1)) or leaf, nested)
        if len(leaves) == 1:
            return as_rows(leaves[0])
        whole = np.zeros((count, len(task.states.sizes)), np.int64)
        stops = np.cumsum([leaf.shape[1] for leaf in leaves]).tolist()
        copied.extend((whole[:, stop - leaf.shape[1] : stop], leaf) for stop, leaf in zip(stops, leaves, strict=True))
        return as_rows(whole)

    reward = np.zeros(count, np.float32)
    copied.append((reward, arrays.rewards))
    return Rows(
        observation=digits(arrays.observations),
        final_observation=digits(arrays.final_observations),
        mask=as_rows(arrays.action_masks if task.masked else np.ones((count, 1), np.int8)),
        final_mask=as_rows(arrays.final_masks if task.masked else np.ones((count, 1), np.int8)),
        action=np.zeros(count, np.int64),  # from 0, whatever the first one of the environment is
        reward=reward,
        terminated=arrays.terminated,
        truncated=arrays.truncated,
        episode_return=arrays.episode_returns,
        episode_length=arrays.episode_lengths,
        final_state=np.zeros(1, np.int8),
    ), copied


def _bind_ticket(work: NDArray[np.int64]) -> BoundUnit:
    """A unit, not a loop: to load a loop, numba gets ready to compile, which takes a process half a second."""
    return bind_unit(take_ticket, (work,), learning_translator("table"), disjoint=False)


def take_ticket(arguments, first, stop, place):  # noqa: ARG001 - as every unit
    """The first of so many rounds (`place`) that nobody else takes."""
    (work,) = arguments
    return fetch_add(work, TICKET, place)
