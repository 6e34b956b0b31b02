"""Returns over n steps, formed when a record is drawn from a ring of single steps.

A fleet writes its steps in groups, copy i at the i-th place of a group, so that the step after the one at a place lies
`copies` further on. From there:

reward = r_0 + gamma r_1 + ... + gamma^(k-1) r_(k-1),  k <= n;  discount = gamma^k, but 0 if the k-th step terminated

An episode that was cut off is not over: what follows its final observation counts. Neither is one whose next step is
still to come: then there are fewer than n steps, and what follows the last of them counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.records import GOES_ON, LOST, TERMINATED, TRUNCATED
from velocirl.buffers.replay import FILLED, PLACE


def follow(rows, counts, copies, place, n, gamma):
    """Reward and discount of up to n steps from a place on, and the place whose next observation comes after them."""
    capacity = len(rows)
    # Places from here to the newest group, around the seam where need be; beyond it lie the oldest records.
    newer = (counts[PLACE] - np.int64(1) - place + capacity) % capacity // copies
    last = place
    reward, discount = np.float64(rows[last].reward), np.float64(gamma)
    for _ in range(min(n - 1, newer)):
        if rows[last].ended != GOES_ON:
            break
        following = last + copies if last + copies < capacity else last + copies - capacity
        if rows[following].ended == LOST:  # what comes after that step is not known, but what it began with is
            break
        last = following
        reward += discount * np.float64(rows[last].reward)
        discount *= gamma
    if rows[last].ended == TERMINATED:
        discount = np.float64(0)
    return np.float32(reward), np.float32(discount), last


def follow_costs(rows, copies, place, last, gamma, costs):
    """The costs of the steps from a place to the last that `follow` found, by constraint: c_0 + gamma c_1 + ..."""
    capacity = len(rows)
    for k in range(len(costs)):
        at, total, discount = place, np.float64(rows[place].costs[k]), np.float64(gamma)
        while at != last:
            at = at + copies if at + copies < capacity else at + copies - capacity
            total += discount * np.float64(rows[at].costs[k])
            discount *= gamma
        costs[k] = np.float32(total)


def cut_off(rows: NDArray[Any], counts: NDArray[np.int64], copies: int, which: slice = slice(None)) -> None:
    """Let the newest steps be the last ones of their episodes, where new episodes begin without these having ended.

    `which` are the copies of which that is so; without it, all.
    """
    if counts[FILLED] == 0:
        return
    newest = (int(counts[PLACE]) - copies + np.arange(copies)[which]) % len(rows)
    ended = rows["ended"][newest]
    rows["ended"][newest] = np.where(ended == GOES_ON, TRUNCATED, ended)
