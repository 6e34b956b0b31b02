"""Learning from rollouts in whole batches: in Python, with torch, or on a GPU as CUDA graphs that the host only starts.

Every epoch and minibatch is a fixed sequence of work. What an update decides as it goes it decides on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import gcd, isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.records import narrow
from velocirl.buffers.returns import add_spread, scale_rewards
from velocirl.engine import random
from velocirl.engine.compiler.columns import Grouped, Indexed, Shared
from velocirl.engine.targets.launching import Work, by_row
from velocirl.learners.batch.collected_rollouts import BatchCollected
from velocirl.learners.batch.collector import BatchCollector, Recorded
from velocirl.learners.batch.decisions import Decisions
from velocirl.learners.batch.learner import BatchLearner
from velocirl.learners.batch.minibatches import Extent, Minibatches
from velocirl.learners.batch.networks import FAULT, GATHERED, LEARNING_RATE, MINIBATCHES, STOPPED
from velocirl.learners.batch.overlap.background import Background
from velocirl.learners.batch.pictures.frames import make_stacks
from velocirl.learners.batch.program import BatchProgram, Rows
from velocirl.learners.batch.reports import SPREAD, Pending, Reports
from velocirl.learners.collectors.collected_rollouts import CollectedRollouts
from velocirl.learners.counting.episodes import add_episodes
from velocirl.learners.counting.phases import add
from velocirl.learners.learner import Report
from velocirl.learners.normalising import REWARD_LIMIT, take_in, take_in_rewards
from velocirl.learners.rows.frames import find_sample
from velocirl.learners.schedule import Schedule
from velocirl.learners.seeding import Seeds
from velocirl.learners.sharing import Sharing, sharing_of_rollouts
from velocirl.learners.task import Task

SCALE = np.dtype([("reward_scale", np.float32), ("reward_limit", np.float32)])


def begin_update(s, r, t, clock):  # noqa: ARG001 - every function of an index has the same first arguments
    """Count from nothing."""
    for name in (FAULT, STOPPED, GATHERED, MINIBATCHES):
        clock.counts[s, name] = 0


class BatchRollout(BatchLearner):
    """Collects, estimates and updates, for one agent or for several."""

    def __init__(self, task: Task, device: Any, seeds: Sequence[Seeds], reward_moments: NDArray[np.float64]) -> None:
        """`reward_moments` (agents, 3) are the agents' own: count, mean, squared deviations."""
        config, agents = task.config, len(seeds)
        super().__init__(task, device, agents, scaling=config.precision == "fp16")
        network = self.networks.networks[task.acting]
        self.collector: Any
        if config.collectors is None:
            self.collector = BatchCollector(task, device, network.twin() if config.overlap else network, seeds)
        else:
            self.collector = BatchCollected(task, device, network, lambda: self.done)
        self._apart = config.overlap or (self.collector.on_host and device.name == "cuda")
        self.recorded = Recorded(task, device, agents, network.state_size) if self._apart else self.collector.recorded
        self._background: Background | None = device.make_background(self.collector) if config.overlap else None
        unit = config.horizon if network.state_size or config.minibatches == "environments" else 1
        self._batch, part = config.num_envs * config.horizon, task.part
        # Of each process as many units: all its minibatches are equally large, and each is its part of one of all.
        common = gcd(*part.all_copies) * config.horizon // unit
        self._minibatches = nearest_divisor(common, min(config.num_minibatches, common))
        units = part.copies * config.horizon // unit
        rows = units // self._minibatches * unit
        extent = Extent(agents, part.copies, config.horizon, rows, units, unit)
        self._drawing = Minibatches(device, extent, self.clock, [one.learner for one in seeds], part.first_thread)
        self._streams = self._make_streams(seeds)
        batch = self._batch // self._minibatches
        self.program = BatchProgram(task.program, self.networks, self._rows(self._drawing.drawn), rows, batch=batch)
        self._before = None
        if task.before_epoch is not None:
            in_order = self._rows(self._drawing.in_order)
            self._before = BatchProgram(
                task.before_epoch, self.networks, in_order, rows, like=self.program, batch=batch
            )
        self._begin_update = device.launch([Work(begin_update, (self.clock,))], agents)
        self._reestimates = [self._bind_column(*one) for one in task.reestimates]
        self._bind_estimate(reward_moments)
        recorded = self.recorded
        self.reports = Reports(self.networks, self.program, recorded.log, recorded.reported, self._spread, self._batch)
        self._collect: Callable[[], None] = self.collector.collect
        self._start: Callable[[], None] = self._start_now
        self._shuffle: Callable[[], None] = self._drawing.shuffle
        self._reestimate: Callable[[], None] = self._reestimate_now
        self._gather: Callable[[], None] = self.reports.gather
        self._updates: dict[tuple[frozenset[str], bool, bool], Callable[[], None]] = {}
        self.begin_networks()
        self.take()

    @property
    def envs(self) -> Any:
        """The environments, where Python steps them."""
        return getattr(self.collector, "envs", None)

    @property
    def fleet(self) -> Any:
        """The copies, where they are compiled."""
        return self.collector.fleet

    @property
    def sharing(self) -> Sharing:
        """Who has what where several processes train."""
        return sharing_of_rollouts(self.task.config.num_envs, 1, self.task.reducer.size)

    @property
    def _collected(self) -> CollectedRollouts | None:
        """What collectors bring, where there are some."""
        return getattr(self.collector, "collected", None)

    def gauges(self) -> dict[str, float]:
        """The device's memory, and where both are at work at once, how long learner and collector have waited."""
        beside = self._background or self._collected
        return {**super().gauges(), **({} if beside is None else beside.gauges())}

    def iterate_all(self, schedule: Schedule, steps: int) -> list[Report] | None:
        """Start an iteration; where that fails, collectors end."""
        try:
            return super().iterate_all(schedule, steps)
        except BaseException:
            if self._collected is not None:
                self._collected.close()
            raise

    def drain(self) -> Report | None:
        """Wait for the iteration that is under way; collectors rest."""
        if self._collected is not None:
            self._collected.pause()
        return super().drain()

    def prepare(self) -> None:
        """Where the device has graphs: run one iteration, record it, and go back to where it began."""
        if not self.device.captures:
            return
        before, capture = self.state(), self.device.capture
        schedule = Schedule(0.0, 1, self._minibatches, self.task.config.gradient_accumulation, 1, 0.0, 0.0)
        with self.device.at_work_first():
            if self.collector.in_kernels:  # other episodes could not be taken back: records of nothing do as well
                self._fetch_rollout()
            self._start()
            for kind in self._kinds():
                self._drawing.rewind(0)
                self._update_with(*kind)
            self._learn(schedule)
            self._gather()
            self.wait()
            if self.collector.in_kernels:
                stream = None if self._background is None else self._background.stream
                self._collect = capture(self._collect, stream)
            self._start, self._shuffle = capture(self._start), capture(self._shuffle)
            self._gather = capture(self._gather)
            if self._before is not None:
                self._reestimate = capture(self._reestimate)
            for kind in self._kinds():
                self._updates[kind] = capture(lambda kind=kind: self._update_with(*kind))
        self.take()
        self._load(before, episodes=self.collector.in_kernels)

    def run(self, schedule: Schedule, steps: int) -> Pending:
        """Collect, estimate, update."""
        device = self.device
        device.fill(self.clock.numbers[:, LEARNING_RATE], schedule.learning_rate)
        began = device.mark()
        self._fetch_rollout()
        collected = device.mark()
        self._start()
        if self._apart and self._background is None:
            self._show_normaliser()
        estimated = device.mark()
        self._learn(schedule)
        self._gather()
        host = self.reports.send()
        marks = began, collected, estimated, device.mark()
        return Pending(steps, steps - self._batch, schedule.learning_rate, host, marks)

    def state(self) -> dict[str, NDArray[Any]]:
        """That of the networks and of the collector, and a rollout that is to be learnt from."""
        self.look()
        self.wait()
        own = {"learner.rng": self.device.fetch(self._drawing.rng), "learner.minibatches": np.array([0, self.done])}
        own |= self.loss_scale()
        if self._draws:
            own["learner.draws"] = self.device.fetch(self._streams)
        waits = self._background is not None and self._background.full
        waiting = self.collector.recorded.contents() if waits else {}
        return {**own, **self.networks.state(), **self.collector.state(), **waiting}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a saved state."""
        self._load(state, episodes=True)

    def give_back(self) -> None:
        """The parameters and the normalisers."""
        super().give_back()
        self.task.observation_moments.state[...] = self.device.fetch(self._seen)
        self._own_rewards[...] = self.device.fetch(self._rewards)

    def take_in(self) -> None:
        """The parameters and the normalisers."""
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
        """Until everything that was started is done."""
        if self._background is not None:
            self._background.wait()
        self.device.synchronise()

    def count(self, pending: Pending) -> None:
        """The seconds of each phase."""
        seconds = self.device.seconds_between(*pending.marks)
        for name, spent in zip(("rollout", "estimate", "update"), seconds, strict=True):
            add(self.phases, name, spent)

    def _kinds(self) -> list[tuple[frozenset[str], bool, bool]]:
        """The kinds of updates that there are: what is due in them, whether they add to a gradient, and take a step."""
        accumulate = self.task.config.gradient_accumulation
        places = range(min(self._minibatches, 2 * accumulate))
        shapes = {self._shape(m, self._minibatches, accumulate) for m in (*places, self._minibatches - 1)}
        return [(due, *shape) for due in self.task.program.kinds_of_updates() for shape in sorted(shapes)]

    @staticmethod
    def _shape(m: int, minibatches: int, accumulate: int) -> tuple[bool, bool]:
        return m % accumulate > 0, (m + 1) % accumulate == 0 or m == minibatches - 1

    def _learn(self, schedule: Schedule) -> None:
        """All epochs over the rollout."""
        self._drawing.begin()
        for _ in range(schedule.epochs):
            if self._before is not None:
                self._reestimate()
            self._shuffle()
            for m in range(self._minibatches):
                self.done += 1
                kind = (
                    self.task.program.due(self.task.config, self.done),
                    *self._shape(m, self._minibatches, schedule.accumulate),
                )
                self._updates[kind]() if kind in self._updates else self._update_with(*kind)
                if not self.device.reports_late and self._stopped():
                    return

    def _update_with(self, due: frozenset[str], accumulate: bool, stepping: bool) -> None:
        self.program.run(due, accumulate=accumulate, stepping=stepping)

    def _stopped(self) -> bool:
        return bool(self.device.fetch(self.clock.counts)[:, [FAULT, STOPPED]].any())

    def _reestimate_now(self) -> None:
        """Before an epoch: let all rows go through what asks for it, in the order in which they lie, then columns."""
        assert self._before is not None  # noqa: S101 - only then it is called
        self._drawing.rewind(0)
        for _ in range(self._minibatches):
            self._before.run()
        for column in self._reestimates:
            column(0)

    def _start_now(self) -> None:
        """Let the normalisers take in what the rollout saw, estimate, and count from nothing."""
        recorded, config = self.recorded, self.task.config
        if config.normalise_rewards:
            self._sum_over_copies(recorded.reward_sums, self._reward_sums)
            self._take_in_rewards(0)
            self._scale_rewards(0)
        for column in self._estimates:
            column(0)
        self._decide()
        if self._spread is not None:
            self._sum_over_copies(self._spreads, self._spread)
        if self.task.encoding.normalises:
            sums = recorded.observation_sums
            self._sum_over_copies(sums.reshape(len(sums), -1), self._seen_sums.reshape(1, -1))
            self._take_in(0)
        self._begin_update(0)
        self.program.begin()
        self.networks.begin()

    def _sum_over_copies(self, rows: Any, into: Any) -> None:
        """Of all processes that train together."""
        self.device.sum_rows(rows, into)
        self.networks.reduce(into)

    def _fetch_rollout(self) -> None:
        """A rollout to learn from; where they overlap, the next is begun by the parameters of now."""
        background = self._background
        if background is None:
            self._collect()
            if self._apart:
                self.recorded.take_over(self.collector.recorded)
            return
        if not background.full:
            background.start(self._collect)
        background.join()
        self.recorded.take_over(self.collector.recorded)
        self._show_normaliser()
        learnt = self.networks.networks[self.task.acting].parameters
        self.device.copy(self.collector.network.parameters, learnt)
        self._show_statistics()
        background.start(self._collect)

    def _show_statistics(self) -> None:
        """Let the collector's own network have the statistics of batches that were taken."""
        learnt = self.networks.networks[self.task.acting]
        if learnt.takes_statistics:
            self.collector.network.buffers_from(learnt)

    def _show_normaliser(self) -> None:
        """Let a collector elsewhere see as the normaliser says."""
        if self.task.encoding.normalises:
            here = self.device.on_host() if self.collector.on_host else self.device
            here.copy(self.collector.centre, self._centre)
            here.copy(self.collector.inverse_scale, self._inverse_scale)

    def _rows(self, fetch: Work) -> Rows:
        """The rows of a minibatch, and where networks find what they read."""
        records, index, state_size = self.recorded.memory, self._drawing.index, self.recorded.start_state.shape[1]
        flat = narrow(records).reshape(-1)
        fields: dict[str, Any] = {}
        for name in flat.dtype.names or ():
            if flat.dtype[name].base == np.float32:
                array = flat[name]
                fields[name] = array if len(array.shape) > 1 else array[:, None]
        film, works = self.recorded.film, (fetch,)
        if film is None:
            fields["observation"] = records.reshape(-1)["observation"]
        widths = {name: array.shape[-1] for name, array in fields.items()}
        memory = self._drawing.memory(flat, self.recorded.start_state) if state_size else None
        columns: dict[str, Any] = {name: Indexed(array, index) for name, array in fields.items()}
        if film is not None and self.task.frames is not None:
            stacks = make_stacks(
                self.device, film.frames, self.task.frames, self.task.encoding.table, len(index), film.copies,
                film.cuts_from,
            )  # fmt: skip
            columns["observation"], widths["observation"] = stacks, self.task.encoding.inputs
            works = fetch, Work(find_sample, (index, flat, stacks))
        return Rows(Indexed(flat, index), columns, widths, Indexed(self._streams, index), works, memory)

    @property
    def _draws(self) -> bool:
        """Whether a function of the update draws random numbers."""
        return any("rng" in call.arguments for call in self.task.program.calls)

    def _make_streams(self, seeds: Sequence[Seeds]) -> Any:
        """A stream for each row, where a function draws."""
        if not self._draws:
            return self.device.put(np.concatenate([random.streams(one.learner + 1, 1) for one in seeds]))
        copies, part, times = self.task.config.num_envs, self.task.part, self.task.config.horizon + 1
        whole = [random.streams(one.learner + 1, copies * times).reshape(times, copies, 2) for one in seeds]
        return self.device.put(np.concatenate([one[:, part.first :][:, : part.copies].reshape(-1, 2) for one in whole]))

    def _bind_column(self, function: Callable[..., Any], names: Sequence[str]) -> Callable[..., None]:
        """A function over a copy's column in time."""
        rows, settings = narrow(self.recorded.records), self.device.shown(self.task.settings)
        columns = tuple(Shared(settings) if name == "settings" else rows[name] for name in names)
        return self.device.launch([Work(by_row(function), columns)], len(rows))

    def _bind_estimate(self, reward_moments: NDArray[np.float64]) -> None:
        """What comes between a rollout and the update."""
        task, device, agents, recorded = self.task, self.device, self.agents, self.recorded
        config, inputs, launch = task.config, task.encoding.inputs, self.device.launch
        self._estimates = [self._bind_column(*one) for one in task.estimates]
        self._spread = None
        if task.explained is not None:
            rows = narrow(recorded.records)
            self._spreads = device.zeros(len(rows), SPREAD, dtype=np.float64)
            self._spread = device.zeros(agents, SPREAD, dtype=np.float64)
            columns = *(rows[name] for name in task.explained), self._spreads
            self._estimates.append(launch([Work(by_row(add_spread), columns)], len(rows)))
        self._bind_decisions()
        self._own_rewards = reward_moments
        self._rewards = device.zeros(agents, 3, dtype=np.float64)
        self._reward_sums = device.zeros(agents, 2, dtype=np.float64)
        if config.normalise_rewards:
            scale = device.put(np.array([(1.0, REWARD_LIMIT)] * agents, SCALE))
            arguments = self._rewards, self._reward_sums, self._batch, scale
            self._take_in_rewards = launch([Work(take_in_rewards, arguments)], agents)
            rewards = narrow(recorded.records)["reward"]
            of_agent = Shared(scale) if agents == 1 else Grouped(scale, task.part.copies)
            self._scale_rewards = launch([Work(by_row(scale_rewards), (rewards, of_agent))], len(rewards))
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
        """What is called once after a rollout, with the episodes that ended in it."""
        task, device, agents, recorded = self.task, self.device, self.agents, self.recorded
        self._decide: Callable[[], None] = lambda: None
        if not task.decisions:
            return
        copies, decisions = agents * task.part.copies, Decisions(task, device, self.networks, agents)
        sums = device.zeros(copies, 1 + len(task.constraints), dtype=np.float64)
        costs = task.costs_of(recorded.reported)
        add_up = device.launch([Work(add_episodes, (recorded.log.ends, costs, sums))], copies)

        def run() -> None:
            add_up(0)
            decisions.decide(sums)

        self._decide = run

    def _load(self, state: Mapping[str, NDArray[Any]], *, episodes: bool) -> None:
        self.wait()
        device = self.device
        self.networks.load_state(state)
        if episodes:
            self.collector.load_state(state)
        if state["learner.rng"].shape == (self.agents, 2):  # a native learner has a stream for each of its threads
            device.store(self._drawing.rng, state["learner.rng"])
        self.done = int(state["learner.minibatches"][-1])
        if self._draws and state.get("learner.draws", np.zeros(0)).shape == self._streams.shape:
            device.store(self._streams, state["learner.draws"])
        self.load_loss_scale(state)
        if self._background is not None:
            self._background.full = self.collector.recorded.load_contents(state)
        device.synchronise()


def nearest_divisor(count: int, wanted: int) -> int:
    """The divisor of a count that comes nearest to what is wanted, the smaller of two."""
    small = [one for one in range(1, isqrt(count) + 1) if count % one == 0]
    return min([*small, *(count // one for one in small)], key=lambda one: (abs(one - wanted), one))
