"""Learning from a memory in whole batches: in Python, with torch, or on a GPU as CUDA graphs that the host only starts.

On a GPU there is a graph for a step of the fleet, one for a step by random actions, and one for each kind of update. An
iteration is under way when `iterate` returns; its report is read when the next one has been started.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import NDArray

from velocirl.learners.batch.decisions import Decisions
from velocirl.learners.batch.memory import BatchMemory
from velocirl.learners.batch.reports import Pending, Reports
from velocirl.learners.batch.steps import make_steps
from velocirl.learners.collectors.consolidating import Batch
from velocirl.learners.counting.phases import add
from velocirl.learners.learner import Report
from velocirl.learners.pace import ANY_PACE, Pace, group_of, updates_due
from velocirl.learners.rows.recorded import Recorded
from velocirl.learners.saved import SUMS
from velocirl.learners.sharing import Sharing, sharing_of_memory
from velocirl.learners.task import Task

# Rounds of which one is timed: those that leave some in an iteration. Primes, to be in step with no schedule.
STRIDES, TIMED_ROUNDS = (1, 7, 13, 31, 61, 127, 251, 509, 1021), 8


class BatchReplay(BatchMemory):
    """Steps all copies, remembers and learns."""

    def __init__(self, task: Task, device: Any, most_steps: int) -> None:
        super().__init__(task, device)
        self.steps = make_steps(task, device, self._make_acting(), self.ring, most_steps)
        self.reports = Reports(self.networks, self.program, self.steps.log, self.steps.reported, None, 1)
        self._warm_up: Callable[[], None] = self.steps.warm_up
        self._step: Callable[[], None] = self.steps.step
        self._gather: Callable[[], None] = self.reports.gather
        self._decide: Callable[[], None] = self._bind_decisions()
        self.begin_networks()
        device.synchronise()

    @property
    def envs(self) -> Any:
        """The environments, where Python steps them."""
        return getattr(self.steps, "envs", None)

    @property
    def fleet(self) -> Any:
        """The copies, where they are compiled."""
        return getattr(self.steps, "fleet", None)

    def gauges(self) -> dict[str, float]:
        """What is known of the device, and of collectors where there are some."""
        collected = getattr(self.steps, "collected", None)
        return super().gauges() if collected is None else {**super().gauges(), **collected.gauges()}

    def take(self) -> None:
        """Go on from the agent's own arrays; collectors do, too."""
        super().take()
        if (collected := getattr(self.steps, "collected", None)) is not None:
            collected.change()

    def prepare(self) -> None:
        """Where the device has graphs: run everything once, record it, and go back to where it began."""
        if not self.device.captures:
            return
        before = self.state()
        with self.device.at_work_first():
            self._begin(ANY_PACE, 0)
            if self.steps.in_kernels:
                self._try_steps()
            else:  # whose episodes could not be taken back: records of nothing do as well
                self.ring.advance()
            self._decide()
            for kind in self.task.program.kinds_of_updates():
                self._update(kind)
            self._gather()
            self.wait()
            if self.steps.in_kernels:
                self._capture_steps()
                self._gather = self.device.capture(self._gather)
            if self.task.decisions and not self.steps.on_host:
                self._decide = self.device.capture(self._decide)
            self._capture_updates()
        self.take()
        self._load(before, episodes=self.steps.in_kernels)

    def run(self, schedule: Pace, steps: int) -> Pending:
        """Take steps, and learn whenever an update is due."""
        began = self.device.mark()
        first = steps - schedule.rounds * self.task.config.num_envs
        self._begin(schedule, first)
        laps = self._take_rounds(schedule, first)
        self._gather()
        host = self.reports.send()
        return Pending(steps, first, schedule.learning_rate, host, (began, self.device.mark(), laps))

    def _take_rounds(self, pace: Pace, first: int) -> list[tuple[Any, ...]]:
        """All steps of an iteration and the updates that are due; gives moments of some of the rounds."""
        step, copies, mark = first, self.task.config.num_envs, self.device.mark
        laps: list[tuple[Any, ...]] = []
        if not self.steps.by_rounds:
            began = mark()
            self.steps.run_free(self, pace, first)
            return [(began, began, mark())]
        stride = stride_of(pace.rounds)
        for t in range(pace.rounds):
            timed = t % stride == stride // 2
            before_step = mark() if timed else None
            self._take_step(step, pace)
            step += copies
            after_step = mark() if timed else None
            due = updates_due(step, copies, pace)
            self._learn(due)
            self.steps.learnt(due)
            if timed:
                laps.append((before_step, after_step, mark()))
        return laps

    def _learn(self, updates: int) -> None:
        """So many updates, after what is decided by the episodes that ended."""
        if updates:
            self._decide()
        super()._learn(updates)

    def _bind_decisions(self) -> Callable[[], None]:
        """What is called once before updates."""
        if not self.task.decisions:
            return lambda: None
        decisions = Decisions(self.task, self.device, self.networks, 1)
        again = decisions.deciding_on_host if self.steps.on_host else decisions.deciding_again
        return again(self.steps.sums)

    def _take_step(self, step: int, pace: Pace) -> None:
        """One step of all copies."""
        self.steps.explore(step, pace)
        if step < pace.learning_starts:
            self._warm_up()
        else:
            self._step()

    def prefill(self, data: Recorded) -> int:
        """Remember what others recorded; of several processes, each what would be that of its copies.

        Returns the number of transitions of all processes.
        """
        config = self.task.config
        rows = data.fill(self.ring.kind, group_of(config), apart=config.n_step > 1)
        remembered = len(rows)
        if self.task.reducer.size > 1:
            rows = self.sharing.of_ring(rows, self.task.reducer.rank)
        self.wait()
        self.ring.fill(rows)
        return remembered

    def improve(self, step: int, count: int) -> None:  # noqa: ARG002 - the device counts
        """So many updates from what is remembered."""
        self._learn(count)

    def enter(self, batch: Batch, position: int) -> None:
        """Remember a batch of collectors, the first of which is this iteration's so many-th transition."""
        self.steps.enter(batch, position)

    def drain(self) -> Report | None:
        """Wait for the iteration that is under way; collectors rest."""
        if (collected := getattr(self.steps, "collected", None)) is not None:
            collected.pause()
        return super().drain()

    def close(self) -> None:
        """End the collectors, where there are some."""
        if (collected := getattr(self.steps, "collected", None)) is not None:
            collected.close()

    def iterate(self, schedule: Pace, steps: int) -> Report | None:
        """Start an iteration; where that fails, collectors end."""
        try:
            return super().iterate(schedule, steps)
        except BaseException:
            self.close()
            raise

    def state(self) -> dict[str, Any]:
        """The memory, the networks and optimisers, the copies and every random stream."""
        self.look()
        self.wait()
        own = {**self.learnt_state(), **self.ring.state(), **self.steps.state()}
        return {**own, SUMS: self._sums_device.fetch(self.steps.sums)} if self.task.decisions else own

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a saved state."""
        self._load(state, episodes=True)

    def _load(self, state: Mapping[str, NDArray[Any]], *, episodes: bool) -> None:
        self.wait()
        self.load_learnt(state)
        self.ring.load_state(state, episodes_begin=episodes and not self.steps.in_kernels)
        if episodes:
            self.steps.load_state(state)
        if self.task.decisions:
            self._sums_device.store(self.steps.sums, state[SUMS])
        self.device.synchronise()

    @property
    def _sums_device(self) -> Any:
        """Where episodes are added up."""
        return self.device.on_host() if self.steps.on_host else self.device

    def _make_sharing(self) -> Sharing:
        config = self.task.config
        return sharing_of_memory(config.num_envs, config.effective_batch_size, self.task.reducer.size)

    def _make_acting(self) -> Any:
        """The network that takes the steps: the one that learns."""
        return self.networks.networks[self.task.acting]

    def _try_steps(self) -> None:
        """One step of each kind."""
        self._warm_up()
        self._step()

    def _capture_steps(self) -> None:
        """Let steps be graphs from now on."""
        self._warm_up, self._step = self.device.capture(self._warm_up), self.device.capture(self._step)

    def _begin(self, pace: Pace, step: int) -> None:
        super()._begin(pace, step)
        self.steps.begin()

    def count(self, pending: Pending) -> None:
        """Share out the seconds of an iteration as those of the rounds that were timed."""
        began, ended, laps = pending.marks
        (seconds,) = self.device.seconds_between(began, ended)  # waits for the last of them
        timed = [self.device.seconds_between(*lap) for lap in laps]
        stepping, learning = (sum(column) for column in zip(*timed, strict=True))
        update = seconds * learning / max(stepping + learning, 1e-9)
        add(self.phases, "rollout", seconds - update)
        add(self.phases, "update", update)


def stride_of(rounds: int) -> int:
    """Of so many rounds, the distance between those that are timed."""
    return max(one for one in STRIDES if one == 1 or one * TIMED_ROUNDS <= rounds)
