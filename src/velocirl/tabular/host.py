"""Tabular learning in Gymnasium environments: compiled choices and updates, steps in Python."""

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

EVERY = 7  # 1 of 7 rounds is timed: a step in Python may take a few microseconds


class HostLearner:
    """Learner whose Gymnasium environments step one after another in this process."""

    grain = 0  # a call may be short: no minimum of steps

    def __init__(self, task: TabularTask, envs: VectorEnv, seed: int, first: int = 0) -> None:
        """Set up for `envs`; `first` is the number of the first one if they are part of a larger set."""
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
        self._seed: int | None = None  # of the next reset, if it differs from the environments' own seed

    def run(self, pace: Pace, first: int) -> Outcome:
        """Take `pace.rounds` steps in every environment. A full table grows in between. Returns the result."""
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
        """Begin the first episodes unless they have begun; the table must have room for the states seen."""
        if self._begun:
            return
        self.current.window[:] = np.zeros((), self.current.window.dtype)
        self._envs.reset(seed=self._seed)
        for array, source in self._copied:
            array[...] = source
        self._settling.begin(self._table.arrays, rate)
        self._begun, self._seed = True, None

    def remembered(self) -> NDArray[np.uint64]:
        """Return the rows of steps that are still to be learned from."""
        return places_in(self.current.window)

    def take_rounds(self, pace: Pace, work: NDArray[np.int64]) -> None:
        """Take rounds until all are taken, the table is full, or a fault occurs; processes may share the `work`."""
        begun, counters = now(), self.current.counters
        self._take_rounds(pace, work)
        counters[WHOLE] += now() - begun
        counters[[ROUND, ROUND + TIMED]] = 1  # the timed part is scaled up to the whole, whatever its fraction was

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
                self._begun = False  # stays so if the step fails: new episodes begin the next time
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
        """Do nothing: the learner works on the agent's table itself."""

    def take(self) -> None:
        """Begin new episodes if the table is sparse, as its rows may have moved."""
        if self._table.sparse:
            self._begun = False

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the random streams; running episodes of Gymnasium environments cannot be saved."""
        return {"policy.rng": self._rng.copy()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue with new episodes; their seeds come from the streams, so that no episode repeats."""
        if "policy.rng" not in state:
            return
        self._rng[:] = state["policy.rng"]
        self._begun, self._seed = False, int(self._rng[0, 0] >> np.uint64(33))

    def close(self) -> None:
        """Close the environments."""
        self._envs.close()


def rows_over(arrays: Arrays, task: TabularTask) -> tuple[Rows, list[tuple[NDArray[Any], NDArray[Any]]]]:
    """Return the environments' arrays as the stages read them, and (target, source) pairs to copy after each step."""
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
        action=np.zeros(count, np.int64),  # from 0, whatever the environment's first action is
        reward=reward,
        terminated=arrays.terminated,
        truncated=arrays.truncated,
        episode_return=arrays.episode_returns,
        episode_length=arrays.episode_lengths,
        final_state=np.zeros(1, np.int8),
    ), copied


def _bind_ticket(work: NDArray[np.int64]) -> BoundUnit:
    """Bind `take_ticket` as a unit: loading a loop would make numba prepare to compile, half a second per process."""
    return bind_unit(take_ticket, (work,), learning_translator("table"), disjoint=False)


def take_ticket(arguments, first, stop, place):  # noqa: ARG001 - as every unit
    """Claim the next `place` rounds. Returns the first of them."""
    (work,) = arguments
    return fetch_add(work, TICKET, place)
