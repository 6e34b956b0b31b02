"""On-policy learning on any device: collect, estimate, and several epochs of updates.

With `overlap`, environments step while updates run. A rollout is then collected by the policy of one update earlier
(policy lag), which V-trace corrects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.backends.batch.overlap.background import Background
from velocirl.buffers.records import narrow
from velocirl.buffers.returns import add_spread, scale_rewards
from velocirl.collect.collectors.collected_rollouts import CollectedRollouts, ProcessCollector
from velocirl.collect.rollout_records import RolloutRecords
from velocirl.engine.compiler.columns import Grouped, Shared
from velocirl.engine.compiler.counters import Count, Meter, clear, read
from velocirl.engine.targets.launching import Work
from velocirl.learners.decisions import Decisions
from velocirl.learners.learner import BaseLearner
from velocirl.learners.reports import SPREAD, Pending, Report, Reports
from velocirl.program.counting.phases import ROLLOUT_COUNTS, UPDATE_COUNTS, add, add_parts
from velocirl.program.faults import check_faults
from velocirl.program.normalizing import REWARD_LIMIT, take_in, take_in_rewards
from velocirl.program.reducing import ALONE
from velocirl.program.schedule import Schedule
from velocirl.program.seeding import Seeds
from velocirl.program.sharing import Sharing
from velocirl.program.task import Task

SCALE = np.dtype([("reward_scale", np.float32), ("reward_limit", np.float32)])


class RolloutLearner(BaseLearner):
    """On-policy learner of one agent or of several."""

    def __init__(self, task: Task, device: Any, seeds: Sequence[Seeds], reward_moments: NDArray[np.float64]) -> None:
        """Create a learner of one agent per entry of `seeds`.

        `reward_moments` (agents, 3) are the agents' own arrays: count, mean, squared deviations.
        """
        config, agents = task.config, len(seeds)
        super().__init__(task, device, agents, scaling=config.precision == "fp16")
        network = self.networks.networks[task.acting]
        self.collector: Any
        if config.collectors is None:
            self.collector = device.make_collector(task, network.twin() if config.overlap else network, seeds)
        else:
            self.collector = ProcessCollector(task, device, network, lambda: self.epochs.done)
        self.envs, self.fleet = self.collector.envs, self.collector.fleet  # stepped by Python, or by compiled code
        self._collected: CollectedRollouts | None = self.collector.collected
        self._apart = config.overlap or (self.collector.on_host and device.name == "cuda")
        self.recorded: RolloutRecords = self.collector.recorded
        if self._apart:
            self.recorded = RolloutRecords(task, device, agents, network.state_size)
        self._background: Background | None = device.make_background(self.collector) if config.overlap else None
        self._batch = config.num_envs * config.horizon
        self.epochs = device.make_epochs(task, self.networks, self.recorded, seeds)
        self.sharing: Sharing = self.epochs.sharing  # sharding over processes
        of_rollout = partial(self._count_parts, "rollout", self.collector.counters, ROLLOUT_COUNTS)
        of_update = partial(self._count_parts, "update", self.epochs.counters, UPDATE_COUNTS)
        self._meters = Meter(self.phases, "rollout/policy", of_rollout), Meter(self.phases, "update/forward", of_update)
        self._bind_estimate(reward_moments)
        log, reported = self.recorded.log, self.recorded.reported
        self.reports = Reports(self.networks, self.epochs.program, log, reported, self._spread, self._batch)
        self._collect: Callable[[], None] = self.collector.collect
        self._start: Callable[[], None] = self._start_now
        self._gather: Callable[[], None] = self.reports.gather
        self.networks.begin_training()
        self.take()

    def gauges(self) -> dict[str, float]:
        """Return the device's metrics; with overlap or collectors, also the idle times of learner and collector."""
        beside = self._background or self._collected
        return {**super().gauges(), **({} if beside is None else beside.gauges())}

    def iterate_all(self, schedule: Schedule, steps: int) -> list[Report] | None:
        """Start an iteration; if it fails, stop the collectors."""
        try:
            return super().iterate_all(schedule, steps)
        except BaseException:
            self.close()
            raise

    def drain(self) -> Report | None:
        """Wait for the current iteration; collectors pause."""
        if self._collected is not None:
            self._collected.pause()
        if self._background is not None:
            self._background.wait()
        return super().drain()

    def fold(self) -> None:
        """Update `phases` from the counters."""
        for meter in self._meters:
            meter.fold()

    def close(self) -> None:
        """Stop the collectors, if there are any."""
        if self._collected is not None:
            self._collected.close()

    def prepare(self) -> None:
        """On a device with graphs: run one iteration, capture it, and restore the initial state."""
        if not self.device.captures:
            return
        before, capture, epochs = self.state(), self.device.capture, self.epochs
        schedule = Schedule(0.0, 1, epochs.minibatches, self.task.config.gradient_accumulation, 1, 0.0, 0.0)
        with self.device.at_work_first():
            if self.collector.in_kernels:  # episodes outside of graphs cannot be undone; empty records suffice
                self._fetch_rollout(0)
            self._start()
            epochs.try_each()
            epochs.run(schedule)
            self._gather()
            self.wait()
            if self.collector.in_kernels:
                stream = None if self._background is None else self._background.stream
                self._collect = capture(self._collect, stream)
            self._start, epochs.shuffle = capture(self._start), capture(epochs.shuffle)
            self._gather = capture(self._gather)
            epochs.capture()
        self.take()
        self._load(before, episodes=self.collector.in_kernels)

    def run(self, schedule: Schedule, steps: int) -> Pending:
        """Collect, estimate, update."""
        device, first = self.device, steps - self._batch
        self.networks.set_rates(schedule.learning_rate, schedule.max_grad_norm, schedule.max_grad_value)
        began = device.mark()
        self._fetch_rollout(first)
        collected = device.mark()
        self._start()
        if self._background is not None and device.sees_newest:
            self._begin_next(self._background)
        elif self._apart and self._background is None:
            self._show_normaliser()
        estimated = device.mark()
        self.epochs.run(schedule)
        self._gather()
        host = self.reports.send()
        marks = began, collected, estimated, device.mark()
        return Pending(steps, first, schedule.learning_rate, host, marks)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the state of the networks and the collector, and a rollout that still waits for its update."""
        self.look()
        self.wait()
        own = {**self.epochs.state(), **self.loss_scale()}
        waits = self._background is not None and self._background.holds
        waiting = self.collector.recorded.contents() if waits else {}
        return {**own, **self.networks.state(), **self.collector.state(), **waiting}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a saved state."""
        self._load(state, episodes=True)

    def give_back(self) -> None:
        """Copy the parameters and the normalization to the agent's own arrays."""
        super().give_back()
        self.task.observation_moments.state[...] = self.device.fetch(self._seen)
        self._own_rewards[...] = self.device.fetch(self._rewards)

    def take_in(self) -> None:
        """Load the parameters and the normalization from the agent's own arrays."""
        super().take_in()
        device, moments = self.device, self.task.observation_moments
        if self.task.config.overlap:
            self.collector.network.parameters_from(self.task.parameters[self.task.acting])
            self._show_statistics()
        device.store(self._seen, moments.state)
        device.store(self._rewards, self._own_rewards)
        device.store(self._centre, moments.mean.astype(np.float32))
        device.store(self._inverse_scale, moments.inverse_deviation.astype(np.float32))
        if self._apart:
            self._show_normaliser()

    def wait(self) -> None:
        """Wait until everything that was started is done."""
        if self._background is not None:
            self._background.wait()
        self.device.synchronise()

    def count(self, pending: Pending) -> None:
        """Count the seconds of each phase."""
        seconds = self.device.seconds_between(*pending.marks)
        for name, spent in zip(("rollout", "estimate", "update"), seconds, strict=True):
            add(self.phases, name, spent)
        for meter, spent in zip(self._meters, seconds[::2], strict=True):
            meter.add(spent)

    def _count_parts(self, phase: str, counters: Any, counts: Sequence[Count], seconds: float) -> None:
        """Count the known parts of a phase that took `seconds`."""
        add_parts(self.phases, phase, seconds, read(counters, counts))
        clear(counters)

    def _start_now(self) -> None:
        """Update the normalization from the rollout, estimate, and reset the counts."""
        recorded, config = self.recorded, self.task.config
        if config.normalise_rewards:
            self._sum_over_copies(recorded.reward_sums, self._reward_sums)
            self._take_in_rewards(0)
        self._estimate()
        self._decide()
        if self._spread is not None:
            self._sum_over_copies(self._spreads, self._spread)
        if self.task.encoding.normalises:
            sums = recorded.observation_sums
            self._sum_over_copies(sums.reshape(len(sums), -1), self._seen_sums.reshape(1, -1))
            self._take_in(0)
        self.epochs.begin()
        self.networks.begin()

    def _sum_over_copies(self, rows: Any, into: Any) -> None:
        """Sum rows over the environments of all ranks."""
        self.device.sum_rows(rows, into)
        self.networks.reduce(into)

    def _fetch_rollout(self, first: int) -> None:
        """Provide a rollout to learn from, begun after `first` steps; with overlap, also start the next one."""
        background = self._background
        if background is None:
            self._collect()
            self._check(first)
            if self._apart:
                self.recorded.take_over(self.collector.recorded)
            return
        if not background.full:
            background.start(self._collect)
        background.join()
        self._check(first)
        self.recorded.take_over(self.collector.recorded)
        if not self.device.sees_newest:
            self._begin_next(background)

    def _begin_next(self, background: Background) -> None:
        """Start the next rollout with the current network and normalization."""
        self._show_normaliser()
        self.device.copy_network(self.collector.network, self.networks.networks[self.task.acting])
        background.start(self._collect)

    def _check(self, first: int) -> None:
        """Raise for a non-finite value in the rollout; on a GPU or with several ranks, the report does so later."""
        if not self.device.reports_late and self.task.reducer is ALONE:
            check_faults(self.device.fetch(self.collector.recorded.log.fault), first)

    def _show_statistics(self) -> None:
        """Copy the batch norm statistics to the collector's own network."""
        learnt = self.networks.networks[self.task.acting]
        if learnt.takes_statistics:
            self.collector.network.buffers_from(learnt)

    def _show_normaliser(self) -> None:
        """Copy the normalization to a collector that has its own arrays."""
        if self.task.encoding.normalises:
            here = self.device.on_host() if self.collector.on_host else self.device
            here.copy(self.collector.centre, self._centre)
            here.copy(self.collector.inverse_scale, self._inverse_scale)

    def _bind_estimate(self, reward_moments: NDArray[np.float64]) -> None:
        """Bind the operations between a rollout and the update."""
        task, device, agents, recorded = self.task, self.device, self.agents, self.recorded
        config, inputs, launch = task.config, task.encoding.inputs, self.device.launch
        rows, estimates = narrow(recorded.records), [recorded.columns_for(*one) for one in task.estimates]
        self._spread = None
        if task.explained is not None:
            self._spreads = device.zeros(len(rows), SPREAD, dtype=np.float64)
            self._spread = device.zeros(agents, SPREAD, dtype=np.float64)
            estimates.append((add_spread, (*(rows[name] for name in task.explained), self._spreads)))
        self._bind_decisions()
        self._own_rewards = reward_moments
        self._rewards = device.zeros(agents, 3, dtype=np.float64)
        self._reward_sums = device.zeros(agents, 2, dtype=np.float64)
        if config.normalise_rewards:
            scale = device.put(np.array([(1.0, REWARD_LIMIT)] * agents, SCALE))
            arguments = self._rewards, self._reward_sums, self._batch, scale
            self._take_in_rewards = launch([Work(take_in_rewards, arguments)], agents)
            of_agent = Shared(scale) if agents == 1 else Grouped(scale, task.part.copies)
            estimates.insert(0, (scale_rewards, (rows["reward"], of_agent)))
        self._estimate = device.over_copies(estimates, len(rows))
        self._seen = device.zeros(3, inputs, dtype=np.float64)
        self._seen_sums = device.zeros(2, inputs, dtype=np.float64)
        centre, inverse_scale = device.zeros(inputs), device.zeros(inputs)
        apart = self._apart
        self._centre = centre if apart else self.collector.centre
        self._inverse_scale = inverse_scale if apart else self.collector.inverse_scale
        if task.encoding.normalises:
            arguments = self._seen, self._seen_sums, self._batch, self._centre, self._inverse_scale
            self._take_in = launch([Work(take_in, arguments)], inputs)

    def _bind_decisions(self) -> None:
        """Bind the functions that are called once after a rollout, with the episodes that ended in it."""
        task, recorded = self.task, self.recorded
        self._decide: Callable[[], None] = lambda: None
        if not task.decisions:
            return
        decisions = Decisions(task, self.device, self.networks, self.agents)
        sums, add_up = self.device.summing_episodes(recorded.log.ends, task.costs_of(recorded.reported))

        def run() -> None:
            add_up()
            decisions.decide(sums)

        self._decide = run

    def _load(self, state: Mapping[str, NDArray[Any]], *, episodes: bool) -> None:
        self.wait()
        self.networks.load_state(state)
        if episodes:
            self.collector.load_state(state)
        self.epochs.load_state(state)
        self.load_loss_scale(state)
        if self._background is not None:
            self._background.full = self.collector.recorded.load_contents(state)
        self.device.synchronise()
