"""How a tabular algorithm learns from its steps: from each at once, or when the rewards of several are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

UNKNOWN = -1  # instead of a coin: what comes next has no value that is known


class Memory(NamedTuple):
    """What a copy remembers of its episode, and how it is learnt from."""

    window: np.dtype[Any]  # the record of a copy; all zeros at first
    # (rows, current, i, action, reward, ahead, over, gamma, step) -> the error of the last value that moved: copy i
    # took `action` where it was (`current.place[i]`), got `reward`, and what comes next is worth `ahead`, 0 where
    # nothing does; `over` says whether the episode ended, `step` is the learning rate. What it will do next and where
    # it is then are `current.next_action[i]` and `current.next_place[i]`.
    remember: Callable[..., Any]
    bounds: Mapping[str, tuple[int, int]] = {}  # of the fields of a window that are counts, or places in it
    least_action: int = 0


def places_in(window: NDArray[Any]) -> NDArray[np.uint64]:
    """The places of steps that copies remember, whose values may still move."""
    return window["place"].ravel() if "place" in (window.dtype.names or ()) else np.zeros(0, np.uint64)


def memory_of(learn: Callable[..., Any], n_step: int) -> Memory:
    """Of so many steps; `learn` is that of the rule."""
    steps = [("place", np.uint64, (n_step,)), ("action", np.int32, (n_step,)), ("reward", np.float32, (n_step,))]
    window = np.dtype([("count", np.int64), *(steps if n_step > 1 else [])])
    bounds = {"count": (0, n_step - 1)}  # with one more, it would have been learnt from
    return Memory(window, one_step(learn) if n_step == 1 else n_steps(learn, n_step), bounds)


def one_step(learn: Callable[..., Any]) -> Callable[..., Any]:
    """`remember(...) -> error`: a step is learnt from as soon as it is made."""

    def remember(rows, current, i, action, reward, ahead, over, gamma, step):  # noqa: ARG001 - as n_steps
        coin = current.coin[i]
        if coin == UNKNOWN:
            return gamma * 0
        return learn(rows, current.place[i], action, reward + gamma * ahead, step, coin)

    return remember


def n_steps(learn: Callable[..., Any], n: int) -> Callable[..., Any]:
    """`remember(...)`: a step is learnt from when n rewards of it are known, or its episode is over."""

    def remember(rows, current, i, action, reward, ahead, over, gamma, step):
        window, coin = current.window[i], current.coin[i]
        count = window.count
        window.place[count] = current.place[i]
        window.action[count] = action
        window.reward[count] = reward
        count += 1
        error = gamma * 0
        if coin == UNKNOWN:
            count = 0
        elif over:
            target = ahead
            for k in range(count):
                last = count - 1 - k
                target = window.reward[last] + gamma * target
                error = learn(rows, window.place[last], window.action[last], target, step, coin)
            count = 0
        elif count == n:
            target = ahead
            for k in range(n):
                target = window.reward[n - 1 - k] + gamma * target
            error = learn(rows, window.place[0], window.action[0], target, step, coin)
            for k in range(n - 1):
                window.place[k] = window.place[k + 1]
                window.action[k] = window.action[k + 1]
                window.reward[k] = window.reward[k + 1]
            count = n - 1
        window.count = count
        return error

    return remember
