"""Safety margins: tightened limits for predictions, to allow for disturbances and model errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.constraints import Constraint, constraining
from velocirl.engine.environment import Environment
from velocirl.engine.naming import nearest


class Margins:
    """Margins by constraint name, in the units of the constraints."""

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
        """Return the environment with tightened limits; limits that are parameters are tightened by `narrow`."""
        if not self._margins:
            return self._environment
        return constraining(self._environment, tuple(map(self._tightened, self._environment.constraints)))

    def _tightened(self, constraint: Constraint) -> Constraint:
        margin = self._margins.get(constraint.name, 0.0)
        low, high = constraint.low, constraint.high
        low = low + margin if isinstance(low, (int, float)) else low
        high = high - margin if isinstance(high, (int, float)) else high
        return replace(constraint, low=low, high=high)

    def narrow(self, params: NDArray[Any]) -> NDArray[Any]:
        """Return the parameters with tightened limits; changes them in place."""
        for one in self._environment.constraints:
            margin = self._margins.get(one.name, 0.0)
            for limit, change in ((one.low, margin), (one.high, -margin)):
                if isinstance(limit, str) and change:
                    bounds = self._environment.params.bounds.get(limit, (-np.inf, np.inf))
                    params[limit] = np.clip(params[limit] + change, *bounds)
        return params
