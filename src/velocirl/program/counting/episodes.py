"""The episodes that ended, as one record for who decides by them: how many, and what they cost.

Of a rollout they are those that its log tells of. Learning from a memory knows no such stretch: there each copy adds up
its own, until there are enough of all copies together.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def episodes_type(constraints: int) -> np.dtype[Any]:
    """`count`, and `costs` for each constraint: the mean over these episodes, 0 where there are none."""
    return np.dtype([("count", np.float32), ("costs", np.float32, (max(constraints, 1),))])


def add_episodes(i, r, t, ends, costs, sums):  # noqa: ARG001 - every function of an index has the same first arguments
    """How many episodes of copy i ended, and the sums of their costs."""
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
    """The same of one step: add the episode of copy i that ended with it, if one did."""
    if told.terminated[i] or told.truncated[i]:
        sums[i, 0] += 1.0
        for k in range(sums.shape[1] - 1):
            sums[i, 1 + k] += told.episode_costs[i, k]


def find_episodes(s, r, t, totals, enough, episodes):  # noqa: ARG001
    """The record of agent s, from the sums over its copies: of none, before there are enough."""
    count = totals[s, 0] if totals[s, 0] >= enough else 0.0
    episodes[s].count = count
    for k in range(totals.shape[1] - 1):
        episodes[s].costs[k] = totals[s, 1 + k] / count if count > 0.0 else 0.0


def forget_episodes(i, r, t, totals, enough, sums):  # noqa: ARG001
    """Copy i begins to count anew, after enough episodes of all copies."""
    if totals[0, 0] >= enough:
        for k in range(sums.shape[1]):
            sums[i, k] = 0.0


def logged_episodes(ends: NDArray[np.int32], costs: NDArray[np.float32]) -> NDArray[np.float64]:
    """How many episodes ended, and the sums of their costs: (agents, steps, copies), costs with constraints before."""
    ended = ends >= 0
    return np.array([ended.sum(), *costs[:, ended].sum(1, dtype=np.float64)])


def add_logged(ended: NDArray[np.bool_], costs: NDArray[Any], copies: NDArray[Any], sums: NDArray[np.float64]) -> None:
    """Add those of some steps to the sums of their copies: (steps,), costs with constraints before these."""
    np.add.at(sums, copies[ended], np.column_stack([np.ones(ended.sum()), *costs[:, ended]]))
