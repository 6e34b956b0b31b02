"""The machine of native networks: compiled rollouts and updates on CPU threads."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.returns import Discount
from velocirl.monitor.phases import add, add_parts
from velocirl.training.collecting import ENDED, ROLLOUT_COUNTS, Eyes
from velocirl.training.collectors import Collector
from velocirl.learners.counters import Meter, clear, read
from velocirl.learners.faults import check_journals, check_update
from velocirl.learners.learner import Report
from velocirl.learners.normalising import RunningMoments
from velocirl.training.on_policy import Learner
from velocirl.training.updating import FAULT, GRADIENT_NORM, MINIBATCHES, Schedule

REWARD_LIMIT = 10.0  # of a normalised reward


class NativeMachine:
    """Collects, estimates and updates one after the other; everything is done when `iterate` returns."""

    def __init__(
        self,
        collector: Collector,
        learner: Learner,
        observation_moments: RunningMoments,
        reward_moments: RunningMoments,
        *,
        gamma: float,
        gae_lambda: float,
        normalises: bool,  # observations
        normalise_rewards: bool,
        recent: int,  # episodes that a report tells of at most
        phases: dict[str, float],
    ) -> None:
        self.collector, self.learner = collector, learner
        self.phases = phases
        self._meters = {
            "rollout": Meter(phases, "rollout/policy", self._count_rollout),
            "update": Meter(phases, "update/forward", self._count_update),
        }
        self._observation_moments, self._reward_moments = observation_moments, reward_moments
        self._gamma, self._lambda = gamma, gae_lambda
        self._normalises, self._normalise_rewards = normalises, normalise_rewards
        self._recent = recent
        self._copies = sum(len(journal.samples) for journal in collector.journals)
        self._batch = sum(journal.samples.size for journal in collector.journals)

    @property
    def eyes(self) -> Eyes:
        """How observations are normalised now."""
        moments = self._observation_moments
        return Eyes(moments.mean.astype(np.float32), moments.inverse_deviation.astype(np.float32))

    def iterate(self, schedule: Schedule, steps: int) -> Report | None:
        """Collect, estimate, update."""
        learner = self.learner
        with self._phase("rollout"):
            self._collect()
            check_journals(self.collector.journals, steps - self._batch, self._copies)
        with self._phase("estimate"):
            returns, lengths = self._episodes()
            self._add_moments()
            self._hand_over()
            explained = learner.estimate(self._discount())
        with self._phase("update"):
            outcome, means = learner.update(schedule)
            check_update(bool(outcome[FAULT]), learner.parameters, steps)
        return Report(
            steps=steps,
            learning_rate=schedule.learning_rate,
            means=means,
            gradient_norm=float(outcome[GRADIENT_NORM]),
            minibatches=int(outcome[MINIBATCHES]),
            optimiser_steps=learner.optimiser_steps,
            explained_variance=explained,
            returns=returns,
            lengths=lengths,
        )

    def drain(self) -> Report | None:
        """Nothing is ever under way."""
        for meter in self._meters.values():
            meter.fold()

    def settle(self) -> None:
        """The agent's own arrays are those that this machine works on."""

    def take(self) -> None:
        """Lay the parameters out anew."""
        self.learner.repack()

    def state(self) -> dict[str, NDArray[Any]]:
        """That of the learner and of the collector."""
        return {**self.learner.state(), **self.collector.state()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a saved state."""
        self.learner.load_state(state)
        self.collector.load_state(state)

    def _collect(self) -> None:
        """Fill the collector's journals."""
        self._clear_journals()
        self.collector.collect(self.eyes, self._gamma)

    def _clear_journals(self) -> None:
        for journal in self.collector.journals:
            journal.counts[:], journal.observation_sums[:], journal.discounted_sums[:] = 0, 0.0, 0.0

    def _hand_over(self) -> None:
        """The learner reads the collector's own journals."""

    def _episodes(self) -> tuple[list[float], list[int]]:
        """The last episodes that ended, in the order of their ends."""
        episodes = np.concatenate([journal.episodes[: journal.counts[ENDED]] for journal in self.collector.journals])
        last = episodes[np.argsort(episodes["step"], kind="stable")][-self._recent :]
        return last["total"].tolist(), last["length"].tolist()

    def _add_moments(self) -> None:
        """Let the normalisers take in what the rollout saw."""
        for journal in self.collector.journals:
            count = journal.samples.size
            if self._normalises:
                self._observation_moments.add(journal.observation_sums[0], journal.observation_sums[1], count)
            self._reward_moments.add(journal.discounted_sums[:1], journal.discounted_sums[1:], count)

    def _discount(self) -> Discount:
        scale, limit = 1.0, inf
        if self._normalise_rewards:
            scale, limit = float(self._reward_moments.inverse_deviation[0]), REWARD_LIMIT
        return Discount(*map(np.float32, (scale, limit, self._gamma, self._lambda)))

    def _count_rollout(self, seconds: float) -> None:
        rows = [journal.counters for journal in self.collector.journals]
        add_parts(self.phases, "rollout", seconds, read(rows, ROLLOUT_COUNTS))
        clear(rows)

    def _count_update(self, seconds: float) -> None:
        add_parts(self.phases, "update", seconds, self.learner.spent())

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        """Count the seconds of a phase, and of the parts that compiled loops have counted in it."""
        start = time.perf_counter()
        yield
        seconds = time.perf_counter() - start
        add(self.phases, name, seconds)
        if name in self._meters:
            self._meters[name].add(seconds)
