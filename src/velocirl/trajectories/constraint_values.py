"""Values, limits and costs of constraints in recorded states."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.constraints import Constraint
from velocirl.engine.environment import Environment
from velocirl.engine.records import with_attributes
from velocirl.trajectories.trajectory import ConstraintTrace

Array = NDArray[Any]


def traces_of(environment: Environment, states: Array, params: Array, costs: Array) -> dict[str, ConstraintTrace]:
    """Return each constraint's trace over states (rows,), given their parameters and costs (rows, constraints)."""
    real = np.float64 if environment.double else np.float32
    return {
        one.name: ConstraintTrace(
            values=_values(one, states, params, real),
            low=_limit(one.low, params, -inf, real),
            high=_limit(one.high, params, inf, real),
            cost=np.ascontiguousarray(costs[:, place]),
            unit=one.unit,
            critical=one.critical,
            signal=_signal(environment, one),
        )
        for place, one in enumerate(environment.constraints)
    }


def _values(constraint: Constraint, states: Array, params: Array, real: Any) -> Array:
    if isinstance(constraint.value, str):
        return states[constraint.value].astype(real)
    pairs = zip(with_attributes(states), with_attributes(params), strict=True)
    return np.array([constraint.value(state, own) for state, own in pairs], real)


def _limit(limit: float | str | None, params: Array, without: float, real: Any) -> Array:
    if isinstance(limit, str):
        return params[limit].astype(real)
    return np.full(len(params), without if limit is None else limit, real)


def _signal(environment: Environment, constraint: Constraint) -> str | None:
    """Return the signal that a constraint limits, if its name shows it: plots draw the limits with that signal."""
    for name in (constraint.value, constraint.name):
        if isinstance(name, str) and environment.signals.get(name) == constraint.unit:
            return name
    return None
