"""Off-policy learning on CPU threads: steps, replay buffer and updates are one compiled iteration.

The calling thread steps the environments, stores transitions and draws batches; a team shares the updates.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.backends.cpu.lowering import Iteration
from velocirl.buffers.frames_converted import to_observations
from velocirl.buffers.making import make_buffer
from velocirl.buffers.n_step import cut_off
from velocirl.buffers.records import transition_type
from velocirl.engine import random
from velocirl.engine.compiler.counters import WHOLE, Meter, clear, read
from velocirl.engine.compiler.python_units import PythonUnit
from velocirl.engine.compiler.units import BoundUnit
from velocirl.engine.disk.saved import named, within
from velocirl.learners.block.decisions import Decisions, decision_units
from velocirl.learners.block.memory import BlockMemory
from velocirl.learners.block.replay_units import begin_round, end_round, updates_due
from velocirl.learners.block.step_units import Course, step_units
from velocirl.learners.counting.phases import (
    LEARNING,
    ROLLOUT_COUNTS,
    STEPPING,
    UPDATE_COUNTS,
    add,
    add_parts,
)  # fmt: skip
from velocirl.learners.counting.reporting import latest_of_all
from velocirl.learners.faults import check_faults
from velocirl.learners.learner import Report
from velocirl.learners.pace import Pace, group_of
from velocirl.learners.rows.experience import of_fleet
from velocirl.learners.rows.frames import room_of
from velocirl.learners.rows.host import HostExperience
from velocirl.learners.rows.recorded import Recorded
from velocirl.learners.rows.recording import Log
from velocirl.learners.saved import SUMS
from velocirl.learners.sharing import sharing_of_memory
from velocirl.learners.task import Task
from velocirl.program.iteration import Operations
from velocirl.program.replay import replay, step
from velocirl.vector.native import FleetVectorEnv


class BlockReplay(BlockMemory):
    """Steps all copies, remembers and learns; everything is done when `iterate` returns."""

    def __init__(self, task: Task, most_steps: int) -> None:
        config, part, size = task.config, task.part, task.reducer.size
        self._recent, copies = task.recent, part.copies
        kind = transition_type(task.encoding.inputs, task.action, task.stored)
        self.task = task
        self.envs = self._make_copies()
        sharing = sharing_of_memory(config.num_envs, config.effective_batch_size, size)
        buffer = make_buffer(config, kind, task.seeds.learner, copies)
        super().__init__(task, buffer, sharing, group=min(group_of(config), copies))
        self._meter = Meter(self.phases, "rollout", self._count)
        self._rng = random.streams(task.seeds.policy, copies, part.first)
        self._noise = np.zeros((copies, task.head.action_size), np.float32)
        ends = (1, most_steps, copies)
        self._log = Log(np.zeros(ends, np.int32), np.zeros(ends, np.float32), np.zeros(ends, np.int32),
                        np.zeros(copies, np.int32))  # fmt: skip
        self._reported = np.zeros((task.report_rows, *ends), np.float32)
        self._sums = np.zeros((copies, 1 + len(task.constraints)))
        self._host: HostExperience | None = None
        self.decisions = self._decision_units()
        self._iteration = self._lower()
        self._begin()
        self.take()

    @property
    def fleet(self) -> FleetVectorEnv | None:
        """The copies, where they are compiled."""
        return self.envs if isinstance(self.envs, FleetVectorEnv) else None

    def iterate(self, schedule: Pace, steps: int) -> Report:
        """Every copy takes `schedule.rounds` steps, after which the run has taken `steps`; what is due is learnt."""
        log, networks, task = self._log, self.networks, self.task
        before, first = int(self._updates[0]), steps - schedule.rounds * task.config.num_envs
        log.fault[:] = 0
        self.begin(schedule)
        begun = perf_counter()
        self._run(first, schedule)
        self.buffer.tidy()
        self.compare_priorities()
        self._meter.add(perf_counter() - begun)
        check_faults(log.fault, first, task.part.first, task.config.num_envs)
        self.check(steps)
        updates = int(self._updates[0]) - before
        taken = [one[:, : schedule.rounds] for one in (log.ends, log.returns, log.lengths, *self._reported)]
        names, reducer = task.report, task.reducer
        told = latest_of_all(taken[0], self._recent, reducer, task.part.first, *taken[1 : 3 + len(names)])
        returns, lengths, *reported = told
        violations = np.array([sum(one.sum() for one in taken[3 + len(names) :])], np.float64)
        if task.constraints:
            reducer.sum(violations)
        return Report(
            steps=steps,
            learning_rate=schedule.learning_rate,
            means=self.program.means(),
            gradient_norm=networks.mean_norm(),
            minibatches=updates,
            optimiser_steps=before + updates,
            explained_variance=float("nan"),
            returns=returns,
            lengths=lengths,
            reported=dict(zip(names, reported, strict=True)),
            violations=int(violations[0]),
        )

    def prefill(self, data: Recorded) -> int:
        """Remember what others recorded; of several processes, each what would be that of its copies.

        Returns the number of transitions of all processes.
        """
        config, buffer, reducer = self.task.config, self.buffer, self.task.reducer
        rows = data.fill(buffer.rows.dtype, group_of(config), apart=config.n_step > 1)
        buffer.add(rows if reducer.size == 1 else self.sharing.of_ring(rows, reducer.rank))
        return len(rows)

    def drain(self) -> None:
        """Nothing is ever under way."""
        self._meter.fold()

    def state(self) -> dict[str, NDArray[Any]]:
        """The memory, the networks and optimisers, the copies and every random stream."""
        rows = self.buffer.rows[: len(self.buffer)]  # as they lie: a checkpoint writes the new ones only
        memory = named("memory", {"rows": rows, **self.buffer.bookkeeping()})
        experience = self._experience_state()
        own = {name: array.copy() for name, array in self.arrays().items()}
        return {**own, **memory, **experience}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a saved state."""
        self.buffer.load_state(self._memory_of(state))
        self.load_arrays(self.arrays(), state)
        self._load_experience(state)
        self.take()

    def _memory_of(self, state: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The memory of a state; what another learner has stored frame by frame, as networks here read it."""
        memory, task, buffer = within("memory", state), self.task, self.buffer
        if (frames := task.source.stored) is None or "edges" not in memory:
            return memory
        room, factor = room_of(frames, task.source, task.config), task.encoding.pixel_factor
        own = {name: memory[name] for name in buffer.bookkeeping() if name in memory}
        return {**own, **to_observations(memory, room, buffer.rows.dtype, factor)}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What decides the next steps and updates beside the memory and the copies, as the arrays themselves."""
        sums = {SUMS: self._sums} if self.task.decisions else {}
        return {"policy.rng": self._rng, "policy.noise": self._noise, **sums, **super().arrays()}

    def _make_copies(self) -> Any:
        """The copies to learn from."""
        task, part = self.task, self.task.part
        seed, workers = task.seeds.environment, task.config.workers
        return task.source.make_copies(part.copies, seed=seed, threads=1, workers=workers, first=part.first)

    def _lower(self) -> Iteration:
        """Lower the iteration: steps, and the updates that are due after each one."""
        task, bind = self.task, self.networks.bind
        every = task.config.num_envs
        units = {
            **self._step_units(),
            "begin_round": bind(begin_round, self._pace, self._clock, self._exploration),
            "end_round": bind(end_round, every),
            "updates_due": bind(updates_due, self._pace, every),
        }
        return self.iteration(replay(self._step(), self.updates), units)

    def _step(self) -> Operations:
        return step()

    def _step_units(self) -> dict[str, BoundUnit]:
        """Bind the units of a step of all environments: a compiled fleet, or Gymnasium's."""
        task = self.task
        course = Course(
            self.buffer.rows, self.buffer.counts, self._rng, self._noise, self._clock, self._exploration, self._log,
            self._reported, self._sums if task.decisions else None,
        )  # fmt: skip
        if isinstance(self.envs, FleetVectorEnv):
            target: Any = self.envs.target
            units = step_units(task, self.networks, of_fleet(self.envs.copies), course)
            return {**units, "advance": target.advance_unit}
        self._host = HostExperience(self.envs, task.head, costs=task.reads_costs)
        return step_units(task, self.networks, self._host.arrays, course)

    def _decision_units(self) -> list[tuple[Any, int]]:
        """What is decided before updates: by several processes in Python, as these have to meet."""
        task, sums = self.task, self._sums
        if not task.decisions or task.reducer.size == 1:
            return decision_units(task, self.networks, sums)
        decisions = Decisions(task, self.networks.numbers)

        def decide(first: int, stop: int, place: int) -> None:  # noqa: ARG001 - as every unit
            if decisions.decide(sums.sum(0)):
                sums[...] = 0.0

        self.program.outside.append(deciding := PythonUnit(decide))
        return [(deciding, len(sums))]

    def _begin(self) -> None:
        """Let the first episodes begin; those of Gymnasium's do with the first step."""
        if self._host is None:
            self.envs.reset()

    def _run(self, first: int, pace: Pace) -> None:
        """Run the iteration; environments of Gymnasium's step in between."""
        iteration = self._iteration
        iteration["step"], iteration["rounds"] = first, pace.rounds
        if self._host is not None:
            self._host.begin()
        self.program.run(iteration.start, 0, 0)
        while iteration.waits:
            self._fetch(iteration)
            self.program.run(iteration.resume, 0, 0)

    def _fetch(self, iteration: Iteration) -> None:  # noqa: ARG002 - of those who need to know how far it is
        """Let environments that are no fleet take a step."""
        assert self._host is not None  # noqa: S101 - or nobody asks
        self._host.step()

    def _experience_state(self) -> dict[str, NDArray[Any]]:
        """The copies; what Gymnasium's environments are in the middle of cannot be saved."""
        if self._host is not None:
            return {}
        return named("fleet", self.envs.get_state())

    def _load_experience(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on where the copies were; with new episodes, their seeds come from the policy's streams."""
        if self._host is None:
            self.envs.set_state(within("fleet", state))
        else:
            cut_off(self.buffer.rows, self.buffer.counts, self.group)
            self._noise[...] = 0.0
            self._host.begin_anew(int(self._rng[0, 0] >> np.uint64(33)))

    def _count(self, seconds: float) -> None:
        """Add what was counted to the phases."""
        row = self.program.counters[0]
        row[STEPPING] = row[WHOLE] - row[LEARNING]
        learning = min(float(row[LEARNING]) * 1e-9, seconds)
        rollout, update = read([row], ROLLOUT_COUNTS, STEPPING), read([row], UPDATE_COUNTS, LEARNING)
        clear(self.program.counters)
        if rollout:
            for parent, spent, parts in (("rollout", seconds - learning, rollout), ("update", learning, update)):
                add(self.phases, parent, spent)
                add_parts(self.phases, parent, spent, parts)
