"""The episodes that ended in a rollout, as one record for who decides by them: how many, and what they cost."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.learners.reducing import ALONE, Reducer


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


def find_episodes(s, r, t, totals, episodes):  # noqa: ARG001
    """The record of agent s, from the sums over its copies."""
    episodes[s].count = totals[s, 0]
    for k in range(totals.shape[1] - 1):
        episodes[s].costs[k] = totals[s, 1 + k] / max(totals[s, 0], 1.0)


def told_episodes(
    ends: NDArray[np.int32], costs: NDArray[np.float32], episodes: NDArray[Any], reducer: Reducer = ALONE
) -> None:
    """The same on the host, of all copies at once: (agents, steps, copies), costs with constraints before these."""
    ended = ends >= 0
    sums = np.array([ended.sum(), *costs[:, ended].sum(1, dtype=np.float64)])
    reducer.sum(sums)
    episodes["count"] = sums[0]
    episodes["costs"][:, : len(costs)] = sums[1:] / max(sums[0], 1)
