"""Models of environments whose states are not numbered, found by following the possible outcomes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from velocirl.tabular.planning.faults import ModelError
from velocirl.tabular.planning.models import TabularModel

Key = TypeVar("Key", bound=Hashable)


def explore_model(
    start: Mapping[Key, float] | Iterable[Key],
    outcomes: Callable[[Key], Mapping[int, Sequence[tuple[float, Key, float, bool]]]],
    *,
    actions: int | None = None,
    max_states: int = 1_000_000,
) -> tuple[TabularModel, list[Key]]:
    """Return the model of all reachable states, and the key of each state in the order of their numbers.

    `start` contains the keys where episodes begin: with their probabilities, or equally likely ones. `outcomes(key)`
    returns `{action: [(probability, next key, reward, terminated), ...]}` of the legal actions. The next key of a
    terminated outcome is ignored, and need not be a state.
    """
    begins = dict(start) if isinstance(start, Mapping) else _evenly(start)
    keys: list[Key] = list(begins)
    numbers = {key: number for number, key in enumerate(keys)}
    table: list[dict[int, list[tuple[float, int, float, bool]]]] = []
    for key in keys:  # grows as states are found
        offered: dict[int, list[Any]] = {}
        for action, follows in outcomes(key).items():
            offered[action] = []
            for outcome in follows:
                probability, next_key, reward, terminated = _four(outcome, key, action)
                if terminated:
                    next_key = key  # any state would do
                elif next_key not in numbers:
                    numbers[next_key] = len(keys)
                    keys.append(next_key)
                offered[action].append((probability, numbers[next_key], reward, terminated))
        table.append(offered)
        if len(keys) > max_states:
            raise ValueError(
                f"more than {max_states} states can be reached: raise max_states, or make the world smaller"
            )
    shares = np.zeros(len(keys))
    shares[: len(begins)] = list(begins.values())
    try:
        return TabularModel.from_outcomes(table, actions=actions, start=shares), keys
    except ModelError as error:
        raise ModelError(keys[error.state], error.action, error.fault) from None


def _evenly(start: Iterable[Key]) -> dict[Key, float]:
    keys = list(dict.fromkeys(start))
    if not keys:
        raise ValueError("start must have at least one state")
    return dict.fromkeys(keys, 1.0 / len(keys))


def _four(outcome: Any, key: Any, action: int) -> tuple[Any, Any, Any, Any]:
    if not isinstance(outcome, Sequence) or len(outcome) != 4:
        raise ModelError(
            key, action, f"an outcome must be (probability, next_state, reward, terminated), got {outcome!r}"
        )
    return outcome[0], outcome[1], outcome[2], outcome[3]
