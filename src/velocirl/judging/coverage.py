"""Data coverage: distance of the policy's actions from those recorded in similar states."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.data.dataset import Dataset
from velocirl.judging.numbers import Numbers, action_numbers, is_choice, numbers_of
from velocirl.program.normalizing import is_constant

STATES, REFERENCES = 1000, 20_000  # states examined, and transitions among which similar ones are searched
SIMILAR = 20  # number of similar states
USUAL = 0.95  # quantile of the data's own distances up to which an action is in-distribution
BLOCK = 256  # states compared at once


@dataclass(frozen=True)
class Coverage:
    """Fraction of actions that are out-of-distribution: unlike the data's in similar states.

    For states of the data, the most similar ones of other episodes are found, by distance in standard deviations of
    each number. An action's distance is measured to the nearest action taken there. An action is unusual if it is
    farther than 95% of the data's own, so 5% of the latter are. A discrete choice is unusual if it was never made
    there.
    """

    unusual: float  # fraction of the policy's actions
    own: float  # fraction of the data's own
    distance: float  # median distance of the policy's actions from the nearest, in half the range of each
    own_distance: float  # the same distance for the data's own
    states: int  # number of states examined


def coverage_of(data: Dataset, actions: Numbers, *, seed: int = 0) -> Coverage:
    """Compare the policy's actions (at all observations, from `actions_at_recorded`) with the data."""
    generator, count = np.random.default_rng(seed), len(data)
    if count < 2:
        raise ValueError("the data has a single transition, beside which nothing is usual")
    episode = np.repeat(np.arange(data.episodes), data.lengths())
    here = np.arange(count) + episode
    among = _drawn(generator, count, REFERENCES)
    asked = _drawn(generator, count, STATES)
    seen = _in_deviations(numbers_of(data.info.observation_space, data.observations, count + data.episodes), here)
    done = action_numbers(data.info.action_space, data.actions, count)
    # Within an episode, successive states and actions are correlated: only other episodes show what is usual. With a
    # single recorded episode, only the state itself is left out.
    group = episode if data.episodes > 1 else np.arange(count)
    mine, own = np.empty((2, len(asked)))
    for first in range(0, len(asked), BLOCK):
        rows = asked[first : first + BLOCK]
        apart = _squares(seen[here[rows]], seen[here[among]])
        apart[group[rows][:, None] == group[among]] = np.inf
        nearest = np.argpartition(apart, min(SIMILAR, len(among)) - 1, axis=1)[:, :SIMILAR]
        taken = done[among[nearest]]  # (rows, similar, numbers)
        taken[np.isinf(np.take_along_axis(apart, nearest, axis=1))] = np.inf  # if there are too few others
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
    """Return at most `most` of the transitions, sampled without replacement."""
    return np.arange(count) if count <= most else np.sort(generator.choice(count, most, replace=False))


def _in_deviations(seen: Numbers, counted: NDArray[np.int64]) -> Numbers:
    """Return observations in units of their standard deviations; constant numbers become 0."""
    whole = seen.astype(np.float64)
    mean, deviation = whole[counted].mean(0), whole[counted].std(0)
    constant = is_constant(mean, deviation**2)
    scale = np.where(constant, 0.0, 1.0 / np.where(constant, 1.0, deviation))
    return ((whole - mean) * scale).astype(np.float32)


def _squares(left: Numbers, right: Numbers) -> NDArray[np.float32]:
    """Return the squared distances between all rows."""
    products = left @ right.T
    return (left**2).sum(1)[:, None] + (right**2).sum(1) - 2.0 * products
