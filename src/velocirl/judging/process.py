"""Recorded data and a policy as a process of rewards over a horizon, of which nothing is left to choose.

With the policy's action at the next state known, the value of a policy is learnt from pairs of points

    x = (observation, recorded action, steps left)  ->  x' = (next observation, the policy's action there, one less)

and rewards. It ends when no step is left, so that what is learnt is the return of an episode, without a discount. The
plant does not know how many steps we count: each transition has any number of them, drawn anew for each fit.

What a network says of a point is the mean reward of the steps that are left, in deviations of the rewards in the data
from their mean: with n = 1 + gamma + ... + gamma^(left - 1),

    f(x) = r / n + (1 - 1 / n) f(x'),   value(x) = n (mean + deviation f(x))

which is the equation of values, divided by n. Numbers are small, begin at what is usual in the data, and have limits:
no mean is beyond the lowest and the highest reward. After a termination each step is worth `after`: 0 for rewards, 1
for the cost of a stop, so that a stop never saves cost.

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

LONGEST = 1000  # steps that are judged together, where nobody says how many: longer episodes are cut into such
Places = NDArray[np.int64]


@dataclass(frozen=True)
class Stretches:
    """Episodes of data, cut into stretches of at most `horizon` steps; each is judged from its beginning."""

    data: Dataset
    horizon: int

    @classmethod
    def of(cls, data: Dataset, horizon: int | None) -> Stretches:
        """Those of the longest episode's length, unless a horizon is given or that is very long."""
        if not len(data):
            raise ValueError("the data has no transitions to judge by")
        if horizon is not None and horizon < 1:
            raise ValueError(f"horizon must be at least 1, got {horizon}")
        return cls(data, horizon or min(int(data.lengths().max()), LONGEST))

    @cached_property
    def episode(self) -> Places:
        """The episode of each transition."""
        return np.repeat(np.arange(self.data.episodes), self.data.lengths())

    @cached_property
    def left(self) -> Places:
        """The steps of its stretch that are left at each transition, itself included: horizon, ..., 2, 1."""
        return self.horizon - (np.arange(len(self.data)) - self.data.starts[self.episode]) % self.horizon

    @cached_property
    def firsts(self) -> Places:
        """The first transition of each stretch, and the number of all transitions."""
        return np.append(np.flatnonzero(self.left == self.horizon), len(self.data))

    @cached_property
    def whole(self) -> NDArray[np.bool_]:
        """Which stretches were recorded to their ends: to the horizon, or to a termination."""
        last = self.firsts[1:] - 1
        return (self.left[last] == 1) | self.data.terminations[last]

    def rows(self, chosen: Places) -> Places:
        """The transitions of stretches, one after the other; some may be chosen more than once."""
        begins, lengths = self.firsts[chosen], np.diff(self.firsts)[chosen]
        return np.repeat(begins - np.append(0, np.cumsum(lengths)[:-1]), lengths) + np.arange(lengths.sum())

    def returns(
        self, gamma: float, rewards: NDArray[np.float32], after: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """Return the discounted return of each whole stretch; steps after a termination are worth `after` each."""
        step = (self.horizon - self.left).astype(np.float64)
        worth = gamma**step * rewards
        if after is not None:
            rest = self.left - 1.0
            later = rest if gamma == 1.0 else gamma ** (step + 1) * (1.0 - gamma**rest) / (1.0 - gamma)
            worth = worth + np.where(self.data.terminations, later * after, 0.0)
        return np.add.reduceat(worth, self.firsts[:-1])[self.whole]


@dataclass(frozen=True)
class Process:
    """All transitions as points and what follows, of one policy; the steps left are still to be drawn."""

    points: Numbers  # (transitions, numbers)
    following: Numbers  # (transitions, numbers)
    rewards: NDArray[np.float64]  # (transitions,) in deviations from the mean
    after: NDArray[np.float64]  # (transitions,) in these units: of each step after the termination
    terminations: NDArray[np.bool_]  # (transitions,)
    known: NDArray[np.bool_]  # (transitions,) whether what follows is known
    beginnings: Numbers  # (stretches, numbers): the policy's first point of each, with all steps left
    horizon: int
    gamma: float
    mean: float
    deviation: float
    probability: bool = False  # of a reward of 1, which ends an episode

    @property
    def limits(self) -> tuple[float, float]:
        """Lowest and highest possible mean of rewards; of a probability, 0 and 1."""
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
        """n: how many rewards so many steps count for."""
        whole = steps.astype(np.float64)
        return whole if self.gamma == 1.0 else (1.0 - self.gamma**whole) / (1.0 - self.gamma)

    def value(self, outputs: NDArray[np.float32]) -> NDArray[np.float64]:
        """The value of beginnings, in the units of the data, by what a network says of them."""
        held = np.clip(outputs.reshape(-1).astype(np.float64), *self.limits)
        if self.probability:
            return held
        return self.worth(np.array(self.horizon)) * (self.mean + self.deviation * held)

    def sample(self, rows: Places, generator: np.random.Generator) -> Dataset:
        """Some transitions as data to learn from, each by itself.

        In the place of an action it has two numbers: the share of what follows in f(x), and the weight of the loss,
        in proportion to n^2, so that it is the loss of values.
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
    last = np.append(np.diff(stretches.episode) > 0, True)  # of its episode
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
    """Points with the share of steps that are left."""
    return np.concatenate([points, left[:, None]], axis=1).astype(np.float32)
