"""Conversion of the input formats of a model to columns of outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from velocirl.tabular.planning.faults import ModelError, checked_mask

# [(probability, next state, reward, terminated), ...] for each legal action of a state.
Actions: TypeAlias = Mapping[int, Sequence[tuple[Any, ...]]] | Sequence[Sequence[tuple[Any, ...]]]


class Columns(NamedTuple):
    """Outcomes in the order of their pairs, `state * actions + action`."""

    pairs: NDArray[np.intp]
    probabilities: NDArray[np.float64]
    next_states: NDArray[Any]
    rewards: NDArray[np.float64]
    terminated: NDArray[np.bool_]


def read_arrays(
    probabilities: ArrayLike, rewards: ArrayLike, terminal: ArrayLike | None, legal: ArrayLike | None
) -> tuple[int, int, NDArray[np.bool_], Columns]:
    """Return the number of states and actions, the legal mask, and the outcomes of dense arrays."""
    dense = np.array(probabilities, np.float64)  # a copy: the rows of terminal states change
    if dense.ndim != 3 or dense.shape[0] != dense.shape[2] or dense.size == 0:
        raise ValueError(f"probabilities must have the shape (states, actions, states), got {dense.shape}")
    states, actions, _ = dense.shape
    paid = np.asarray(rewards, np.float64)
    if paid.shape == (states, actions):
        paid = paid[:, :, None]
    elif paid.shape != dense.shape:
        raise ValueError(f"rewards must have the shape {(states, actions)} or {dense.shape}, got {paid.shape}")
    paid = np.array(np.broadcast_to(paid, dense.shape))

    over = np.zeros(states, np.bool_) if terminal is None else checked_mask(terminal, (states,), "terminal")
    dense[over], paid[over] = 0.0, 0.0
    dense[over, :, over] = 1.0
    mask = np.ones((states, actions), np.bool_) if legal is None else checked_mask(legal, (states, actions), "legal")
    mask = mask | over[:, None]
    found = np.nonzero((dense != 0.0) & mask[:, :, None])
    state, action, next_state = found
    return (
        states,
        actions,
        mask,
        Columns(state * actions + action, dense[found], next_state, paid[found], over[next_state]),
    )


def read_lists(
    table: Mapping[int, Actions] | Sequence[Actions], actions: int | None, legal: ArrayLike | None
) -> tuple[int, int, NDArray[np.bool_], Columns]:
    """Return the number of states and actions, the legal mask, and the outcomes of nested lists or mappings."""
    rows, widest = [], 1
    for state, offered in _in_order(table, "states"):
        for action, outcomes in _in_order(offered, f"the actions of state {state}", gaps=True):
            widest = max(widest, action + 1)
            rows.extend((state, action, *_numbers(outcome, state, action)) for outcome in outcomes)
    states, actions = len(table), widest if actions is None else actions
    if states == 0:
        raise ValueError("a model needs at least one state")
    if actions < widest:
        raise ValueError(f"there are outcomes for {widest} actions, but actions is {actions}")

    columns = np.array(rows, np.float64).reshape(-1, 6).T
    pairs = columns[0].astype(np.intp) * actions + columns[1].astype(np.intp)
    if legal is None:
        mask = (np.bincount(pairs, minlength=states * actions) > 0).reshape(states, actions)
    else:
        mask = checked_mask(legal, (states, actions), "legal")
    kept = mask.ravel()[pairs]
    _, _, probabilities, next_states, rewards, terminated = columns[:, kept]
    return states, actions, mask, Columns(pairs[kept], probabilities, next_states, rewards, terminated != 0.0)


def _in_order(numbered: Any, name: str, gaps: bool = False) -> list[tuple[int, Any]]:
    """Return (number, item) pairs of a list or of a mapping with integer keys from 0; only actions may have gaps."""
    if not isinstance(numbered, Mapping):
        return list(enumerate(numbered))
    keys = sorted(numbered)
    if any(not isinstance(key, int | np.integer) or key < 0 for key in keys):
        raise ValueError(f"{name} must be numbered from 0, got {keys}")
    if not gaps and keys != list(range(len(keys))):
        missing = next(number for number in range(len(keys)) if number not in numbered)
        raise ValueError(f"{name} must be numbered from 0 without gaps: {missing} is missing")
    return [(int(key), numbered[key]) for key in keys]


def _numbers(outcome: Any, state: int, action: int) -> tuple[float, ...]:
    try:
        probability, next_state, reward, terminated = outcome
        return float(probability), float(next_state), float(reward), float(bool(terminated))
    except (TypeError, ValueError):
        fault = f"an outcome must be (probability, next_state, reward, terminated), got {outcome!r}"
        raise ModelError(state, action, fault) from None
