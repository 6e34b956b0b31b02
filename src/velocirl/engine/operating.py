"""Declarations for operating an environment: signals, actuators, time step, scenarios and controller."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from velocirl.engine.action_parts import has_parts, parts_of
from velocirl.engine.drawing import Draw, as_draw, drawing
from velocirl.engine.errors import DefinitionError
from velocirl.engine.naming import nearest

if TYPE_CHECKING:
    from velocirl.engine.environment import Environment

TIME_STEP = "time_step"  # the parameter that declares the time step, in environments that have one


def declared_time_step(environment: Environment) -> float | None:
    """Return the seconds of one `step`: `time_step=`, or the default of the parameter `time_step`; None without."""
    given, record = environment.time_step, environment.params
    if given is not None:
        if isinstance(given, bool) or not isinstance(given, (int, float, np.integer, np.floating)):
            raise DefinitionError(f"{environment.id}: time_step must be a number of seconds, got {given!r}")
        if not (isfinite(given) and given > 0.0):
            raise DefinitionError(f"{environment.id}: time_step must be above 0 seconds, got {given}")
    if not _has_own_time_step(environment):
        return None if given is None else float(given)
    default = float(str(record.rows(1)[TIME_STEP][0]))  # 0.05 in single precision is 0.05
    if given is not None and given != default:
        raise DefinitionError(
            f"{environment.id}: time_step={given} contradicts {record.name}.{TIME_STEP}={default}: keep one of them"
        )
    return default if default > 0.0 else None


def action_seconds(environment: Environment, params: Mapping[str, Any] | None = None) -> float | None:
    """Return the seconds between two actions with these parameters; None without a declared or a single time step."""
    declared = environment.time_step
    value = (params or {}).get(TIME_STEP, declared) if _has_own_time_step(environment) else declared
    if value is None or as_draw(value) is not None or np.size(value) > 1:
        return None
    return float(value) * environment.skip


def seconds_by_row(environment: Environment, params: NDArray[Any]) -> NDArray[np.float64] | None:
    """Return the seconds between two actions for each row of parameters, with `skip`; None without a time step."""
    if _has_own_time_step(environment):
        values, places = np.unique(params[TIME_STEP], return_inverse=True)
        return np.array([float(str(value)) for value in values])[places] * environment.skip
    return None if environment.time_step is None else np.full(len(params), environment.time_step * environment.skip)


def _has_own_time_step(environment: Environment) -> bool:
    record = environment.params
    return TIME_STEP in record.fields and not record.dtype[TIME_STEP].shape


def check_operation(environment: Environment) -> None:
    """Raise DefinitionError for signals, actuators, scenarios or a controller that do not fit the environment."""
    for what, names, space in (
        ("signals", environment.signals, environment.frame),
        ("actuators", environment.actuators, environment.action),
    ):
        _check_names(environment, what, names, space)
    if not isinstance(environment.scenarios, Mapping):
        raise DefinitionError(f"{environment.id}: scenarios= must be a dict of params by name")
    for name, params in environment.scenarios.items():
        _check_scenario(environment, name, params)
    _check_controller(environment)


def params_in(environment: Environment, scenario: str | None, params: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the parameters of a scenario, overridden by `params`."""
    if scenario is None:
        return dict(params or {})
    if scenario not in environment.scenarios:
        instead = nearest(str(scenario), environment.scenarios)
        raise ValueError(f"{environment.id} has no scenario {scenario!r}{instead}")
    return {**environment.scenarios[scenario], **(params or {})}


def _size(space: gymnasium.Space[Any]) -> int:
    """Return the number of elements of an observation or an action."""
    if has_parts(space):
        return sum(_size(part.space) for part in parts_of(space))
    return 1 if isinstance(space, Discrete) else int(np.prod(space.shape or ()))


def _check_names(environment: Environment, what: str, names: Mapping[str, str], space: gymnasium.Space[Any]) -> None:
    if not isinstance(names, Mapping) or not all(isinstance(one, str) for pair in names.items() for one in pair):
        raise DefinitionError(f"{environment.id}: {what}= must be a dict of units by name, such as {{'level': 'm'}}")
    if names and len(names) != (size := _size(space)):
        raise DefinitionError(f"{environment.id}: {what}= has {len(names)} names, and {space} has {size} numbers")


def _check_scenario(environment: Environment, name: str, params: Any) -> None:
    place = f"{environment.id}: scenario {name!r}"
    if not isinstance(name, str) or not isinstance(params, Mapping):
        raise DefinitionError(f"{place} must be a dict of params, got {params!r}")
    for field in params:
        if field not in environment.params.fields:
            raise DefinitionError(f"{place} sets {field!r}{environment.params.suggestion(field)}")
    try:
        drawn = tuple(field for field, value in params.items() if isinstance(as_draw(value), Draw))
        record = (drawing(environment, drawn) if drawn else environment).params
        record.fill(np.zeros(1, record.dtype), params)
    except ValueError as error:
        raise DefinitionError(f"{place}: {error}") from None


def _check_controller(environment: Environment) -> None:
    """Raise DefinitionError unless the controller has `predict` and names only known signals and actuators."""
    controller = environment.controller
    if controller is None:
        return
    if not callable(getattr(controller, "predict", None)):
        raise DefinitionError(
            f"{environment.id}: controller= must have predict(observation), as those of velocirl.controllers have, got"
            f" {controller!r}"
        )
    for what in ("signals", "actuators"):
        known = getattr(environment, what)
        for name in getattr(controller, what, ()):
            if name not in known:
                raise DefinitionError(
                    f"{environment.id}: its controller names {name!r}, which is none of the {what}"
                    f"{nearest(name, known)}"
                )


def bound_controller(environment: Environment) -> Any:
    """Return the environment's controller, bound to its signals and actuators; None without one."""
    bind = getattr(environment.controller, "bind", None)
    if bind is None:
        return environment.controller
    try:
        return bind(environment)
    except ValueError as error:
        raise DefinitionError(f"{environment.id}: controller= does not fit: {error}") from None
