"""N-step returns, computed when a record is sampled from a ring of single steps.

A fleet writes its steps in groups, environment i at index i of a group. The next step of the same environment is
therefore `copies` indices further on. From a record on:

reward = r_0 + gamma r_1 + ... + gamma^(k-1) r_(k-1),  k <= n;  discount = gamma^k, but 0 if the k-th step terminated

A truncated episode has not terminated: the value of its final observation counts. Neither has one whose next step is
not stored yet: then there are fewer than n steps, and the value after the last of them counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.records import GOES_ON, LOST, TERMINATED, TRUNCATED
from velocirl.buffers.replay import FILLED, PLACE


def follow(rows, counts, copies, place, n, gamma):
    """Compute reward and discount of up to `n` steps from an index on, and the index of the last of them.

    Targets bootstrap from the next observation of that last step.
    """
    capacity = len(rows)
    # Steps from here to the newest group, wrapping around if necessary; beyond it are the oldest records.
    newer = (counts[PLACE] - np.int64(1) - place + capacity) % capacity // copies
    last = place
    reward, discount = np.float64(rows[last].reward), np.float64(gamma)
    for _ in range(min(n - 1, newer)):
        if rows[last].ended != GOES_ON:
            break
        following = last + copies if last + copies < capacity else last + copies - capacity
        if rows[following].ended == LOST:  # the observation after that step is lost, but the one before it is stored
            break
        last = following
        reward += discount * np.float64(rows[last].reward)
        discount *= gamma
    if rows[last].ended == TERMINATED:
        discount = np.float64(0)
    return np.float32(reward), np.float32(discount), last


def fill_transition(row, first, last, reward, discount):
    """Write an n-step transition: actions and masks of its first stored step, the next mask of its last."""
    row.reward = reward
    row.discount = discount
    for k in range(len(row.action)):
        row.action[k] = first.action[k]
    for k in range(len(row.mask)):
        row.mask[k] = first.mask[k]
        row.next_mask[k] = last.next_mask[k]


def follow_costs(rows, copies, place, last, gamma, costs):
    """Compute the costs from `place` to the last step of `follow`, by constraint: c_0 + gamma c_1 + ..."""
    capacity = len(rows)
    for k in range(len(costs)):
        at, total, discount = place, np.float64(rows[place].costs[k]), np.float64(gamma)
        while at != last:
            at = at + copies if at + copies < capacity else at + copies - capacity
            total += discount * np.float64(rows[at].costs[k])
            discount *= gamma
        costs[k] = np.float32(total)


def cut_off(rows: NDArray[Any], counts: NDArray[np.int64], copies: int, which: slice = slice(None)) -> None:
    """Mark the newest steps as truncated, because new episodes begin although theirs have not ended.

    `which` selects the environments; by default all.
    """
    if counts[FILLED] == 0:
        return
    newest = (int(counts[PLACE]) - copies + np.arange(copies)[which]) % len(rows)
    ended = rows["ended"][newest]
    rows["ended"][newest] = np.where(ended == GOES_ON, TRUNCATED, ended)
