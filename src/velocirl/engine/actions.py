"""Taking actions from a caller: checked against the space, then copied into the fleet's own array."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from velocirl.engine.environment import Environment

# Read as unsigned, a negative action is a huge one: one comparison finds both kinds of wrong.
_UNSIGNED = {np.dtype(f"{kind}{size}"): np.dtype(f"u{size}") for kind in "iu" for size in (1, 2, 4, 8)}


class ActionGate:
    """Copies the actions of one step into the fleet if all of them lie in the space, and nothing otherwise."""

    def __init__(self, environment: Environment, into: NDArray[Any]) -> None:
        self._environment = environment
        self._into = into
        space: Any = environment.action
        self._continuous = isinstance(space, Box)
        self._counts = None if self._continuous else space.n if isinstance(space, Discrete) else space.nvec
        self._scalar = isinstance(space, Discrete)
        self._bounded = isinstance(space, Box) and space.is_bounded()

    def take(self, actions: Any) -> None:
        """Check the actions, one for each copy, and copy them."""
        given = np.asarray(actions)
        if given.shape != self._into.shape:
            raise self._refusal(f"have shape {given.shape}; give {self._into.shape}, one action for each copy")
        if self._continuous:
            self._check_numbers(given)
        else:
            self._check_choices(given)
        self._into[...] = given

    def _check_choices(self, given: NDArray[Any]) -> None:
        unsigned = _UNSIGNED.get(given.dtype)
        if unsigned is None:
            raise self._refusal(f"are {given.dtype}; give integers within {self._environment.action}")
        codes = given.view(unsigned)
        if np.maximum.reduce(codes) >= self._counts if self._scalar else (codes >= self._counts).any():
            self._refuse(given, codes < self._counts)

    def _check_numbers(self, given: NDArray[Any]) -> None:
        space: Any = self._environment.action
        if given.dtype.kind not in "fiu":
            raise self._refusal(f"are {given.dtype}; give numbers within {space}")
        with np.errstate(over="ignore"):
            taken = given.astype(np.float32)  # as the fleet will see it: a double may be infinite there
        within = (taken >= space.low) & (taken <= space.high)  # false for NaN
        if not self._bounded:
            within &= np.isfinite(taken)
        if not within.all():
            self._refuse(given, within)

    def _refuse(self, given: NDArray[Any], within: NDArray[np.bool_]) -> None:
        copy = int(np.argwhere(~within)[0][0])
        raise ValueError(
            f"{self._environment.id}: the action of copy {copy} is {given[copy]}, outside {self._environment.action};"
            " clip it, or check the agent for NaN"
        )

    def _refusal(self, what: str) -> ValueError:
        return ValueError(f"{self._environment.id}: actions {what}")
