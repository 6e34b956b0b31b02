"""Validation of models before planning; errors name the state and action."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

TOLERANCE = 1e-9  # tolerance of a sum of probabilities


class ModelError(ValueError):
    """Invalid model; the message names the state, the action and the fault."""

    def __init__(self, state: Any, action: int | None, fault: str) -> None:
        self.state, self.action, self.fault = state, action, fault
        super().__init__(f"state {state!r}{'' if action is None else f', action {action}'}: {fault}")


def refuse(wrong: NDArray[np.bool_], pairs: NDArray[np.intp], actions: int, values: NDArray[Any], wanted: str) -> None:
    """Raise for the first wrong outcome, if there is one."""
    if wrong.any():
        first = int(np.argmax(wrong))
        state, action = divmod(int(pairs[first]), actions)
        raise ModelError(state, action, f"{wanted}, got {values[first].item()!r}")


def check_outcomes(
    states: int,
    actions: int,
    pairs: NDArray[np.intp],
    probabilities: NDArray[np.float64],
    next_states: NDArray[Any],
    rewards: NDArray[np.float64],
) -> None:
    """Raise for outcomes that are no distribution, have an unknown next state or a non-finite reward."""
    # The conditions are negated so that NaN is wrong too.
    refuse(~(probabilities >= 0.0), pairs, actions, probabilities, "a probability must be at least 0")
    inside = (next_states >= 0) & (next_states < states) & (next_states == np.floor(next_states))
    refuse(~inside, pairs, actions, next_states, f"a next state must be a whole number from 0 to {states - 1}")
    refuse(~np.isfinite(rewards), pairs, actions, rewards, "a reward must be finite")
    sums = np.bincount(pairs, probabilities, states * actions)
    some = np.bincount(pairs, minlength=states * actions) > 0
    every = np.arange(states * actions)
    refuse(some & ~(np.abs(sums - 1.0) <= TOLERANCE), every, actions, sums, "the probabilities must sum to 1")
    stuck = ~some.reshape(states, actions).any(axis=1)
    if stuck.any():
        state = int(np.argmax(stuck))
        raise ModelError(
            state, None, f"no action is legal; where nothing follows, give it one outcome (1.0, {state}, 0.0, True)"
        )


def check_start(start: NDArray[np.float64], states: int) -> None:
    """Raise if `start` is no distribution over the states."""
    if start.shape != (states,):
        raise ValueError(f"start must be {states} probabilities, one for each state, got the shape {start.shape}")
    if not ((start >= 0.0).all() and abs(start.sum() - 1.0) <= TOLERANCE):
        raise ValueError(f"start must be probabilities of at least 0 that sum to 1, got the sum {start.sum()}")


def checked_mask(given: ArrayLike, shape: tuple[int, ...], name: str) -> NDArray[np.bool_]:
    """Return a mask as an array; raise for another shape or dtype."""
    mask = np.asarray(given)
    if mask.shape != shape or mask.dtype != np.bool_:
        raise ValueError(f"{name} must be booleans of the shape {shape}, got {mask.dtype} of {mask.shape}")
    return mask
