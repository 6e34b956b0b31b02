"""External environments as factories: a Gymnasium environment, functions that make one, or lists of both."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from velocirl.engine.warning import warn_caller
from velocirl.vector.checked_env import CheckedEnv
from velocirl.vector.single import SingleEnv

GIVEN = "given:"  # name prefix of environments that no id can find again
# Gymnasium's standard wrappers; a compiled fleet implements their functions itself.
STANDARD = (PassiveEnvChecker, CheckedEnv, OrderEnforcing, TimeLimit)
OF_VECTORS = ("num_envs", "vectorization_mode")  # added by make_vec to an environment's own arguments
Making = Callable[..., gymnasium.Env]


def copies_of(environment: gymnasium.Env) -> Making:
    """Return a factory of copies of an environment, with its wrappers and attributes; the original is not changed."""

    def make_copy() -> gymnasium.Env:  # nested, so that a worker process receives the code and need not import velocirl
        try:
            return copy.deepcopy(environment)
        except Exception as error:
            if environment.spec is not None:
                return gymnasium.make(environment.spec)  # the specification names the wrappers too
            kind = type(environment.unwrapped).__name__
            raise TypeError(
                f"{environment} cannot be copied ({error}): give a function that makes one, such as lambda: {kind}(...)"
            ) from error

    make_copy.__module__ = type(environment.unwrapped).__module__  # a worker must be able to import this module
    make_copy.__qualname__ = name_of(environment)
    return make_copy


def single_makers(envs: VectorEnv) -> list[Making]:
    """Return a factory per environment of a `gymnasium.make_vec` vector; empty if they cannot be made one by one."""
    if envs.unwrapped is not envs or envs.spec is None or {"vector_kwargs", "wrappers"} & set(envs.spec.kwargs):
        return []
    arguments = {name: value for name, value in envs.spec.kwargs.items() if name not in OF_VECTORS}
    return [functools.partial(gymnasium.make, envs.spec.id, **arguments)] * envs.num_envs


def name_of(environment: Any) -> str:
    """Return the display name of an environment object or of its factory."""
    if isinstance(environment, gymnasium.Env):
        spec = environment.spec
        return type(environment.unwrapped).__name__ if spec is None else spec.id
    return getattr(environment, "__qualname__", type(environment).__name__)


def makers_of(environment: gymnasium.Env | Making | Sequence[Any]) -> Making | list[Making]:
    """Return the factories of the environments: one function, or a list with one for each."""
    if isinstance(environment, gymnasium.Env):
        if steps_taken(environment):
            warn_caller(
                f"{name_of(environment)} is in the middle of an episode; agents act in copies of it, which begin new"
                " ones, and it stays where it is"
            )
        return copies_of(environment)
    if callable(environment):
        return environment
    if not environment:
        raise ValueError("a list of environments must have one at least")
    makers: list[Making] = []
    for place, one in enumerate(environment):
        if not isinstance(one, gymnasium.Env) and not callable(one):
            kind = type(one).__name__
            raise TypeError(f"number {place} of the list is a {kind}: give Gymnasium environments, or what makes them")
        makers.append(copies_of(one) if isinstance(one, gymnasium.Env) else one)  # pyright: ignore[reportArgumentType]
    _require_alike([one for one in environment if isinstance(one, gymnasium.Env)])
    return makers


def steps_taken(environment: gymnasium.Env) -> int:
    """Return the steps of the current episode where a wrapper counts them, else 0."""
    layer: gymnasium.Env = environment
    while isinstance(layer, gymnasium.Wrapper):
        if isinstance(layer, TimeLimit):
            return layer._elapsed_steps or 0
        layer = layer.env
    return 0


def native_of(environment: gymnasium.Env) -> tuple[SingleEnv, int | None] | None:
    """Return a native environment and its time limit, or None if it has non-standard wrappers."""
    layer, limit = environment, None
    while isinstance(layer, STANDARD):
        limit = layer._max_episode_steps if isinstance(layer, TimeLimit) else limit
        layer = layer.env
    return (layer, limit) if isinstance(layer, SingleEnv) else None


def _require_alike(environments: list[gymnasium.Env]) -> None:
    for place, one in enumerate(environments):
        first = environments[0]
        for kind in ("observation_space", "action_space"):
            theirs, its = getattr(first, kind), getattr(one, kind)
            if theirs != its:
                raise ValueError(
                    f"the environments of a list must have the same spaces, and the {kind} of the first is {theirs},"
                    f" that of number {place} is {its}"
                )
