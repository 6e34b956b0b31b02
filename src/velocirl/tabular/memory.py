"""Backups: one-step updates, or n-step updates once n rewards are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

UNKNOWN = -1  # in place of a coin: the next state has no known value


class Memory(NamedTuple):
    """Steps that an environment stores of its episode, and the function that learns from them."""

    window: np.dtype[Any]  # record of one environment; all zeros at first
    # (rows, current, i, action, reward, ahead, over, gamma, step) -> the error of the last updated value. Environment i
    # took `action` in the state of `current.place[i]` and got `reward`. `ahead` is the value of the next state, 0 if
    # there is none. `over` is whether the episode ended, `step` the learning rate. The next action and the row of the
    # next state are `current.next_action[i]` and `current.next_place[i]`.
    remember: Callable[..., Any]
    bounds: Mapping[str, tuple[int, int]] = {}  # of window fields that are counts or offsets in it
    least_action: int = 0


def places_in(window: NDArray[Any]) -> NDArray[np.uint64]:
    """Return the rows of stored steps whose values may still change."""
    return window["place"].ravel() if "place" in (window.dtype.names or ()) else np.zeros(0, np.uint64)


def memory_of(learn: Callable[..., Any], n_step: int) -> Memory:
    """Build the n-step backup; `learn` is the rule's update function."""
    steps = [("place", np.uint64, (n_step,)), ("action", np.int32, (n_step,)), ("reward", np.float32, (n_step,))]
    window = np.dtype([("count", np.int64), *(steps if n_step > 1 else [])])
    bounds = {"count": (0, n_step - 1)}  # with one more, it would have been learned from
    return Memory(window, one_step(learn) if n_step == 1 else n_steps(learn, n_step), bounds)


def one_step(learn: Callable[..., Any]) -> Callable[..., Any]:
    """Compose `remember(...) -> error`, which learns from each step at once."""

    def remember(rows, current, i, action, reward, ahead, over, gamma, step):  # noqa: ARG001 - as n_steps
        coin = current.coin[i]
        if coin == UNKNOWN:
            return gamma * 0
        return learn(rows, current.place[i], action, reward + gamma * ahead, step, coin)

    return remember


def n_steps(learn: Callable[..., Any], n: int) -> Callable[..., Any]:
    """Compose `remember(...) -> error`, which learns from a step once n rewards are known or the episode is over."""

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
