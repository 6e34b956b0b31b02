"""The machine of torch networks: on the CPU step by step, on a GPU as CUDA graphs that the host only starts.

On a GPU an iteration is under way when `iterate` returns; its report is copied to the host behind it, and read when
the next one has been started, so that the GPU never waits for Python.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from math import inf
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from velocirl.monitor.phases import add
from velocirl.learners.faults import NumericalError
from velocirl.learners.learner import Report
from velocirl.training.native_machine import REWARD_LIMIT
from velocirl.learners.normalising import RunningMoments, take_in, take_in_rewards
from velocirl.training.torch_collectors import Records, TorchCollector, TorchFleetCollector
from velocirl.training.torch_device import Device
from velocirl.training.torch_learner import TorchLearner
from velocirl.training.torch_reports import Pending, Reports
from velocirl.training.updating import Schedule


class TorchMachine:
    """Collects, estimates and updates with a torch network, for one agent or for several (seeds)."""

    def __init__(
        self,
        device: Device,
        collector: TorchCollector,
        learner: TorchLearner,
        records: Records,  # that the learner reads: the collector's, or their copies on another device
        parameters: NDArray[np.float32],  # the agent's own
        observation_moments: RunningMoments,
        reward_moments: NDArray[np.float64],  # (seeds, 3) count, mean, squared deviations
        *,
        gamma: float,
        gae_lambda: float,
        normalises: bool,
        normalise_rewards: bool,
        recent: int,
        phases: dict[str, float],
        overlap: bool = False,  # then the collector has a network of its own
    ) -> None:
        self.device, self.collector, self.learner, self.records = device, collector, learner, records
        self.phases = phases
        self._parameters, self._observation_moments = parameters, observation_moments
        self._reward_moments, self._gamma = reward_moments, gamma
        self._normalises, self._normalise_rewards = normalises, normalise_rewards
        self._apart = records is not collector.records
        self._collection = device.make_background(collector) if overlap else None
        self._pending: Pending | None = None
        self._told: list[Report] | None = None  # reports that were read before anybody asked for them
        self._failed = False
        self._fresh = True  # whether the agent's own arrays are those of the device
        seeds, copies, horizon = records.seeds, records.copies, records.horizon
        self._batch = copies * horizon
        self._rewards = device.zeros(seeds, 3, dtype=np.float64)
        self._reward_sums = device.zeros(seeds, 2, dtype=np.float64)
        discounts = np.array([(1.0, REWARD_LIMIT if normalise_rewards else inf, gamma, gae_lambda)] * seeds)
        host = np.empty(seeds, device.fetch(learner.discounts).dtype)
        for place, name in enumerate(host.dtype.names or ()):
            host[name] = discounts[:, place]
        device.store(learner.discounts, host)
        learning = device.learning_translator("normaliser")
        mapper = device.mapper(learning)
        count = np.float64(self._batch)
        rewards = device.array(self._rewards), device.array(self._reward_sums)
        self._take_in_rewards = mapper.bind(take_in_rewards, seeds, *rewards, count, learner.discounts)
        inputs = records.tensors["inputs"].shape[1]
        self._seen = device.zeros(3, inputs, dtype=np.float64)
        self._seen_sums = device.zeros(2, inputs, dtype=np.float64)
        self._eyes = self._mirrored_eyes()
        self._take_in = mapper.bind(
            take_in, inputs, device.array(self._seen), device.array(self._seen_sums), count,
            type(collector.eyes)(*map(device.array, self._eyes)),
        )  # fmt: skip
        self._collect: Callable[[], None] = lambda: collector.collect(gamma)
        self._estimate: Callable[[], None] = self._estimate_now
        self._reports = Reports(device, records, learner, recent)
        self._report: Callable[[], None] = self._reports.gather
        self.take()

    def prepare(self) -> None:
        """Where the device has graphs: run one iteration, record it, and go back to where it began."""
        if not self.device.captures:
            return
        before = self.state()
        steps_here = isinstance(self.collector, TorchFleetCollector)
        with self.device.at_work(), warnings.catch_warnings():
            # Autograd's own thread meets the device for the first time here, which torch warns of and then sees to.
            warnings.filterwarnings("ignore", message="Attempting to run cuBLAS")
            if steps_here:
                self._run_stages()
            else:  # the episodes of the host could not be taken back: records of nothing do as well
                self._learn()
            self._wait()
            if steps_here:
                stream = None if self._collection is None else self._collection.stream
                self._collect = self.device.capture(self._collect, stream)
            self._estimate = self.device.capture(self._estimate)
            self.learner.capture()
            self._report = self.device.capture(self._report)
        self.take()
        self._load(before, episodes=steps_here)

    def iterate(self, schedule: Schedule, steps: int) -> Report | None:
        """Start an iteration; gives the report of this one on the CPU, of the one before on a GPU."""
        reports = self.iterate_all(schedule, steps)
        return None if reports is None else reports[0]

    def iterate_all(self, schedule: Schedule, steps: int) -> list[Report] | None:
        """The same for all agents that learn together."""
        with self.device.at_work():
            self.learner.set_learning_rate(schedule.learning_rate)
            events = self._run_stages()
            host = self._reports.send()
            done = self.device.mark()
        self._fresh = False
        before, self._pending = self._pending, Pending(steps, schedule.learning_rate, host, (*events, done))
        if not self.device.reports_late:
            return self.drain_all()
        told, self._told = self._told, None
        return told if before is None else self._read(before)

    def drain(self) -> Report | None:
        """Wait for the iteration that is under way."""
        reports = self.drain_all()
        return None if reports is None else reports[0]

    def drain_all(self) -> list[Report] | None:
        """The same for all agents that learn together."""
        self._look()
        told, self._told = self._told, None
        return told

    def _look(self) -> None:
        """Read the report of what is under way, so that nothing is saved or shown of an iteration that failed."""
        pending, self._pending = self._pending, None
        if pending is not None and not self._failed:  # what followed a failure is of no interest
            self._told = self._read(pending)

    def gauges(self) -> dict[str, float]:
        """How long learner and collector have waited for each other, where both are at work at once."""
        return {} if self._collection is None else self._collection.gauges()

    def settle(self) -> None:
        """Bring the agent's own arrays up to date; after a failure they stay as they were."""
        self._look()
        if self._fresh or self._failed:
            return
        self._wait()
        self._parameters[...] = self.learner.network.to_host()
        self._observation_moments.state[...] = self._seen.cpu().numpy()
        self._reward_moments[...] = self._rewards.cpu().numpy()
        self._fresh = True

    def take(self) -> None:
        """Go on from the agent's own arrays."""
        self._wait()
        moments = self._observation_moments
        self.learner.network.parameters_from(self._parameters)
        if self.collector.network is not self.learner.network:
            self.collector.network.parameters_from(self._parameters)
        self._seen.copy_(torch.from_numpy(moments.state))
        self._rewards.copy_(torch.from_numpy(self._reward_moments))
        for eyes in {id(one): one for one in (self._eyes, self.collector.eye_tensors)}.values():
            eyes[0].copy_(torch.from_numpy(moments.mean))
            eyes[1].copy_(torch.from_numpy(moments.inverse_deviation))
        self.device.synchronise()
        self._fresh = True

    def state(self) -> dict[str, NDArray[Any]]:
        """That of the learner and of the collector, the module's buffers, and a rollout that is to be learnt from."""
        self._look()
        self._wait()
        buffers = {f"network.buffer.{name}": array for name, array in self.learner.network.buffers().items()}
        waiting = {} if self._collection is None or not self._collection.full else self.collector.records.contents()
        return {**self.learner.state(), **self.collector.state(), **buffers, **waiting}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a saved state."""
        self._load(state, episodes=True)

    def _load(self, state: Mapping[str, NDArray[Any]], *, episodes: bool) -> None:
        self._wait()
        self.learner.load_state(state)
        if episodes:
            self.collector.load_state(state)
        prefix = "network.buffer."
        self.learner.network.load_buffers(
            {name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)}
        )
        if self._collection is not None:
            self._collection.full = self.collector.records.load_contents(state)
        self.device.synchronise()

    def _wait(self) -> None:
        """Until everything that was started is done."""
        if self._collection is not None:
            self._collection.wait()
        self.device.synchronise()

    def _run_stages(self) -> tuple[Any, ...]:
        began = self.device.mark()
        if self._collection is None:
            self._collect()
            if self._apart:
                self._deliver()
        else:
            if not self._collection.full:
                self._collection.start(self._collect)
            self._collection.join()
            self._deliver()
            self.collector.network.parameters.data.copy_(self.learner.network.parameters.data)
            self._collection.start(self._collect)
        return began, self._learn()

    def _learn(self) -> Any:
        """Estimate, update and report; gives the moment when the update began."""
        self._estimate()
        if self._apart and self._collection is None:
            self._show_normaliser()
        collected = self.device.mark()
        self.learner.begin()
        self.learner.update()
        self._report()
        return collected

    def _estimate_now(self) -> None:
        """Let the normalisers take in what the rollout saw, then estimate."""
        tensors, seeds = self.records.tensors, self.records.seeds
        torch.sum(tensors["reward_sums"].view(seeds, -1, 2), 1, out=self._reward_sums)
        if self._normalise_rewards:
            self._take_in_rewards()
        self.learner.estimate()
        if self._normalises:
            torch.sum(tensors["observation_sums"], 0, out=self._seen_sums)
            self._take_in()

    def _read(self, pending: Pending) -> list[Report]:
        """The reports of an iteration, once it is done."""
        began, collected, done = pending.events
        rollout, update = self.device.seconds_between(began, collected, done)
        add(self.phases, "rollout", rollout)
        add(self.phases, "update", update)
        try:
            return self._reports.read(pending)
        except NumericalError:
            self._failed = True
            raise

    def _deliver(self) -> None:
        """Copy a rollout to where the learner reads; the collector sees on as the learner's normaliser says."""
        self.records.copy(self.collector.records)
        self._show_normaliser()

    def _show_normaliser(self) -> None:
        """Let a collector elsewhere see as the normaliser says."""
        for own, made in zip(self.collector.eye_tensors, self._eyes, strict=True):
            own.copy_(made)

    def _mirrored_eyes(self) -> tuple[torch.Tensor, torch.Tensor]:
        centre, inverse_scale = self.collector.eye_tensors
        if not self._apart:
            return centre, inverse_scale
        return centre.clone().to(self.device.torch), inverse_scale.clone().to(self.device.torch)
