"""Environment parameters in a configuration: numbers, distributions, or one number per environment.

Gymnasium's environments take keyword arguments of any kind. JSON-compatible values are saved with the run. Any other
value is replaced by a description of its type; loading the run then asks the user for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.drawing import Draw, as_draw, draw_of, is_draw
from velocirl.engine.environment import Environment

Params = dict[str, Any]
NOT_SAVED = "not saved"  # key that marks an object that files cannot hold; its value is the object's type


def known_params(environment: Environment, params: Mapping[str, Any]) -> Params:
    """Return the parameters of a compiled environment in its own types; raises for unknown or invalid ones."""
    try:
        for name, value in params.items():
            count = len(value) if is_per_copy(environment, name, value) else 1
            environment.params.rows(count, {name: value})
    except ValueError as error:
        raise ValueError(f"{environment.id}: {error}") from None
    return {name: as_draw(value) or value for name, value in params.items()}


def changed_params(environment: Environment, rows: NDArray[Any]) -> Params:
    """Return the parameters in `rows` that differ from defaults: numbers, lists per environment, distributions."""
    params, defaults = {}, (environment.plain or environment).params.rows(1)[0]
    for name in environment.params.fields:
        if name in environment.drawn:
            params[name] = draw_of(rows[0], name)
        elif (rows[name] != rows[name][0]).any():
            params[name] = rows[name].tolist()
        elif not np.array_equal(rows[name][0], defaults[name]):
            params[name] = rows[name][0].tolist()
    return params


def keyword_arguments(environment: str, params: Mapping[str, Any]) -> Params:
    """Return keyword arguments for a Gymnasium environment; raises for distributions and for unsaved objects."""
    for name, value in params.items():
        if is_draw(value):
            raise ValueError(
                f"{environment} takes its parameters when it is made, and cannot draw {name} from {value} for each"
                " episode: give a value, or use a native environment (velocirl envs)"
            )
        if isinstance(value, Mapping) and set(value) == {NOT_SAVED}:
            raise ValueError(
                f"{name} of {environment} was a {value[NOT_SAVED]}, which no file holds: give params={{{name!r}: ...}}"
            )
    return dict(params)


def is_per_copy(environment: Environment, name: str, value: Any) -> bool:
    """Return whether a value has one entry per environment."""
    known = name in environment.params.fields and isinstance(value, (Sequence, np.ndarray))
    return known and not isinstance(value, str) and np.ndim(value) > len(environment.params.dtype[name].shape)


def of_copies(environment: Environment | None, params: Params, copies: NDArray[np.integer[Any]]) -> Params:
    """Return the parameters of some environments, by index."""
    if environment is None:
        return params
    return {
        name: np.asarray(value)[copies] if is_per_copy(environment, name, value) else value
        for name, value in params.items()
    }


def spread(environment: Environment | None, params: Params, count: int) -> Params:
    """Return parameters for `count` environments; values per environment are spread over them evenly."""
    if environment is None:
        return params
    return {
        name: np.asarray(value)[np.arange(count) * len(value) // count]
        if is_per_copy(environment, name, value)
        else value
        for name, value in params.items()
    }


def check_copies(environment: Environment | None, params: Params, num_envs: int) -> None:
    """Raise if values per environment do not match the number of environments."""
    for name, value in params.items():
        if environment is not None and is_per_copy(environment, name, value) and len(value) != num_envs:
            raise ValueError(
                f"{environment.id}: params have {len(value)} values of {name}, and num_envs is {num_envs}; give one"
                " value, or one for each copy"
            )


def changed_rows(environment: Environment, params: Params, rows: NDArray[Any]) -> NDArray[Any]:
    """Return new parameter rows of running environments; randomized parameters stay until the episode ends."""
    new = environment.params.rows(len(rows), params)
    for name in environment.drawn:
        new[name] = rows[name]
    return new


def savable(value: Any) -> Any:
    """Return a parameter as JSON can hold it, or the description of its type."""
    if isinstance(value, Draw):
        return str(value)
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: savable(one) for key, one in value.items()}
    if isinstance(value, (tuple, list)):
        return [savable(one) for one in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return {NOT_SAVED: getattr(value, "__qualname__", type(value).__qualname__)}
