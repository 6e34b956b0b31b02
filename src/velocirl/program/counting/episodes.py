"""Finished episodes as one record for functions that decide by them: how many there were, and their mean costs.

For a rollout, these are the episodes in its log. Off-policy learning has no such unit: there each environment adds up
its own episodes, until all environments together have enough.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def episodes_type(constraints: int) -> np.dtype[Any]:
    """Return the record type: `count`, and `costs` per constraint, the mean over these episodes, 0 without episodes."""
    return np.dtype([("count", np.float32), ("costs", np.float32, (max(constraints, 1),))])


def add_episodes(i, r, t, ends, costs, sums):  # noqa: ARG001 - every function of an index has the same first arguments
    """Write environment i's number of finished episodes, and the sums of their costs."""
    copies = ends.shape[2]
    s, n = i // copies, i % copies
    for k in range(sums.shape[1]):
        sums[i, k] = 0.0
    for place in range(ends.shape[1]):
        if ends[s, place, n] >= 0:
            sums[i, 0] += 1.0
            for k in range(len(costs)):
                sums[i, 1 + k] += costs[k, s, place, n]


def add_episode(i, told, sums):
    """Add the episode of environment i to the sums, if one ended in this step."""
    if told.terminated[i] or told.truncated[i]:
        sums[i, 0] += 1.0
        for k in range(sums.shape[1] - 1):
            sums[i, 1 + k] += told.episode_costs[i, k]


def sum_episodes(s, r, t, sums, totals):  # noqa: ARG001
    """Sum over all environments of the one agent there is."""
    for k in range(sums.shape[1]):
        total = 0.0
        for i in range(len(sums)):
            total += sums[i, k]
        totals[s, k] = total


def find_episodes(s, r, t, totals, enough, episodes):  # noqa: ARG001
    """Write the record of agent s from the sums over its environments; it is empty until there are enough episodes."""
    count = totals[s, 0] if totals[s, 0] >= enough else 0.0
    episodes[s].count = count
    for k in range(totals.shape[1] - 1):
        episodes[s].costs[k] = totals[s, 1 + k] / count if count > 0.0 else 0.0


def forget_episodes(i, r, t, totals, enough, sums):  # noqa: ARG001
    """Reset the sums of environment i once all environments together have enough episodes."""
    if totals[0, 0] >= enough:
        for k in range(sums.shape[1]):
            sums[i, k] = 0.0


def logged_episodes(ends: NDArray[np.int32], costs: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the number of finished episodes and the sums of their costs.

    `ends` is (agents, steps, environments); `costs` has constraints as its first axis.
    """
    ended = ends >= 0
    return np.array([ended.sum(), *costs[:, ended].sum(1, dtype=np.float64)])


def add_logged(ended: NDArray[np.bool_], costs: NDArray[Any], copies: NDArray[Any], sums: NDArray[np.float64]) -> None:
    """Add the episodes that ended in some steps to the sums of their environments.

    `ended` and `copies` are (steps,); `costs` is (constraints, steps).
    """
    np.add.at(sums, copies[ended], np.column_stack([np.ones(ended.sum()), *costs[:, ended]]))
