"""Limits that a prediction must keep with room to spare, for what no model knows: disturbances, and its own errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.constraints import Constraint
from velocirl.engine.environment import Environment
from velocirl.engine.naming import nearest


class Margins:
    """Room to spare, in the units of constraints by their names."""

    def __init__(self, environment: Environment, given: Mapping[str, float] | None) -> None:
        self._margins = dict(given or {})
        known = [one.name for one in environment.constraints]
        for name, margin in self._margins.items():
            if name not in known:
                raise ValueError(f"{environment.id} has no constraint {name!r}{nearest(name, known)}")
            if not (isfinite(margin) and margin >= 0.0):
                raise ValueError(f"margin of {name!r} must be at least 0, got {margin}")
        self._environment = environment

    def model(self) -> Environment:
        """The environment with limits that are so much narrower; those that are parameters `narrow` changes."""
        if not self._margins:
            return self._environment
        twin = object.__new__(Environment)
        vars(twin).update(vars(self._environment))
        vars(twin).update(constraints=tuple(map(self._tightened, self._environment.constraints)))
        return twin

    def _tightened(self, constraint: Constraint) -> Constraint:
        margin = self._margins.get(constraint.name, 0.0)
        low, high = constraint.low, constraint.high
        low = low + margin if isinstance(low, (int, float)) else low
        high = high - margin if isinstance(high, (int, float)) else high
        return replace(constraint, low=low, high=high)

    def narrow(self, params: NDArray[Any]) -> NDArray[Any]:
        """Parameters in which the limits are so much narrower."""
        for one in self._environment.constraints:
            margin = self._margins.get(one.name, 0.0)
            for limit, change in ((one.low, margin), (one.high, -margin)):
                if isinstance(limit, str) and change:
                    bounds = self._environment.params.bounds.get(limit, (-np.inf, np.inf))
                    params[limit] = np.clip(params[limit] + change, *bounds)
        return params
