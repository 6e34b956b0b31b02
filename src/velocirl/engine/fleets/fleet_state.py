"""Validation of a fleet's saved state, before compiled code continues from it."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete, MultiDiscrete
from numpy.typing import NDArray

from velocirl.engine.action_parts import counts_of
from velocirl.engine.checking.rehearsal import try_state
from velocirl.engine.disk.saved import ArraySpec, Specs, StateError, check_arrays, records, streams
from velocirl.engine.environment import Environment
from velocirl.engine.errors import DefinitionError
from velocirl.engine.fleets.fleet import observed, time_limit

SECONDS = 0.25  # for trying environments in plain Python


def fleet_specs(environment: Environment, count: int, limit: int | None = None) -> Specs:
    """Return the specifications of the arrays from `get_state`; `limit` replaces the environment's own time limit."""
    state, params = environment.state, environment.params
    shape, dtype = observed(environment, count)
    low, high = bounds_of(environment.observation)
    last = (time_limit(environment) if limit is None else limit) - 1
    width = environment.num_masked if environment.legal else 1
    costs = ArraySpec(np.float32, (count, len(environment.constraints)), 0)
    return {
        # Fields of a user's state may be infinite; only bounds that are declared are checked.
        "state": records(state.dtype, (count,), state.bounds, finite=False),
        "params": records(params.dtype, (count,), params.bounds),
        "rng": streams(count),
        "elapsed": ArraySpec(np.int32, (count,), 0, last),
        "total": ArraySpec(np.float32, (count,)),
        "observation": ArraySpec(dtype, shape, low, high),
        "mask": ArraySpec(np.int8, (count, width), 0, 1),
        **({"cost_total": costs} if environment.constraints else {}),
    }


def check_fleet(
    environment: Environment, state: Mapping[str, NDArray[Any]], count: int, limit: int | None = None
) -> None:
    """Raise StateError for a state that a fleet of `count` environments cannot have."""
    check_arrays(state, fleet_specs(environment, count, limit))
    _check_choices(environment, state["mask"])


def try_copies(environment: Environment, state: Mapping[str, NDArray[Any]]) -> None:
    """Observe and step environments once in plain Python, which raises where compiled code would access wrong memory.

    Integers in a user's state may be indices without declared limits; if all of them have bounds, those were checked
    already. As many environments are tried as a quarter of a second allows.
    """
    fields = environment.state
    if not any(fields.dtype[name].base.kind in "iu" and name not in fields.bounds for name in fields.fields):
        return
    deadline = perf_counter() + SECONDS
    for copy in np.random.default_rng(0).permutation(len(state["elapsed"])).tolist():
        try:
            try_state(environment, *(state[name][copy : copy + 1] for name in ("state", "params", "rng")))
        except DefinitionError as error:
            raise StateError(f"state[{copy}] is not one of {environment.id}: {error}") from None
        if perf_counter() > deadline:
            return


def bounds_of(space: Any) -> tuple[Any, Any]:
    """Return minimum and maximum of an observation that becomes an index; a Box may be anything finite."""
    if isinstance(space, Discrete):
        return int(space.start), int(space.start + space.n - 1)
    if isinstance(space, MultiDiscrete):
        return space.start.reshape(-1), (space.start + space.nvec - 1).reshape(-1)
    return None, None


def _check_choices(environment: Environment, mask: NDArray[Any]) -> None:
    """Raise StateError for a mask without a legal action: sampling would fail."""
    if environment.legal is None:
        return
    for group in np.split(mask, np.cumsum(counts_of(environment.action))[:-1], axis=1):
        if not (some := group.any(axis=1)).all():
            raise StateError(f"mask[{int(np.argmin(some))}] leaves no action legal")
