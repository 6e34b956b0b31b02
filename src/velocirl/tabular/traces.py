"""Eligibility traces: an error also updates earlier state-action pairs, each less the older it is.

The traces of an environment are a window of its last pairs; the trace of a pair is (gamma lambda) ** age. The window
ends at the age at which traces fall below 1/1,000, and has at most 500 pairs. So the time of a step is bounded even if
gamma lambda is 1.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, log
from typing import Any

import numpy as np

from velocirl.tabular.memory import UNKNOWN, Memory
from velocirl.tabular.tables.rules import Rule, shift_single

FAINTEST = 1e-3  # a lower trace is dropped
LONGEST = 500  # pairs
REPLACED = -1  # in place of the action of a pair that was visited again since


def window_length(fading: float) -> int:
    """Return the number of pairs whose traces are kept, each `fading` times the one after it."""
    if fading <= FAINTEST:
        return 1
    return LONGEST if fading >= 1 else min(ceil(log(FAINTEST) / log(fading)), LONGEST)


def memory_of_traces(rule: Rule, gamma: float, trace_decay: float, *, accumulating: bool) -> Memory:
    """Build the memory of Watkins's Q(lambda), for rules with one set of values."""
    length = window_length(gamma * trace_decay)
    window = np.dtype(
        [
            ("count", np.int64),
            ("newest", np.int64),  # its index in the ring
            ("greedy", np.int64),  # whether the next action is greedy
            ("place", np.uint64, (length,)),
            ("action", np.int32, (length,)),
        ]
    )
    bounds = {"count": (0, length), "newest": (0, length - 1), "greedy": (0, 1)}
    return Memory(window, tracing(rule, length, trace_decay, accumulating), bounds, REPLACED)


def tracing(rule: Rule, length: int, trace_decay: float, accumulating: bool) -> Callable[..., Any]:
    """Compose `remember(...) -> error`: learn from a step at once, together with the steps that led to it."""
    learn, value = rule.learn, rule.value

    def see_what_is_greedy(rows, current):
        for k in range(len(current.place)):
            greedy = value(rows, current.next_place[k], current.next_action[k]) >= current.ahead[k]
            current.window[k].greedy = 1 if greedy else 0

    def remember(rows, current, i, action, reward, ahead, over, gamma, step):
        if i == 0:  # the first of a round: the table has not changed since the next actions were chosen
            see_what_is_greedy(rows, current)
        window, place, coin = current.window[i], current.place[i], current.coin[i]
        if coin == UNKNOWN:
            window.count = 0
            return gamma * 0
        error = learn(rows, place, action, reward + gamma * ahead, step, coin)
        shift = step * error
        count, k = window.count, window.newest
        for _ in range(count):
            shift *= gamma * trace_decay
            if not accumulating and window.place[k] == place and window.action[k] == action:
                window.action[k] = REPLACED
            if window.action[k] != REPLACED:
                shift_single(rows, window.place[k], window.action[k], shift)
            k = k - 1 if k > 0 else length - 1
        if over or window.greedy == 0:
            window.count = 0
        else:
            newest = window.newest + 1 if window.newest < length - 1 else 0
            window.place[newest] = place
            window.action[newest] = action
            window.newest = newest
            window.count = min(count + 1, length)
        return error

    return remember
