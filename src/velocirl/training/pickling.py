"""Pickling of agents: the arrays and settings of a saved file, and the environment as the user passed it."""

from __future__ import annotations

from collections.abc import Callable
from pickle import PicklingError
from typing import TYPE_CHECKING, Any

import cloudpickle
import gymnasium
from gymnasium.vector import VectorEnv

from velocirl.runs.state_file import State
from velocirl.vector.vec_env import is_vec_env

if TYPE_CHECKING:
    from velocirl.training.agent import Agent


def reduced(agent: Agent) -> tuple[Callable[..., Agent], tuple[Any, ...]]:
    """Reduce an agent to its state, for pickle and `copy.deepcopy`.

    Functions of a script or a notebook are included, by cloudpickle. Raises `PicklingError` for an environment that was
    passed as an object: it may hold a window, a socket or a simulator.
    """
    given, state = agent.source.given, agent.state()
    if isinstance(given, (gymnasium.Env, VectorEnv)) or is_vec_env(given):
        raise PicklingError(
            f"{agent.source.id} was given as an object, which no pickle holds: give its id or a function that makes it,"
            " or save the agent with agent.save(path)"
        )
    try:
        parts = cloudpickle.dumps((given, getattr(agent, "modules", {})))
    except Exception as error:
        raise PicklingError(
            f"{agent.source.id} cannot be pickled ({error}): save the agent with agent.save(path)"
        ) from error
    return restored, (type(agent), state.arrays, state.document, agent.metrics, parts)


def restored(
    kind: type[Agent], arrays: dict[str, Any], document: dict[str, Any], metrics: dict[str, Any], parts: bytes
) -> Agent:
    """Recreate an agent from the output of `reduced`."""
    given, modules = cloudpickle.loads(parts)
    agent = kind.from_state(State(arrays, document), given, "the pickle", allow_nan=True, **modules)
    agent.metrics = metrics
    return agent
