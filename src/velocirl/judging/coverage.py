"""How much of what a policy does the data has seen: its actions beside those that were taken in similar states."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.data.dataset import Dataset
from velocirl.judging.numbers import Numbers, action_numbers, is_choice, numbers_of
from velocirl.program.normalizing import is_constant

STATES, REFERENCES = 1000, 20_000  # that are looked at, and among which similar ones are looked for
SIMILAR = 20  # states that count as similar
USUAL = 0.95  # of the data's own actions count as usual
BLOCK = 256  # states that are compared at once


@dataclass(frozen=True)
class Coverage:
    """The share of actions that are unlike those of the data in similar states.

    For states of the data, the most similar ones of other episodes are found (by distance, each number in deviations),
    and how far an action is from the nearest of those that were taken there. An action is unusual where it is farther
    than 95% of the data's own are: so that is 5% of those. A choice is unusual where nobody made it.
    """

    unusual: float  # share of the policy's actions
    own: float  # share of the data's own
    distance: float  # of the policy's actions from the nearest, the median, in half the range of each
    own_distance: float  # the same of the data's own
    states: int  # that were looked at


def coverage_of(data: Dataset, actions: Numbers, *, seed: int = 0) -> Coverage:
    """How much of the policy's actions (at all observations, as `actions_at_recorded` gives them) is in the data."""
    generator, count = np.random.default_rng(seed), len(data)
    if count < 2:
        raise ValueError("the data has a single transition, beside which nothing is usual")
    episode = np.repeat(np.arange(data.episodes), data.lengths())
    here = np.arange(count) + episode
    among = _drawn(generator, count, REFERENCES)
    asked = _drawn(generator, count, STATES)
    seen = _in_deviations(numbers_of(data.info.observation_space, data.observations, count + data.episodes), here)
    done = action_numbers(data.info.action_space, data.actions, count)
    # Within an episode states follow from each other, and so do actions: others tell what is usual. One recording has
    # no other episodes, and then only the state itself is left out.
    group = episode if data.episodes > 1 else np.arange(count)
    mine, own = np.empty((2, len(asked)))
    for first in range(0, len(asked), BLOCK):
        rows = asked[first : first + BLOCK]
        apart = _squares(seen[here[rows]], seen[here[among]])
        apart[group[rows][:, None] == group[among]] = np.inf
        nearest = np.argpartition(apart, min(SIMILAR, len(among)) - 1, axis=1)[:, :SIMILAR]
        taken = done[among[nearest]]  # (rows, similar, numbers)
        taken[np.isinf(np.take_along_axis(apart, nearest, axis=1))] = np.inf  # where others are too few
        part = slice(first, first + len(rows))
        mine[part] = np.abs(taken - actions[here[rows]][:, None]).max(2).min(1)
        own[part] = np.abs(taken - done[rows][:, None]).max(2).min(1)
    usual = 0.0 if is_choice(data.info.action_space) else float(np.quantile(own, USUAL))
    beyond = usual + 1e-6  # rounding is not unusual
    return Coverage(
        float((mine > beyond).mean()), float((own > beyond).mean()), float(np.median(mine)), float(np.median(own)),
        len(asked),
    )  # fmt: skip


def _drawn(generator: np.random.Generator, count: int, most: int) -> NDArray[np.int64]:
    """At most so many of the transitions."""
    return np.arange(count) if count <= most else np.sort(generator.choice(count, most, replace=False))


def _in_deviations(seen: Numbers, counted: NDArray[np.int64]) -> Numbers:
    """Numbers of observations in their own deviations; what never changes says nothing."""
    whole = seen.astype(np.float64)
    mean, deviation = whole[counted].mean(0), whole[counted].std(0)
    constant = is_constant(mean, deviation**2)
    scale = np.where(constant, 0.0, 1.0 / np.where(constant, 1.0, deviation))
    return ((whole - mean) * scale).astype(np.float32)


def _squares(left: Numbers, right: Numbers) -> NDArray[np.float32]:
    """The squares of the distances between all rows."""
    products = left @ right.T
    return (left**2).sum(1)[:, None] + (right**2).sum(1) - 2.0 * products
