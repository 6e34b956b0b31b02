"""Environment objects that people bring, as what copies are made of: an environment, functions that make one, lists."""

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

GIVEN = "given:"  # how the name of an environment begins that no id can find again
# What Gymnasium wraps around each environment that it makes; a compiled fleet does the same by itself.
STANDARD = (PassiveEnvChecker, CheckedEnv, OrderEnforcing, TimeLimit)
OF_VECTORS = ("num_envs", "vectorization_mode")  # what make_vec notes beside an environment's own arguments
Making = Callable[..., gymnasium.Env]


def copies_of(environment: gymnasium.Env) -> Making:
    """What makes copies of an environment, with its wrappers and all that it is set to; it stays as it is itself."""

    def make_copy() -> gymnasium.Env:  # in here, so that a worker process gets the code and need not import velocirl
        try:
            return copy.deepcopy(environment)
        except Exception as error:
            if environment.spec is not None:
                return gymnasium.make(environment.spec)  # which names the wrappers too
            kind = type(environment.unwrapped).__name__
            raise TypeError(
                f"{environment} cannot be copied ({error}): give a function that makes one, such as lambda: {kind}(...)"
            ) from error

    make_copy.__module__ = type(environment.unwrapped).__module__  # what a worker must be able to import
    make_copy.__qualname__ = name_of(environment)
    return make_copy


def single_makers(envs: VectorEnv) -> list[Making]:
    """What makes the copies of a vector environment of Gymnasium's make_vec one by one; nothing where it cannot."""
    if envs.unwrapped is not envs or envs.spec is None or {"vector_kwargs", "wrappers"} & set(envs.spec.kwargs):
        return []
    arguments = {name: value for name, value in envs.spec.kwargs.items() if name not in OF_VECTORS}
    return [functools.partial(gymnasium.make, envs.spec.id, **arguments)] * envs.num_envs


def name_of(environment: Any) -> str:
    """What to call an environment object, or what makes one."""
    if isinstance(environment, gymnasium.Env):
        spec = environment.spec
        return type(environment.unwrapped).__name__ if spec is None else spec.id
    return getattr(environment, "__qualname__", type(environment).__name__)


def makers_of(environment: gymnasium.Env | Making | Sequence[Any]) -> Making | list[Making]:
    """What makes the copies: a function, or one for each copy."""
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
    """How far an episode has gone, where a wrapper that counts knows."""
    layer: gymnasium.Env = environment
    while isinstance(layer, gymnasium.Wrapper):
        if isinstance(layer, TimeLimit):
            return layer._elapsed_steps or 0
        layer = layer.env
    return 0


def native_of(environment: gymnasium.Env) -> tuple[SingleEnv, int | None] | None:
    """One of our own environments, and its time limit, where no wrapper of somebody's is around it."""
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
