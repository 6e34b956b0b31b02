"""Validation of a caller's actions against the space, and their copy into the fleet's array."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Space
from numpy.typing import NDArray

from velocirl.engine.action_parts import counts_of, has_parts, parts_of
from velocirl.engine.environment import Environment

# Viewed as unsigned, a negative action is huge: one comparison finds both kinds of invalid actions.
_UNSIGNED = {np.dtype(f"{kind}{size}"): np.dtype(f"u{size}") for kind in "iu" for size in (1, 2, 4, 8)}


def gate_for(environment: Environment, into: NDArray[Any]) -> ActionGate | PartsGate:
    """Return the validator that copies actions of an environment into an array."""
    kind = PartsGate if has_parts(environment.action) else ActionGate
    return kind(environment.id, environment.action, into)


class ActionGate:
    """Validator that copies the actions of a step into the fleet if all of them are in the space, else none."""

    def __init__(self, name: str, space: Space[Any], into: NDArray[Any], part: str = "") -> None:
        """Prepare the validator; `part` follows "actions" in messages."""
        self._name, self._space, self._part = name, space, part
        self.into = into
        self._continuous = isinstance(space, Box)
        if isinstance(space, Box):
            self._low, self._high = space.low.astype(np.float32), space.high.astype(np.float32)
            self._bounded = space.is_bounded()
        else:
            counts = counts_of(space)
            self._scalar = isinstance(space, Discrete)
            self._counts = counts[0] if self._scalar else np.array(counts).reshape(space.shape or ())

    def take(self, actions: Any) -> None:
        """Validate the actions, one for each environment, and copy them."""
        self.into[...] = self.check(actions)

    def take_one(self, action: Any) -> None:
        """Validate and copy the action of a single environment."""
        self.take(np.asarray(action)[None])

    def check(self, actions: Any) -> NDArray[Any]:
        """Return the actions as an array; raises ValueError unless all of them are in the space."""
        given = np.asarray(actions)
        if given.shape != self.into.shape:
            raise self._refusal(f"have shape {given.shape}; give {self.into.shape}, one action for each copy")
        if self._continuous:
            self._check_numbers(given)
        else:
            self._check_choices(given)
        return given

    def _check_choices(self, given: NDArray[Any]) -> None:
        unsigned = _UNSIGNED.get(given.dtype)
        if unsigned is None:
            raise self._refusal(f"are {given.dtype}; give integers within {self._space}")
        codes = given.view(unsigned)
        if np.maximum.reduce(codes) >= self._counts if self._scalar else (codes >= self._counts).any():
            self._refuse(given, codes < self._counts)

    def _check_numbers(self, given: NDArray[Any]) -> None:
        if given.dtype.kind not in "fiu":
            raise self._refusal(f"are {given.dtype}; give numbers within {self._space}")
        with np.errstate(over="ignore"):
            taken = given.astype(np.float32)  # as the fleet sees it: a double may be infinite there
        within = (taken >= self._low) & (taken <= self._high)  # false for NaN
        if not self._bounded:
            within &= np.isfinite(taken)
        if not within.all():
            self._refuse(given, within)

    def _refuse(self, given: NDArray[Any], within: NDArray[np.bool_]) -> None:
        copy = int(np.argwhere(~within)[0][0])
        raise ValueError(
            f"{self._name}: the action{self._part} of copy {copy} is {given[copy]}, outside {self._space};"
            " clip it, or check the agent for NaN"
        )

    def _refusal(self, what: str) -> ValueError:
        return ValueError(f"{self._name}: actions{self._part} {what}")


class PartsGate:
    """Validator of composite actions: a dict or a tuple with one array per part.

    All parts are validated before any is copied, so one invalid part rejects the whole step.
    """

    def __init__(self, name: str, space: Space[Any], into: NDArray[Any]) -> None:
        self._name, self._space = name, space
        self.into = into
        parts = parts_of(space)
        self._keys = [part.path[0] for part in parts]
        self._gates = [ActionGate(name, part.space, into[part.name], f"[{part.path[0]!r}]") for part in parts]

    def take(self, actions: Any) -> None:
        """Validate the actions, one row of each part for each environment, and copy them."""
        given = [gate.check(part) for gate, part in zip(self._gates, self._split(actions), strict=True)]
        for name, part in zip(self.into.dtype.names or (), given, strict=True):
            self.into[name] = part

    def take_one(self, action: Any) -> None:
        """Validate and copy the action of a single environment."""
        parts = [np.asarray(part)[None] for part in self._split(action)]
        self.take(dict(zip(self._keys, parts, strict=True)) if isinstance(self._space, Dict) else tuple(parts))

    def _split(self, actions: Any) -> list[Any]:
        if isinstance(self._space, Dict):
            if isinstance(actions, Mapping) and actions.keys() == set(self._keys):
                return [actions[key] for key in self._keys]
            wanted = f"a dict of {', '.join(map(repr, self._keys))}"
            got = f"one of {', '.join(map(repr, actions)) or 'nothing'}" if isinstance(actions, Mapping) else None
        else:
            if isinstance(actions, (tuple, list)) and len(actions) == len(self._keys):
                return list(actions)
            wanted = f"a tuple of {len(self._keys)}"
            got = f"one of {len(actions)}" if isinstance(actions, (tuple, list)) else None
        raise ValueError(f"{self._name}: an action is {wanted}, got {got or f'a {type(actions).__name__}'}")
