"""Recorded data and a policy as a process of rewards over a horizon, of which nothing is left to choose.

With the policy's action at the next state known, the value of a policy is learnt from pairs of points

    x = (observation, recorded action, steps left)  ->  x' = (next observation, the policy's action there, one less)

and rewards. It ends after so many steps as an episode has, so that what is learnt is the return of an episode, without
a discount. Rewards are told as differences from their mean r, in units of a scale: with b(h) = r (1 + gamma + ... +
gamma^(h-1)), value = b(h) + scale f(x), and f is what a network learns. That changes nothing of the answer; it begins at
what the data has on average, and numbers stay small.
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

    def returns(self, gamma: float, rewards: NDArray[np.float32]) -> NDArray[np.float64]:
        """The discounted return of each whole stretch."""
        worth = gamma ** (self.horizon - self.left).astype(np.float64) * rewards
        return np.add.reduceat(worth, self.firsts[:-1])[self.whole]


@dataclass(frozen=True)
class Process:
    """All transitions as points and what follows, of one policy."""

    points: Numbers  # (transitions, numbers)
    following: Numbers  # (transitions, numbers)
    rewards: Numbers  # (transitions,) as differences, in units of the scale
    ends: NDArray[np.bool_]  # (transitions,) whether nothing follows
    beginnings: Numbers  # (stretches, numbers): the policy's first point of each
    known: NDArray[np.bool_]  # (transitions,) whether what follows is known
    baseline: float  # the value of an average step, times all steps of the horizon
    scale: float

    def value(self, outputs: NDArray[np.float32]) -> NDArray[np.float64]:
        """The value of beginnings, in the units of the data, by what a network says of them."""
        return self.baseline + self.scale * outputs.reshape(-1).astype(np.float64)

    def sample(self, rows: Places) -> Dataset:
        """Some transitions as data to learn from, each by itself."""
        rows = rows[self.known[rows]]
        count, size = len(rows), self.points.shape[1]
        answer, point = (Box(-np.inf, np.inf, (width,), np.float32) for width in (1, size))
        observations = np.stack([self.points[rows], self.following[rows]], axis=1).reshape(2 * count, size)
        columns = {
            "observations": observations,
            "actions": np.zeros((count, 1), np.float32),  # nothing is left to choose
            "rewards": self.rewards[rows],
            "costs": np.zeros((count, 0), np.float32),
            "terminations": self.ends[rows],
            "truncations": ~self.ends[rows],
            "starts": np.arange(count + 1),
        }
        return Dataset(DatasetInfo(point, answer), columns)


def process_of(
    stretches: Stretches, actions: Numbers | None, rewards: NDArray[np.float32], gamma: float
) -> Process:
    """The process of a policy whose actions at all observations are given; without, of who acted in the data."""
    data, left, horizon = stretches.data, stretches.left, stretches.horizon
    here = np.arange(len(data)) + stretches.episode  # the observation of each transition; the next one follows it
    space = data.info.observation_space
    seen = numbers_of(space, data.observations, len(data) + data.episodes)
    done = action_numbers(data.info.action_space, data.actions, len(data))
    last = np.append(np.diff(stretches.episode) > 0, True)  # of its episode
    if actions is None:
        next_actions, first_actions = done[np.where(last, np.arange(len(data)), np.arange(len(data)) + 1)], done
    else:
        next_actions, first_actions = actions[here + 1], actions[here]
    ends = data.terminations | (left == 1)
    average, spread = float(rewards.mean(dtype=np.float64)), float(rewards.std(dtype=np.float64))
    scale = spread * horizon**0.5 or 1.0

    def level(steps: Places) -> NDArray[np.float64]:
        """What so many average steps are worth."""
        return average * (steps if gamma == 1.0 else (1.0 - gamma**steps) / (1.0 - gamma))

    following_level = np.where(ends, 0.0, level(left - 1))
    told = (rewards + gamma * following_level - level(left)) / scale
    firsts = stretches.firsts[:-1]

    def points(places: Places, acted: Numbers, steps: Places) -> Numbers:
        return np.concatenate([seen[places], acted, (steps / horizon)[:, None]], axis=1).astype(np.float32)

    return Process(
        points(here, done, left),
        points(here + 1, next_actions, left - 1),
        told.astype(np.float32),
        ends,
        points(here[firsts], first_actions[firsts], left[firsts]),
        ends | ~last | (actions is not None),
        float(level(np.array([horizon]))[0]),
        scale,
    )
