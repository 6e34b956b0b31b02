"""Recorded data and a policy as a Markov reward process over a horizon.

With the policy's action at the next state known, the value of a policy is learned from pairs of points

    x = (observation, recorded action, steps left)  ->  x' = (next observation, the policy's action there, one less)

and rewards. The process ends when no step is left, so that the value is the return of an episode, without a discount.
The plant does not depend on the number of steps left: each transition gets a random one for each fit.

The network predicts the mean reward of the steps left, in standard deviations of the data's rewards from their mean.
With n = 1 + gamma + ... + gamma^(left - 1),

    f(x) = r / n + (1 - 1 / n) f(x'),   value(x) = n (mean + deviation f(x))

which is the Bellman equation, divided by n. Predictions are small, begin at the mean of the data, and are bounded: no
mean is beyond the lowest and the highest reward. After a termination each step counts `after`: 0 for rewards, 1 for the
cost of a stop, so that a stop never saves cost.

The probability of a stop has an equation without n: f(x) = 1 at a stop, 0 at another end, and else f(x').
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from velocirl.buffers.data.dataset import Dataset
from velocirl.buffers.data.info import DatasetInfo
from velocirl.judging.numbers import Numbers, action_numbers, numbers_of

LONGEST = 1000  # default maximum of the horizon: longer episodes are cut into such segments
Places = NDArray[np.int64]


@dataclass(frozen=True)
class Stretches:
    """Episodes of data, cut into segments of at most `horizon` steps; each is evaluated from its beginning."""

    data: Dataset
    horizon: int

    @classmethod
    def of(cls, data: Dataset, horizon: int | None) -> Stretches:
        """Cut the data; the default horizon is the longest episode's length, at most LONGEST."""
        if not len(data):
            raise ValueError("the data has no transitions to judge by")
        if horizon is not None and horizon < 1:
            raise ValueError(f"horizon must be at least 1, got {horizon}")
        return cls(data, horizon or min(int(data.lengths().max()), LONGEST))

    @cached_property
    def episode(self) -> Places:
        """Episode of each transition."""
        return np.repeat(np.arange(self.data.episodes), self.data.lengths())

    @cached_property
    def left(self) -> Places:
        """Steps left in its segment at each transition, itself included: horizon, ..., 2, 1."""
        return self.horizon - (np.arange(len(self.data)) - self.data.starts[self.episode]) % self.horizon

    @cached_property
    def firsts(self) -> Places:
        """First transition of each segment, followed by the number of all transitions."""
        return np.append(np.flatnonzero(self.left == self.horizon), len(self.data))

    @cached_property
    def whole(self) -> NDArray[np.bool_]:
        """Mask of the segments recorded to their end: to the horizon, or to a termination."""
        last = self.firsts[1:] - 1
        return (self.left[last] == 1) | self.data.terminations[last]

    def rows(self, chosen: Places) -> Places:
        """Return the transitions of segments in order; a segment may be chosen more than once."""
        begins, lengths = self.firsts[chosen], np.diff(self.firsts)[chosen]
        return np.repeat(begins - np.append(0, np.cumsum(lengths)[:-1]), lengths) + np.arange(lengths.sum())

    def returns(
        self, gamma: float, rewards: NDArray[np.float32], after: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """Return the discounted return of each whole segment; each step after a termination counts `after`."""
        step = (self.horizon - self.left).astype(np.float64)
        worth = gamma**step * rewards
        if after is not None:
            rest = self.left - 1.0
            later = rest if gamma == 1.0 else gamma ** (step + 1) * (1.0 - gamma**rest) / (1.0 - gamma)
            worth = worth + np.where(self.data.terminations, later * after, 0.0)
        return np.add.reduceat(worth, self.firsts[:-1])[self.whole]


@dataclass(frozen=True)
class Process:
    """All transitions of one policy as points and next points; the steps left are sampled later."""

    points: Numbers  # (transitions, numbers)
    following: Numbers  # (transitions, numbers)
    rewards: NDArray[np.float64]  # (transitions,) in standard deviations from the mean
    after: NDArray[np.float64]  # (transitions,) in these units: for each step after the termination
    terminations: NDArray[np.bool_]  # (transitions,)
    known: NDArray[np.bool_]  # (transitions,) whether the next point is known
    beginnings: Numbers  # (segments, numbers): the policy's first point of each, with all steps left
    horizon: int
    gamma: float
    mean: float
    deviation: float
    probability: bool = False  # value is the probability of a reward of 1, which ends an episode

    @property
    def limits(self) -> tuple[float, float]:
        """Lowest and highest possible mean of rewards; for a probability, 0 and 1."""
        if self.probability:
            return 0.0, 1.0
        ends = self.after[self.terminations].tolist()
        return min([float(self.rewards.min()), *ends]), max([float(self.rewards.max()), *ends])

    @property
    def bounds(self) -> tuple[float, float]:
        """Lowest and highest possible value of an episode, in the units of the data."""
        low, high = (float(self.value(np.array([end], np.float32))[0]) for end in self.limits)
        return low, high

    def worth(self, steps: Places) -> NDArray[np.float64]:
        """Return n, the discounted number of rewards of `steps` steps."""
        whole = steps.astype(np.float64)
        return whole if self.gamma == 1.0 else (1.0 - self.gamma**whole) / (1.0 - self.gamma)

    def value(self, outputs: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the values of initial states, in the units of the data, given the network's outputs."""
        held = np.clip(outputs.reshape(-1).astype(np.float64), *self.limits)
        if self.probability:
            return held
        return self.worth(np.array(self.horizon)) * (self.mean + self.deviation * held)

    def sample(self, rows: Places, generator: np.random.Generator) -> Dataset:
        """Return some transitions as a dataset, each an episode of its own.

        In place of the action it has two numbers: the factor of f(x'), and the weight of the loss. The weight is
        proportional to n^2, so that the loss refers to values.
        """
        rows = rows[self.known[rows]]
        left = generator.integers(1, self.horizon + 1, len(rows))
        worth, terminated = self.worth(left), self.terminations[rows]
        shares, weights = 1.0 - 1.0 / worth, worth**2
        if self.probability:
            worth = shares = weights = np.ones(len(rows))
        ends = terminated | (left == 1)
        count, size = len(rows), self.points.shape[1] + 1
        pair, point = (Box(-np.inf, np.inf, (width,), np.float32) for width in (2, size))
        both = [_timed(self.points[rows], left / self.horizon), _timed(self.following[rows], (left - 1) / self.horizon)]
        rewards = self.rewards[rows] / worth + np.where(terminated & (left > 1), shares * self.after[rows], 0.0)
        columns = {
            "observations": np.stack(both, axis=1).reshape(2 * count, size),
            "actions": np.stack([np.where(ends, 0.0, shares), weights / weights.mean()], axis=1).astype(np.float32),
            "rewards": rewards.astype(np.float32),
            "costs": np.zeros((count, 0), np.float32),
            "terminations": ends,
            "truncations": ~ends,
            "starts": np.arange(count + 1),
        }
        return Dataset(DatasetInfo(point, pair), columns)


def process_of(
    stretches: Stretches,
    actions: Numbers | None,
    rewards: NDArray[np.float32],
    gamma: float,
    *,
    after: NDArray[np.float64] | None = None,
    probability: bool = False,
) -> Process:
    """Build the process of a policy whose actions at all observations are given; without, of the behavior policy."""
    data = stretches.data
    each = np.arange(len(data))
    here = each + stretches.episode  # the observation of each transition; the next one follows it
    seen = numbers_of(data.info.observation_space, data.observations, len(data) + data.episodes)
    done = action_numbers(data.info.action_space, data.actions, len(data))
    last = np.append(np.diff(stretches.episode) > 0, True)  # last transition of its episode
    if actions is None:
        first_actions, next_actions = done, done[np.where(last, each, each + 1)]
    else:
        first_actions, next_actions = actions[here], actions[here + 1]
    mean = float(rewards.mean(dtype=np.float64))
    deviation = float(rewards.std(dtype=np.float64)) or 1.0
    if probability:  # a number between 0 and 1 already
        mean, deviation = 0.0, 1.0
    after = np.zeros(len(data)) if after is None else after
    firsts = stretches.firsts[:-1]
    beginnings = np.concatenate([seen[here[firsts]], first_actions[firsts]], axis=1)
    return Process(
        np.concatenate([seen[here], done], axis=1),
        np.concatenate([seen[here + 1], next_actions], axis=1),
        (rewards.astype(np.float64) - mean) / deviation,
        (after - mean) / deviation,
        data.terminations | (rewards > 0.0) if probability else data.terminations,
        data.terminations | ~last | (actions is not None),
        _timed(beginnings, np.ones(len(firsts))),
        stretches.horizon,
        gamma,
        mean,
        deviation,
        probability,
    )


def _timed(points: Numbers, left: NDArray[np.float64]) -> Numbers:
    """Return points with the fraction of steps left appended."""
    return np.concatenate([points, left[:, None]], axis=1).astype(np.float32)
